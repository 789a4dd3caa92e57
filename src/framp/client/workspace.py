"""The one copy of the model that a process works on, whichever clients it plays."""

import torch

from framp.layout import ParameterLayout
from framp.messages import Submodel
from framp.models import Architecture, blank


class Workspace:
    """A model whose parameters and gradients are views of two flat vectors."""

    def __init__(self, architecture: Architecture, classes: int) -> None:
        self.model = blank(architecture)
        self.classes = classes
        self.layout = ParameterLayout.of(self.model)
        self.weights = torch.zeros(self.layout.size, dtype=self.layout.dtype)
        self.gradient = torch.zeros_like(self.weights)
        self.layout.bind(self.model, self.weights, self.gradient)
        self._buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}

    @torch.no_grad()
    def load(self, submodel: Submodel) -> None:
        """Make the model a client's submodel, with nothing left of the client before."""
        submodel.fill(self.weights)
        for name, buffer in self.model.named_buffers():
            buffer.copy_(self._buffers[name])
