"""`metrics.jsonl`: what happened, one JSON event a line, and those who listen to it.

start       versions, recipe, seed, rounds, hashes, model
round       round, participants, accepted, rejected, loss, bytes_down, bytes_up, server_seconds, seconds, diagnostics
evaluation  round, local, groups, union, union_by_size, clients, work
resume      round: the one that the state was taken from
finished    round
"""

import json
import math
import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from framp.errors import RunFolderError
from framp.runs.atomic import explained, synchronise, write_text

_OF_A_ROUND = ("round", "evaluation")


class Listener(Protocol):
    """Somebody who wants to know what happens."""

    def on_event(self, event: dict[str, Any]) -> None:
        """Take note of an event; it must not be changed."""


class EventLog:
    """Writes events, each as one line at once; a kill can tear the last line only."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    def append(self, event: dict[str, Any]) -> None:
        """Add an event."""
        line = json.dumps(event, ensure_ascii=False, allow_nan=False) + "\n"
        with explained(self.path), self.path.open("ab", buffering=0) as file:
            data = line.encode()
            while data:
                data = data[file.write(data) :]

    def synchronise(self) -> None:
        """Wait until all events are on the disk: a checkpoint must never know more rounds than the log does."""
        with explained(self.path):
            synchronise(self.path)

    def require(self, rounds: int) -> None:
        """Raise unless the log knows all rounds up to this one: the results will be made from it."""
        events = read(self.path) if self.path.exists() else []
        known = {event["round"] for event in events if event["event"] == "round"}
        missing = [round for round in range(1, rounds + 1) if round not in known]
        if missing:
            run = self.path.parent
            raise RunFolderError(
                f"{self.path} lacks round {missing[0]}, which the checkpoint of round {rounds} knows; "
                f"restore the file, or start anew with `framp resume {run} --checkpoint 0`"
            )

    def rewind(self, round: int) -> None:
        """Drop the rounds and evaluations after `round`, the end, and a torn last line."""
        if not self.path.exists():
            return
        kept = [
            event
            for event in read(self.path)
            if event["event"] != "finished" and not (event["event"] in _OF_A_ROUND and event["round"] > round)
        ]
        write_text(self.path, "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in kept))


def read(path: Path) -> list[dict[str, Any]]:
    """Return a log's events; a torn last line is left out, any other damage is an error."""
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from None
    torn = lines.pop()  # empty where the last line was written to its end
    events = []
    for number, line in enumerate(lines, 1):
        try:
            event = json.loads(line)
            if not isinstance(event, dict) or "event" not in event:
                raise ValueError
        except ValueError:
            if number == len(lines) and not torn:
                break
            raise RunFolderError(
                f"{path}, line {number} is damaged; restore the file, or delete this line and lose what it said"
            ) from None
        events.append(event)
    return events


def finite(value: Any) -> Any:
    """Return a value with None where a number is not finite, which JSON cannot say."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(entry) for entry in value]
    return value


class TensorBoardSink:
    """Shows a run in TensorBoard."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.fspath(folder)
        self._writer: Any = None

    def on_event(self, event: dict[str, Any]) -> None:
        """Draw an event's numbers."""
        kind = event["event"]
        if kind == "resume":
            self.close()
            self._open(purge_step=event["round"] + 1)
        elif kind == "round":
            self._round(event)
        elif kind == "evaluation":
            self._evaluation(event)

    def close(self) -> None:
        """Write out what waits."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self, purge_step: int | None = None) -> Any:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter  # slow to import, and not needed to read events

            self._writer = SummaryWriter(self._folder, purge_step=purge_step)
        return self._writer

    def _round(self, event: dict[str, Any]) -> None:
        scalars = {"loss": event["loss"], "accepted": event["accepted"]}
        scalars |= {f"bytes/{way}": event[f"bytes_{way}"] for way in ("down", "up")}
        scalars |= {"seconds/server": event["server_seconds"], "seconds/round": event["seconds"]}
        scalars |= {f"diagnostics/{name}": value for name, value in event["diagnostics"].items()}
        self._scalars(scalars, event["round"])

    def _evaluation(self, event: dict[str, Any]) -> None:
        scalars = {"accuracy/local": event["local"], "accuracy/union": event["union"]}
        scalars |= {f"groups/{_tag(name)}": value for name, value in event["groups"].items()}
        scalars |= {f"union/{_tag(name)}": value for name, value in event["union_by_size"].items()}
        self._scalars(scalars, event["round"])
        self._open().add_histogram("clients", np.array(event["clients"]), event["round"])
        self._open().flush()

    def _scalars(self, scalars: dict[str, Any], round: int) -> None:
        for tag, value in scalars.items():
            if value is not None:
                self._open().add_scalar(tag, value, round)


def _tag(size: str) -> str:
    return size.replace("/", "_")  # a slash would open a group of its own
