"""How good the models are now (section 5 of the paper).

Local: each client's own generated submodel on its own test data. Groups: the mean of Local over the clients of one
budget. Union: the average client's model, cut to each size, on everybody's test data.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from framp.budgets import Budget
from framp.engines import Engine
from framp.messages import Exam, Manner, Score
from framp.server import Server


@dataclass(frozen=True)
class Evaluation:
    """All accuracies of one moment; they are never mixed with another round's."""

    round: int
    local: float
    groups: dict[str, float]
    union: float
    union_by_size: dict[str, float]
    """Trained sizes, then further ones; `union` is the mean of the trained ones."""
    clients: list[float]
    work: dict[str, float]
    """By budget, the share of the full network's multiply-adds that its clients' own models keep, on average; empty
    where the network's work cannot be counted."""


def evaluate(
    server: Server, engine: Engine, round: int, manner: Manner, further_sizes: Sequence[Budget] = ()
) -> Evaluation:
    """Let every client examine its own model, and the union of their test data examine the average model."""
    counts = np.bincount(server.registry.group, minlength=len(server.registry.budgets))
    trained = [budget for budget, members in zip(server.registry.budgets, counts, strict=True) if members]
    granted = server.method.extractor.granted
    sizes = {size.name: size for size in (*trained, *further_sizes)}
    distinct = {granted(size).name: size for size in reversed(sizes.values())}

    work: dict[str, list[float]] = {budget.name: [] for budget in trained}

    def exams() -> Iterator[Exam]:
        for name, size in sorted(distinct.items(), key=lambda item: -item[1].fraction):
            yield Exam(server.union(size, round), None, ("union", name), manner)
        for client in range(len(server.registry)):
            submodel = server.personal(client, round)
            if server.work is not None:
                work[server.registry.budget(client).name].append(server.work.share(submodel.indices))
            yield Exam(submodel, client, ("local", str(client)), manner)

    scores: dict[tuple[str, ...], float] = {}
    for score in engine.exchange(exams()):
        assert isinstance(score, Score)
        scores[score.key] = score.accuracy

    clients = [scores["local", str(client)] for client in range(len(server.registry))]
    by_size = {name: scores["union", granted(size).name] for name, size in sizes.items()}
    groups: dict[str, list[float]] = {budget.name: [] for budget in trained}
    for client, accuracy in enumerate(clients):
        groups[server.registry.budget(client).name].append(accuracy)
    return Evaluation(
        round=round,
        local=fmean(clients),
        groups={name: fmean(members) for name, members in groups.items()},
        union=fmean(by_size[budget.name] for budget in trained),
        union_by_size=by_size,
        clients=clients,
        work={name: fmean(shares) for name, shares in work.items() if shares},
    )
