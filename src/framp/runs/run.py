"""The run loop: play rounds, evaluate, write down, in an order from which every interruption can be resumed.

A round's events are on the disk before the checkpoint that knows the round, and what the log knows beyond the
checkpoint is dropped on resuming. So a resumed run ends in the same bits as one that was never interrupted.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framp.config import Config
from framp.data import located
from framp.errors import CheckpointError, RunFolderError
from framp.federation import Federation, parts_of
from framp.runs import checkpoint as checkpoints
from framp.runs import folder as folders
from framp.runs import results
from framp.runs.atomic import remove_leftovers
from framp.runs.events import EventLog, Listener, TensorBoardSink, finite, read


@dataclass(frozen=True)
class Outcome:
    """How far a run came."""

    finished: bool
    round: int
    folder: Path
    results: dict[str, Any] | None


def start(
    config: Config,
    folder: Path,
    listeners: Sequence[Listener] = (),
    should_stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Start a run in a new or empty folder and play it to its end, or until `should_stop` says so after a round.

    Nothing is written before the configuration has proved to describe a federation.
    """
    config, folder = located(config), Path(folder)
    folders.refuse_used(folder)
    with (
        Federation(parts_of(config)) as federation,
        folders.created(folder, config),
        contextlib.closing(_Run(federation, folder, listeners, should_stop)) as run,
    ):
        folders.describe(folder, federation)
        run.emit(folders.start_event(federation))
        return run.play()


def resume(
    folder: Path,
    listeners: Sequence[Listener] = (),
    should_stop: Callable[[], bool] = lambda: False,
    engine: str | None = None,
    workers: int | None = None,
    checkpoint: int | None = None,
) -> Outcome:
    """Go on with an unfinished run from its newest checkpoint, or from another one (0: from the start)."""
    folder = Path(folder)
    if folders.existing_state(folder) == "finished":
        if checkpoint is not None:
            raise RunFolderError(
                f"the run in {folder} is finished, it goes back to no checkpoint; start anew elsewhere"
            )
        stored = results.read(folder)
        return Outcome(True, stored["rounds"], folder, stored)
    with folders.claimed(folder):
        remove_leftovers(folder)
        checkpoints.clean(folder)
        config = Config.from_toml(folder / folders.CONFIG)
        chosen = checkpoints.find(folder, checkpoint) if checkpoint else checkpoints.latest(folder)
        if checkpoint == 0:
            chosen = None
        loaded = checkpoints.load(chosen) if chosen else None
        parts = parts_of(config.with_values(_given({"engine.name": engine, "engine.workers": workers})))
        folders.refuse_other_data(folder, parts.data.partition.sha256, parts.data.dataset.sha256)
        with (
            Federation(parts, folders.stored_registry(folder, config)) as federation,
            contextlib.closing(_Run(federation, folder, listeners, should_stop)) as run,
        ):
            if chosen and loaded:
                _take_over(federation, chosen, *loaded)
            del loaded  # a second copy of the state would last as long as the run
            run.log.require(federation.rounds_played)
            checkpoints.discard_after(folder, federation.rounds_played)
            folders.describe(folder, federation)
            run.rewind()
            return run.play()


class _Run:
    """A federation at work in a folder."""

    def __init__(
        self, federation: Federation, folder: Path, listeners: Sequence[Listener], should_stop: Callable[[], bool]
    ) -> None:
        self.federation, self.folder, self.should_stop = federation, folder, should_stop
        self.log = EventLog(folder / folders.EVENTS)
        self.tensorboard = TensorBoardSink(folder / folders.TENSORBOARD)
        self.listeners = (self.tensorboard, *listeners)

    def close(self) -> None:
        """Write out what waits."""
        self.tensorboard.close()

    def emit(self, event: dict[str, Any]) -> None:
        """Write an event down, then tell the listeners."""
        self.log.append(event)
        for listener in self.listeners:
            listener.on_event(event)

    def rewind(self) -> None:
        """Make the log agree with the state that the run goes on from."""
        self.log.rewind(self.federation.rounds_played)
        if not (self.log.path.exists() and any(event["event"] == "start" for event in read(self.log.path))):
            self.emit(folders.start_event(self.federation))
        self.emit({"event": "resume", "round": self.federation.rounds_played})

    def play(self) -> Outcome:
        """Play the rounds that are left."""
        config, federation = self.federation.config, self.federation
        while federation.rounds_played < config.rounds:
            round = federation.rounds_played + 1
            last = round == config.rounds
            self.emit({"event": "round", **finite(dataclasses.asdict(federation.play_round()))})
            if last or round % config.evaluation.every == 0:
                self.emit({"event": "evaluation", **finite(dataclasses.asdict(federation.evaluate()))})
            stopping = not last and self.should_stop()
            if last or stopping or round % config.checkpoint.every == 0:
                self.log.synchronise()
                identity = folders.identity(federation)
                checkpoints.save(self.folder, round, federation.server.state(), identity)
            if stopping:
                return Outcome(False, round, self.folder, None)
        return self._finish()

    def _finish(self) -> Outcome:
        federation, config = self.federation, self.federation.config
        federation.close()  # worker processes count towards peak memory only after their end
        record = results.Results(
            config=config,
            events=read(self.log.path),
            partition_sha256=federation.data.partition.sha256,
            state_sha256=federation.server.digest(),
            partition={"kind": config.partition.kind, **federation.data.partition.edges()},
            model={"name": config.model.name, "maskable": federation.server.layout.maskable},
            peak_rss_bytes=results.peak_rss_bytes(with_children=config.engine.name != "serial"),
        ).to_dict()
        results.write(self.folder, record)
        self.emit({"event": "finished", "round": config.rounds})
        return Outcome(True, config.rounds, self.folder, record)


def _take_over(
    federation: Federation, chosen: checkpoints.Checkpoint, state: dict[str, Any], meta: dict[str, Any]
) -> None:
    for key, value in folders.identity(federation).items():
        if meta.get(key) != value:
            what = {"config_sha256": "config.toml"}.get(key, "the data")
            raise CheckpointError(
                f"{what} changed since {chosen.path} was written; restore what it was, or start anew in another folder"
            )
    try:
        federation.server.load(state)
    except ValueError:
        raise CheckpointError(
            f"{chosen.path} does not fit the recipe's state, it comes from another version of FRAMP; "
            f"use that version, or start anew with `framp resume {chosen.run} --checkpoint 0`"
        ) from None
    federation.rounds_played = chosen.round


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
