"""What a run folder says about its run."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from framp.runs import events, results

METRICS = ("final", "last10", "best")


@dataclass(frozen=True)
class Record:
    """A finished run: its results.json and the evaluations along the way."""

    folder: Path
    results: dict[str, Any]
    evaluations: list[dict[str, Any]]
    rejected: dict[str, int] = field(default_factory=dict)
    """How many updates were rejected over all rounds, by reason."""
    held: dict[str, float] = field(default_factory=dict)
    """The fraction of the full model that a client of each budget really gets."""

    @property
    def work(self) -> dict[str, float]:
        """The share of the full network's multiply-adds that clients' models keep in the end, by budget."""
        return dict(self.evaluations[-1].get("work", {})) if self.evaluations else {}

    @classmethod
    def read(cls, folder: Path) -> "Record":
        """Read a finished run."""
        stored, path = results.read(folder), folder / "metrics.jsonl"
        found = events.read(path) if path.exists() else []
        held: dict[str, float] = next((event.get("held", {}) for event in found if event["event"] == "start"), {})
        return cls(folder, stored, list(_evaluations(found)), _rejected(found), held)

    @property
    def recipe(self) -> str:
        """The method."""
        return str(self.results["recipe"])

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.results["seed"])

    @property
    def budgets(self) -> list[str]:
        """The names of the budgets, in the federation's order."""
        return list(self.results["final"]["groups"])

    def measures(self, metric: str = "final") -> dict[str, float]:
        """Return accuracies by key: "local", the name of each budget, "union", as far as the metric has them."""
        found: dict[str, Any] = self.results.get(metric) or {}
        values = {"local": found.get("local")} | found.get("groups", {}) | {"union": found.get("union")}
        return {key: float(value) for key, value in values.items() if value is not None}

    @property
    def cut(self) -> str:
        """How a graph was cut, in words; empty for images."""
        found = self.results.get("partition", {})
        if "edges" not in found:
            return ""
        share = found["cut_edges"] / max(found["edges"], 1)
        return f"{found['kind']}, which cut {100 * share:.1f} % of {found['edges']} edges"

    @property
    def bytes_down(self) -> int:
        """All bytes sent to clients."""
        return int(self.results["cost"]["bytes_down"])

    @property
    def bytes_up(self) -> int:
        """All bytes sent by clients."""
        return int(self.results["cost"]["bytes_up"])

    @property
    def seconds(self) -> float:
        """The time that all rounds took."""
        return float(sum(self.results["cost"]["round_seconds"]))


def heading(measure: str) -> str:
    """Return what a reader calls a measure: Local, 1/64, Union."""
    return {"local": "Local", "union": "Union"}.get(measure, measure)


def _evaluations(found: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the evaluations in the order of rounds; of one that was played again after a resume, the last."""
    by_round = {event["round"]: event for event in found if event["event"] == "evaluation"}
    yield from (by_round[round] for round in sorted(by_round))


def _rejected(found: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Return the rejected updates by reason, the most frequent first."""
    by_round = {event["round"]: event["rejected"] for event in found if event["event"] == "round"}
    return dict(sum(map(Counter, by_round.values()), Counter[str]()).most_common())
