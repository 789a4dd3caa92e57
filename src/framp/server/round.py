"""One round of Algorithm 1, from sampling to merge. Read this first, then follow the names."""

import time
from dataclasses import dataclass, field

from framp.engines.engine import Engine
from framp.messages import Description, Update
from framp.server.server import Server
from framp.server.stopwatch import Stopwatch


@dataclass(frozen=True)
class RoundReport:
    """What a round did."""

    round: int
    participants: list[int]
    accepted: int
    rejected: dict[str, int]
    loss: float | None
    bytes_down: int
    bytes_up: int
    server_seconds: float
    seconds: float
    diagnostics: dict[str, float] = field(default_factory=dict)


def play(server: Server, engine: Engine, round: int) -> RoundReport:
    """Play one round: sample, make tasks, let clients train, collect, merge."""
    started = time.perf_counter()
    working = Stopwatch()
    bytes_down, bytes_up = engine.traffic.down, engine.traffic.up
    redescribe(server, engine, round)
    participants = server.sample(round)
    inbox = server.inbox()
    tasks = working.over(server.task(client, round, inbox) for client in participants)
    for update in engine.exchange(tasks):
        with working:
            assert isinstance(update, Update)
            inbox.receive(update)
        del update  # its memory is the next task's
    with working:
        diagnostics = server.merge(inbox)
        inbox.close()
    return RoundReport(
        round=round,
        participants=sorted(participants),
        accepted=len(inbox.accepted),
        rejected=dict(sorted(inbox.rejected.items())),
        loss=inbox.loss,
        bytes_down=engine.traffic.down - bytes_down,
        bytes_up=engine.traffic.up - bytes_up,
        server_seconds=working.seconds,
        seconds=time.perf_counter() - started,
        diagnostics=diagnostics,
    )


def redescribe(server: Server, engine: Engine, round: int) -> None:
    """Let all clients describe themselves anew where the method wants that now."""
    questions = server.questions(round)
    if questions:
        server.redescribe(reply for reply in engine.exchange(questions) if isinstance(reply, Description))
