"""The one model that a process works on, whichever clients it plays."""

import torch
from torch import Tensor

from framp.execution import ActiveNetwork, active_network, pays
from framp.layout import ParameterLayout, release
from framp.messages import Submodel
from framp.models import Architecture, blank


class Workspace:
    """A model whose parameters and gradients are views of two flat vectors, as large as the submodel at hand needs."""

    def __init__(self, architecture: Architecture, classes: int, active: bool = True) -> None:
        self.model = self._whole = blank(architecture)
        self.classes = classes
        self.full = ParameterLayout.of(self.model)
        self.layout = self.full
        self._buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        self._active = active_network(self._whole, self.full) if active else None
        self.weights: Tensor
        self._bind(self.full)

    @torch.no_grad()
    def load(self, submodel: Submodel) -> Submodel:
        """Make the model a client's submodel, with nothing left of the client before; return what the weights hold.

        Where layers of active entries pay, that is the entries alone: a submodel that has nothing outside it.
        """
        if self._active is not None and pays(submodel):
            submodel = self._hold(self._active, submodel)
        else:
            layout = submodel.layout(self.full)
            if layout != self.layout or self.model is not self._whole:
                self._bind(layout)
            submodel.fill(self.weights)
        for name, buffer in self.model.named_buffers():
            buffer.copy_(self._buffers[name])
        return submodel

    def _hold(self, network: ActiveNetwork, submodel: Submodel) -> Submodel:
        assert submodel.indices is not None
        if self.model is self._whole:
            release(self._whole)  # the full network need not exist beside its active entries
        self.model = network.module
        self.weights = torch.cat([submodel.values, submodel.always])
        self.gradient = torch.zeros_like(self.weights)
        network.hold(submodel.indices, self.weights, self.gradient)
        return Submodel(len(submodel.values), None, submodel.values, submodel.always)

    def _bind(self, layout: ParameterLayout) -> None:
        """Work on vectors of some layout; a smaller network's cost less to hold and to train."""
        self.model, self.layout = self._whole, layout
        self.weights = torch.zeros(layout.size, dtype=layout.dtype)
        self.gradient = torch.zeros_like(self.weights)
        layout.bind(self.model, self.weights, self.gradient)
