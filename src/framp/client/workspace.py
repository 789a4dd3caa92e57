"""The one model that a process works on, whichever clients it plays."""

import torch
from torch import Tensor

from framp.layout import ParameterLayout
from framp.messages import Submodel
from framp.models import Architecture, blank


class Workspace:
    """A model whose parameters and gradients are views of two flat vectors, as large as the submodel at hand needs."""

    def __init__(self, architecture: Architecture, classes: int) -> None:
        self.model = blank(architecture)
        self.classes = classes
        self.full = ParameterLayout.of(self.model)
        self.layout = self.full
        self._buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        self._bind(self.full)

    @torch.no_grad()
    def load(self, submodel: Submodel) -> None:
        """Make the model a client's submodel, with nothing left of the client before."""
        layout = submodel.layout(self.full)
        if layout != self.layout:
            self._bind(layout)
        submodel.fill(self.weights)
        for name, buffer in self.model.named_buffers():
            buffer.copy_(self._buffers[name])

    def _bind(self, layout: ParameterLayout) -> None:
        """Work on vectors of some layout; a smaller network's cost less to hold and to train."""
        self.layout = layout
        self.weights: Tensor = torch.zeros(layout.size, dtype=layout.dtype)
        self.gradient = torch.zeros_like(self.weights)
        layout.bind(self.model, self.weights, self.gradient)
