import dataclasses
from collections.abc import Callable, Iterable, Iterator

import pytest
import torch

from framp.federation import Federation
from framp.messages import Message, Reply, Task, Update
from framp.server import RoundReport, play
from framp.wire import encode

MakeFederation = Callable[..., Federation]


class Arranged:
    """An engine that carries what another one answers, arranged otherwise."""

    def __init__(self, federation: Federation, arrange: Callable[[list[Reply]], list[Reply]]) -> None:
        self._engine, self._arrange = federation.engine, arrange
        self.traffic = federation.engine.traffic
        self.messages: list[Message] = []
        self.replies: list[Reply] = []

    def exchange(self, messages: Iterable[Message]) -> Iterator[Reply]:
        self.messages = list(messages)
        self.replies = list(self._engine.exchange(self.messages))
        return iter(self._arrange(self.replies))

    def close(self) -> None:
        self._engine.close()


def spoil(reply: Reply) -> Reply:
    assert isinstance(reply, Update)
    return dataclasses.replace(reply, values=torch.full_like(reply.values, float("inf")))


def test_a_report_says_what_the_round_did(toy_federation: MakeFederation) -> None:
    federation = toy_federation()
    engine = Arranged(federation, lambda replies: [spoil(replies[0]), replies[3], replies[1]])
    report = play(federation.server, engine, 1)
    updates = [reply for reply in engine.replies if isinstance(reply, Update)]
    tasks = [message for message in engine.messages if isinstance(message, Task)]
    assert [task.client for task in tasks] == federation.server.sample(1)
    assert report.round == 1
    assert report.participants == sorted(task.client for task in tasks)
    assert report.accepted == 2
    assert report.rejected == {"values not finite or implausibly large": 1}
    assert report.loss == pytest.approx((updates[3].loss + updates[1].loss) / 2, abs=1e-12)
    layout = federation.server.layout
    assert report.bytes_down == sum(len(encode(task, layout=layout)) for task in tasks)
    assert report.bytes_up == sum(len(encode(update)) for update in updates)  # what is rejected has come, too
    assert 0 < report.server_seconds <= report.seconds


def test_a_round_from_which_nobody_came_back_changes_nothing(toy_federation: MakeFederation) -> None:
    federation = toy_federation()
    before = federation.server.digest()
    report = play(federation.server, Arranged(federation, lambda replies: []), 1)
    assert federation.server.digest() == before
    assert (report.accepted, report.loss, report.rejected) == (0, None, {})
    assert report.bytes_down > 0
    assert report.diagnostics == {}


def play_three(federation: Federation, arrange: Callable[[list[Reply]], list[Reply]]) -> tuple[str, list[RoundReport]]:
    engine = Arranged(federation, arrange)
    reports = [play(federation.server, engine, round) for round in (1, 2, 3)]
    return federation.server.digest(), reports


@pytest.mark.parametrize("recipe", ["framp", "framp-no-personalisation"])
def test_replies_in_another_order_make_the_same_server(recipe: str, toy_federation: MakeFederation) -> None:
    straight, first = play_three(toy_federation({"recipe": recipe}), lambda replies: replies)
    reversed_, second = play_three(toy_federation({"recipe": recipe}), lambda replies: replies[::-1])
    assert straight == reversed_
    for one, other in zip(first, second, strict=True):
        timeless = {"seconds": 0.0, "server_seconds": 0.0}
        assert dataclasses.replace(one, **timeless) == dataclasses.replace(other, **timeless)  # type: ignore[arg-type]
