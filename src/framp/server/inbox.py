"""What came back in a round. Nothing is trusted: an update that does not answer its task exactly is rejected, counted.

The rest is merged as if the rejected ones had never been sampled.
"""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from framp.messages import Prototypes, Task, Update
from framp.server.form import well_formed
from framp.server.spool import Spool
from framp.stage2_extraction import Selection
from framp.updates import MaskedUpdate, Stored

LARGEST = 1e6
"""No step of training changes a weight by as much, no loss is; still larger values would overflow in the merge."""


@dataclass(frozen=True, eq=False)
class Expected:
    """What the answer to a task has to look like."""

    round: int
    token: int
    maskable: int
    above: int
    indices: Stored | None
    values: torch.Size
    always: torch.Size
    dtype: torch.dtype
    prototypes: torch.Size | None
    classes: torch.Size | None
    extractor: torch.Size | None
    samples: int
    places: Tensor | None
    class_rows: Tensor | None

    def merged(self, update: Update, spool: Spool) -> MaskedUpdate:
        """Return what counts of an update: all but the output layer's rows of classes that the client does not have."""
        indices, values = self.indices, update.values
        if update.classes is not None and self.class_rows is not None:
            kept = torch.ones(len(values), dtype=torch.bool)
            places, classes = self.class_rows
            kept[places[~update.classes[classes]]] = False
            held = torch.arange(self.maskable, dtype=torch.int32) if indices is None else indices.read(0, len(indices))
            indices, values = spool.keep(held[kept]), values[kept]
        return MaskedUpdate(
            update.client, self.maskable, indices, spool.keep(values), update.always, self.above, self.places
        )


class Inbox:
    """Collects one round's updates, in whatever order they arrive."""

    def __init__(self, memory: int) -> None:
        self._spool = Spool(memory)
        self._expected: dict[int, Expected] = {}
        self._merged: dict[int, MaskedUpdate] = {}
        self._prototypes: dict[int, Prototypes] = {}
        self._extractors: dict[int, Tensor] = {}
        self._losses: dict[int, float] = {}
        self.rejected: Counter[str] = Counter()

    def expect(self, task: Task, chosen: Selection, above: int, prototypes: torch.Size, samples: int) -> None:
        """Note a task that leaves: what was chosen for it, the prototypes' shape, its client's number of samples."""
        submodel = task.submodel
        self._expected[task.client] = Expected(
            round=task.round,
            token=task.token,
            maskable=submodel.maskable,
            above=above,
            indices=None if submodel.indices is None else self._spool.keep(submodel.indices),
            values=submodel.values.shape,
            always=submodel.always.shape,
            dtype=submodel.values.dtype,
            prototypes=prototypes if task.objective.uses_prototypes else None,
            classes=prototypes[:1] if task.objective.tells_classes else None,
            extractor=None if task.extractor is None else task.extractor.parameters.shape,
            samples=samples,
            places=chosen.always,
            class_rows=chosen.class_rows,
        )

    def receive(self, update: Update) -> None:
        """Take an update in, or reject it and count why."""
        reason = self.objection(update)
        if reason is not None:
            self.rejected[reason] += 1
            return
        expected = self._expected[update.client]
        self._losses[update.client] = update.loss
        self._merged[update.client] = expected.merged(update, self._spool)
        if update.prototypes is not None:
            self._prototypes[update.client] = update.prototypes
        if update.extractor is not None:
            self._extractors[update.client] = update.extractor

    def objection(self, update: Update) -> str | None:
        """Return what is wrong with an update, None if nothing is."""
        if not well_formed(update):
            return "malformed"
        expected = self._expected.get(update.client)
        if expected is None:
            return "client was not asked"
        if update.round != expected.round:
            return "wrong round"
        if update.token != expected.token:
            return "wrong task"
        if update.client in self._merged:
            return "answered twice"
        if update.values.shape != expected.values or update.always.shape != expected.always:
            return "wrong shape"
        if update.values.dtype != expected.dtype or update.always.dtype != expected.dtype:
            return "wrong type"
        if not (_plausible(update.values) and _plausible(update.always)):
            return "values not finite or implausibly large"
        if not abs(update.loss) <= LARGEST:
            return "loss not finite or implausibly large"
        return (
            self._class_objection(update.classes, expected)
            or self._extractor_objection(update.extractor, expected)
            or self._prototype_objection(update.prototypes, expected)
        )

    @staticmethod
    def _extractor_objection(extractor: Tensor | None, expected: Expected) -> str | None:
        if expected.extractor is None or extractor is None:
            fine = expected.extractor is None and extractor is None
            return None if fine else "feature extractor missing or not asked for"
        if extractor.shape != expected.extractor or extractor.dtype != torch.float32:
            return "wrong shape of the feature extractor"
        return None if _plausible(extractor) else "feature extractor not finite or implausibly large"

    @staticmethod
    def _class_objection(classes: Tensor | None, expected: Expected) -> str | None:
        if expected.classes is None or classes is None:
            return None if expected.classes is None and classes is None else "classes missing or not asked for"
        if classes.shape != expected.classes or classes.dtype != torch.bool or not bool(classes.any()):
            return "implausible classes"
        return None

    @staticmethod
    def _prototype_objection(prototypes: Prototypes | None, expected: Expected) -> str | None:
        if expected.prototypes is None or prototypes is None:
            return None if expected.prototypes is None and prototypes is None else "prototypes missing or not asked for"
        vectors, counts = prototypes.vectors, prototypes.counts
        if vectors.shape != expected.prototypes or counts.shape != expected.prototypes[:1]:
            return "wrong prototype shape"
        if vectors.dtype != expected.dtype or counts.dtype != torch.int64:
            return "wrong type"
        if not _plausible(vectors):
            return "prototypes not finite or implausibly large"
        if bool(((counts < 0) | (counts > expected.samples)).any()) or int(counts.sum()) != expected.samples:
            return "implausible prototype counts"
        return None

    @property
    def accepted(self) -> list[MaskedUpdate]:
        """The valid updates, by client id."""
        return [self._merged[client] for client in sorted(self._merged)]

    @property
    def prototypes(self) -> list[Prototypes]:
        """The valid updates' prototypes, by client id."""
        return [self._prototypes[client] for client in sorted(self._prototypes)]

    @property
    def extractors(self) -> list[Tensor]:
        """What the valid updates changed of the descriptors' feature extractor, by client id."""
        return [self._extractors[client] for client in sorted(self._extractors)]

    @property
    def loss(self) -> float | None:
        """Mean training loss of the valid updates; None where there was none."""
        losses = [self._losses[client] for client in sorted(self._losses)]
        return sum(losses) / len(losses) if losses else None

    def close(self) -> None:
        """Let go of what waited on disk."""
        self._spool.close()


def _plausible(tensor: Tensor) -> bool:
    if not tensor.numel():
        return True
    low, high = torch.aminmax(tensor)  # not-a-number comes through, and fails both comparisons
    return bool((low >= -LARGEST) & (high <= LARGEST))
