"""The one copy of the model that a process works on, whichever clients it plays."""

import torch

from framp.layout import ParameterLayout
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
