"""The contract of stage 3: what a client minimises on its submodel."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from torch import Tensor, nn

from framp.messages import Prototypes, Submodel


@dataclass(frozen=True, eq=False)
class Known:
    """What a client knows beside the mini-batch."""

    prototypes: Prototypes | None
    """The global prototypes; None before there are any, or where the objective does not use them."""
    classes: Tensor
    """[classes]: which of them the client's own training data have."""


class Reparametrisation(Protocol):
    """A network that sees something other than the weights that are trained."""

    def shown(self, weights: Tensor, out: Tensor) -> None:
        """Write what the forward pass sees."""

    def gradient(self, weights: Tensor, gradient: Tensor) -> None:
        """Turn the gradient of what was shown into that of the weights, in place."""


class Objective(Protocol):
    """What a client minimises. Objectives are frozen records of plain fields: they travel inside a task."""

    uses_prototypes: ClassVar[bool]
    """Whether prototypes go down with the task and up with the update."""
    tells_classes: ClassVar[bool]
    """Whether the update says which classes the client has: the output layer learns from those alone."""

    def in_round(self, round: int) -> "Objective":
        """Return the objective of a round."""

    def loss(self, model: nn.Module, inputs: Any, labels: Tensor, known: Known) -> Tensor:
        """Return the loss of one mini-batch."""

    def reparametrise(self, submodel: Submodel) -> Reparametrisation | None:
        """Return how what the network sees follows from the trained weights; None: it sees them as they are."""


class Plain:
    """What most objectives have in common: no prototypes, the same in each round, the weights seen as they are."""

    uses_prototypes: ClassVar[bool] = False
    tells_classes: ClassVar[bool] = False

    def in_round(self, round: int) -> Self:
        """Stay the same."""
        return self

    def reparametrise(self, submodel: Submodel) -> Reparametrisation | None:
        """Show the weights as they are."""
        return None
