"""`results.json`: what a run came to, in a documented and versioned form (`results.schema.json` beside this file)."""

import json
import resource
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from framp.budgets import assign
from framp.config import Config
from framp.errors import RunFolderError
from framp.recipes import find
from framp.runs.atomic import write_json

SCHEMA = 1
NAME = "results.json"
SCHEMA_FILE = Path(__file__).with_name("results.schema.json")
DESCRIPTOR_BYTES = 4 * 128
LAST = 10


@dataclass(frozen=True)
class Results:
    """What a run came to. All accuracies of one entry are of one round; they are never mixed."""

    config: Config
    events: list[dict[str, Any]]
    partition_sha256: str
    state_sha256: str
    model: dict[str, Any]
    """Its name and the number of its maskable parameters."""
    partition: dict[str, Any]
    """Its kind, and of a graph the edges and how many of them are cut."""
    peak_rss_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain values."""
        evaluations = self._of_kind("evaluation")
        if not evaluations:
            raise RunFolderError("the run has no evaluation, so there are no results; resume it from its start")
        best = max(evaluations, key=lambda evaluation: evaluation["local"])
        last = evaluations[-LAST:]
        return {
            "schema": SCHEMA,
            "recipe": self.config.recipe,
            "seed": self.config.seed,
            "rounds": self.config.rounds,
            "config_sha256": self.config.sha256(),
            "partition_sha256": self.partition_sha256,
            "state_sha256": self.state_sha256,
            "model": self.model,
            "partition": self.partition,
            "final": self._final(evaluations[-1]),
            "best": {key: best[key] for key in ("round", "local", "union")},
            "last10": {key: fmean(evaluation[key] for evaluation in last) for key in ("local", "union")},
            "cost": self._cost(),
        }

    def _of_kind(self, kind: str) -> list[dict[str, Any]]:
        return sorted((event for event in self.events if event["event"] == kind), key=lambda event: event["round"])

    def _final(self, evaluation: dict[str, Any]) -> dict[str, Any]:
        budgets = self.config.budgets
        groups = assign(budgets, self.config.federation.shares, self.config.partition.clients)
        clients = [
            {"id": client, "budget": budgets[groups[client]].name, "accuracy": accuracy}
            for client, accuracy in enumerate(evaluation["clients"])
        ]
        return {**{key: evaluation[key] for key in ("local", "groups", "union", "union_by_size")}, "clients": clients}

    def _cost(self) -> dict[str, Any]:
        rounds = self._of_kind("round")
        enrolment = DESCRIPTOR_BYTES * self.config.partition.clients if find(self.config.recipe).wants_features else 0
        return {
            "bytes_down": sum(event["bytes_down"] for event in rounds),
            "bytes_up": sum(event["bytes_up"] for event in rounds) + enrolment,
            "server_seconds": [event["server_seconds"] for event in rounds],
            "round_seconds": [event["seconds"] for event in rounds],
            "peak_rss_bytes": self.peak_rss_bytes,
        }


def write(folder: Path, results: dict[str, Any]) -> None:
    """Write results into a run folder; their presence means that the run is finished."""
    write_json(Path(folder) / NAME, results)


def read(folder: Path) -> dict[str, Any]:
    """Read a run folder's results."""
    path = Path(folder) / NAME
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunFolderError(f"{folder} has no results yet; finish it with `framp resume {folder}`") from None
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        results = None
    damaged = f"{path} is damaged; delete it and make it again with `framp resume {folder}`"
    if not isinstance(results, dict) or "schema" not in results:
        raise RunFolderError(damaged)
    if results["schema"] != SCHEMA:
        raise RunFolderError(f"{path} has schema {results['schema']}, but this version of FRAMP reads {SCHEMA}")
    if not _complete(results, json_schema()):
        raise RunFolderError(damaged)
    return results


def _complete(value: Any, schema: dict[str, Any]) -> bool:
    """Tell whether a value and its sections have all the keys that a schema requires."""
    required = schema.get("required", ())
    return not required or (
        isinstance(value, dict)
        and all(key in value and _complete(value[key], schema["properties"][key]) for key in required)
    )


def json_schema() -> dict[str, Any]:
    """Return the JSON schema that every results file satisfies."""
    schema: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    return schema


def peak_rss_bytes(with_children: bool) -> int:
    """Return the largest memory that this process held, plus that of its largest ended child if asked."""
    kinds: Iterable[int] = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)[: 2 if with_children else 1]
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * sum(resource.getrusage(kind).ru_maxrss for kind in kinds)
