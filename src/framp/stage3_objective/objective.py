"""The contract of stage 3: what a client minimises on its submodel."""

from typing import ClassVar, Protocol

from torch import Tensor, nn

from framp.messages import Prototypes, Submodel


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

    def loss(self, model: nn.Module, images: Tensor, labels: Tensor, prototypes: Prototypes | None) -> Tensor:
        """Return the loss of one mini-batch."""

    def reparametrise(self, submodel: Submodel) -> Reparametrisation | None:
        """Return how what the network sees follows from the trained weights; None: it sees them as they are."""
