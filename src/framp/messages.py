"""What crosses the network: frozen records, the same for every engine.

    server ── Describe ─► client ── Description ─► server      before the first round; trained descriptors again
    server ── Task     ─► client ── Update      ─► server      every round
    server ── Exam     ─► client ── Score       ─► server      when a model is evaluated

A client learns its submodel, the global prototypes, its objective and a seed: nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from framp.budgets import Budget
from framp.errors import BudgetError
from framp.layout import ParameterLayout, Shapes

if TYPE_CHECKING:
    from framp.stage3_objective import Objective


@dataclass(frozen=True, eq=False)
class Submodel:
    """A set of entries of the flat vector with their values, and the entries that always travel."""

    maskable: int
    """Size of the space the indices live in: the maskable entries of the full model."""
    indices: Tensor | None
    """The active entries, ascending int32; None stands for all of them."""
    values: Tensor
    always: Tensor
    shapes: Shapes | None = None
    """Of each entry of the layout, if the submodel is a smaller network; None: it is a mask over the full one."""

    def layout(self, full: ParameterLayout) -> ParameterLayout:
        """Return the layout of the vector that a client works on: of the smaller network, or of the full one."""
        return full if self.shapes is None else full.part(self.shapes)

    def fill(self, vector: Tensor) -> None:
        """Write the submodel into a vector of its layout; every entry outside it becomes exactly zero."""
        if self.shapes is not None:
            torch.cat([self.values, self.always], out=vector)
            return
        if self.indices is None:
            vector[: self.maskable] = self.values
        else:
            vector[: self.maskable] = 0
            vector[self.indices] = self.values
        vector[self.maskable :] = self.always

    def mask(self) -> Tensor | None:
        """Return 1 where the vector may change and 0 elsewhere; None where all of it may."""
        if self.indices is None or self.shapes is not None:
            return None
        mask = torch.zeros(self.maskable + self.always.numel(), dtype=self.values.dtype)
        mask[self.indices] = 1
        mask[self.maskable :] = 1
        return mask

    def trained(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        """Return what a vector of its layout holds: at the active entries, and at those that always travel."""
        values = vector[: self.below]
        return values if self.mask_indices is None else values[self.mask_indices], vector[self.below :]

    @property
    def below(self) -> int:
        """Where what always travels begins in a vector of the submodel's layout."""
        return self.maskable if self.shapes is None else len(self.values)

    @property
    def mask_indices(self) -> Tensor | None:
        """The entries of the vector that are active; None where all of them are."""
        return None if self.shapes is not None else self.indices


@dataclass(frozen=True, eq=False)
class Prototypes:
    """One mean feature vector a class, and how many samples (or holders) stand behind it; 0: there is none."""

    vectors: Tensor
    counts: Tensor


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains: T steps of SGD on mini-batches, w ← w − α·g; all methods alike."""

    steps: int
    batch: int
    rate: float
    augment: bool = False
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float = 0.0
    """Largest norm of a gradient; 0: whatever it is."""


@dataclass(frozen=True, eq=False)
class ExtractorTraining:
    """What a participant is asked to do for the descriptors' feature extractor φ."""

    parameters: Tensor
    """φ and its classifier, as one vector."""
    epochs: int
    rate: float


@dataclass(frozen=True, eq=False)
class Task:
    """What one client is asked to do in one round. A task over its budget cannot be built."""

    round: int
    client: int
    token: int
    """Names this very task; the update has to return it."""
    budget: Budget
    submodel: Submodel
    objective: Objective
    training: LocalTraining
    prototypes: Prototypes | None
    seed: int
    extractor: ExtractorTraining | None = None

    def __post_init__(self) -> None:
        held, limit = self.submodel.values.numel(), self.budget.limit(self.submodel.maskable)
        if held > limit:
            raise BudgetError(
                f"client {self.client} in round {self.round}: {held} parameters exceed its budget "
                f"{self.budget.name} of {limit}; the extractor must select at most {limit}"
            )


@dataclass(frozen=True, eq=False)
class Update:
    """What training changed: trained minus received, on the task's entries alone.

    Values outside the mask cannot be said: they are listed in the order of the task's own index set.
    """

    round: int
    client: int
    token: int
    values: Tensor
    always: Tensor
    prototypes: Prototypes | None
    loss: float
    """Mean training loss over the steps."""
    classes: Tensor | None = None
    """Which classes the client's own training data have, where the objective tells."""
    extractor: Tensor | None = None
    """What training changed of φ and its classifier, where the task asks for it."""


@dataclass(frozen=True)
class Describe:
    """Ask a client for the descriptor of its data."""

    client: int
    seed: int
    """The same for every client: it names the shared random feature extractor."""
    features: bool = True
    """Whether the descriptor is wanted; where the method makes no use of it, the number of samples is enough."""
    extractor: Tensor | None = None
    """φ and its classifier as they have been trained; None: as they start."""


@dataclass(frozen=True, eq=False)
class Description:
    """A client's compact descriptor: the mean random feature of its training data (128 floats, or none)."""

    client: int
    vector: Tensor
    samples: int


@dataclass(frozen=True)
class Manner:
    """How exams are sat, the same for all of them."""

    batch: int
    own_classes: bool = False
    """Whether a client's logits of classes that its own training data do not have are set to 0."""
    static_norm: bool = False
    """Whether batch norms use statistics of training data, gathered in one pass, instead of each test batch's."""


@dataclass(frozen=True, eq=False)
class Exam:
    """Ask for the accuracy of a submodel on a client's own test data, or on everybody's (client None)."""

    submodel: Submodel
    client: int | None
    key: tuple[str, ...]
    """What the score will be filed under."""
    manner: Manner


@dataclass(frozen=True)
class Score:
    """How many test samples a submodel got right."""

    key: tuple[str, ...]
    correct: int
    total: int

    @property
    def accuracy(self) -> float:
        """Share of right answers; 0 where there was nothing to answer."""
        return self.correct / self.total if self.total else 0.0


Message = Describe | Task | Exam
Reply = Description | Update | Score
