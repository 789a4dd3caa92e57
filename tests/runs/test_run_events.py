import json
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from framp.errors import RunFolderError
from framp.runs import events
from framp.runs.events import EventLog, TensorBoardSink


def round_event(number: int) -> dict[str, Any]:
    return {
        "event": "round",
        "round": number,
        "loss": number / 2,
        "accepted": 3,
        "bytes_down": 10 * number,
        "bytes_up": 5 * number,
        "server_seconds": 0.25,
        "seconds": 0.5,
        "diagnostics": {"gain_own": 0.1, "gain_others": None},
    }


def evaluation(number: int) -> dict[str, Any]:
    return {
        "event": "evaluation",
        "round": number,
        "local": 0.5,
        "groups": {"1/4": 0.25, "1": 0.75},
        "union": 0.125,
        "union_by_size": {"1/4": 0.125, "1": 0.125},
        "clients": [0.25, 0.75],
    }


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    log = EventLog(tmp_path / "metrics.jsonl")
    log.append({"event": "start", "recipe": "framp"})
    for number in (1, 2, 3):
        log.append(round_event(number))
        log.append(evaluation(number))
    return log


def test_one_event_a_line(log: EventLog) -> None:
    lines = log.path.read_text().splitlines()
    assert [json.loads(line) for line in lines] == events.read(log.path)
    assert events.read(log.path)[-1] == evaluation(3)


@pytest.mark.parametrize("torn", [b'{"event": "round", "rou', b'{"event": "finished"}', b"\x00\x00\x00\n", b"{}\n"])
def test_a_torn_last_line_is_left_out(log: EventLog, torn: bytes) -> None:
    before = events.read(log.path)
    log.path.write_bytes(log.path.read_bytes() + torn)
    assert events.read(log.path) == before
    log.rewind(3)
    log.append({"event": "resume", "round": 3})
    assert events.read(log.path) == [*before, {"event": "resume", "round": 3}]


def test_damage_elsewhere_is_an_error(log: EventLog) -> None:
    lines = log.path.read_bytes().split(b"\n")
    log.path.write_bytes(b"\n".join([*lines[:2], b"{torn", *lines[3:]]))
    with pytest.raises(RunFolderError, match=r"metrics.jsonl, line 3 is damaged; restore the file, or delete"):
        events.read(log.path)


def test_rewinding_drops_what_the_state_does_not_know(log: EventLog) -> None:
    log.append({"event": "resume", "round": 3})
    log.append({"event": "finished", "round": 3})
    log.rewind(2)
    assert [(event["event"], event.get("round")) for event in events.read(log.path)] == [
        ("start", None),
        ("round", 1),
        ("evaluation", 1),
        ("round", 2),
        ("evaluation", 2),
        ("resume", 3),
    ]
    EventLog(log.path.with_name("missing")).rewind(2)


def test_a_log_that_lost_rounds_is_refused(log: EventLog) -> None:
    log.require(3)
    with pytest.raises(RunFolderError, match="lacks round 4, which the checkpoint of round 5 knows"):
        log.require(5)
    EventLog(log.path.with_name("missing")).require(0)


def test_what_is_not_finite_is_said_as_none() -> None:
    assert events.finite({"a": [1, float("nan"), 2.5], "b": (float("inf"), "x", True)}) == {
        "a": [1, None, 2.5],
        "b": [None, "x", True],
    }


def test_tensorboard_shows_each_round_once_after_a_resume(tmp_path: Path) -> None:
    for first, last in ((1, 5), (4, 6)):
        sink = TensorBoardSink(tmp_path)
        if first > 1:
            sink.on_event({"event": "resume", "round": first - 1})
        for number in range(first, last + 1):
            sink.on_event(round_event(number))
            if number % 2 == 0:
                sink.on_event(evaluation(number))
        sink.on_event({"event": "finished"})
        sink.close()
    shown = EventAccumulator(str(tmp_path), {"histograms": 0}).Reload()
    assert [(point.step, point.value) for point in shown.Scalars("loss")] == [(n, n / 2) for n in range(1, 7)]
    assert [point.step for point in shown.Scalars("groups/1_4")] == [2, 4, 6]
    assert [point.step for point in shown.Histograms("clients")] == [2, 4, 6]
    assert sorted(shown.Tags()["scalars"]) == [
        "accepted",
        "accuracy/local",
        "accuracy/union",
        "bytes/down",
        "bytes/up",
        "diagnostics/gain_own",
        "groups/1",
        "groups/1_4",
        "loss",
        "seconds/round",
        "seconds/server",
        "union/1",
        "union/1_4",
    ]
