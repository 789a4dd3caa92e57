"""A network whose layers hold the active entries of a mask alone: the full network never exists."""

import copy
from typing import Any

import numpy as np
from torch import Tensor, nn

from framp.errors import ModelError
from framp.execution.layers import ActiveConv2d, ActiveLayer, ActiveLinear, BatchNorm, MaxPool
from framp.execution.native import Kernels, kernels
from framp.layout import ParameterLayout
from framp.messages import Submodel
from framp.models import norm

#: A network of which this share is active, or more, is faster with full layers.
FULL_FROM = 0.3


class ActiveNetwork:
    """A copy of a user's network with its layers exchanged; what is not exchanged has the network's own parameters."""

    def __init__(self, whole: nn.Module, layout: ParameterLayout, found: Kernels) -> None:
        self._full = layout
        self._layers: dict[str, tuple[ActiveLayer, str]] = {}
        self._rest: dict[str, nn.Parameter] = {}
        names = {id(parameter): name for name, parameter in whole.named_parameters()}
        copies: dict[int, Any] = {id(parameter): parameter for parameter in whole.parameters()}
        for layer in whole.modules():
            other = _exchanged(layer, found)
            if other is not None:
                copies[id(layer)] = other
            for part, parameter in layer.named_parameters(recurse=False):
                if isinstance(other, ActiveLayer):
                    self._layers[names[id(parameter)]] = (other, part)
                else:
                    self._rest[names[id(parameter)]] = parameter
        self.module: nn.Module = copy.deepcopy(whole, copies)  # exchanged wherever it is referred to, in lists as well

    def hold(self, indices: Tensor, weights: Tensor, gradient: Tensor) -> None:
        """Make the layers views of vectors [active values | what always travels], for ascending indices."""
        full = self._full
        places = indices.numpy()
        ascending = bool((places[1:] > places[:-1]).all()) and (not len(places) or 0 <= places[0] <= places[-1])
        if places.dtype != np.int32 or not ascending or (len(places) and places[-1] >= full.maskable):
            raise ModelError(f"a submodel's indices are no ascending int32 vector below {full.maskable}; sort them")
        if len(weights) != len(indices) + full.size - full.maskable:
            raise ModelError(
                f"a submodel of {len(indices)} entries and {full.size - full.maskable} that always travel has "
                f"{len(weights)} values; send one for each"
            )
        bounds = [entry.start for entry in full.entries] + [full.maskable]
        ends = np.searchsorted(places, bounds).tolist()
        for number, entry in enumerate(full.entries):
            if entry.stop > full.maskable:
                start = len(indices) + entry.start - full.maskable
                parameter = self._rest[entry.name]
                parameter.grad = None
                parameter.data = weights[start : start + entry.stop - entry.start].view(entry.shape)
                parameter.grad = gradient[start : start + entry.stop - entry.start].view(entry.shape)
                continue
            first, last = ends[number], ends[number + 1]
            layer, part = self._layers[entry.name]
            hold = layer.hold if part == "weight" else layer.hold_bias
            hold(indices[first:last] - entry.start, weights[first:last], gradient[first:last])


def active_network(module: nn.Module, layout: ParameterLayout) -> ActiveNetwork | None:
    """Exchange the layers of a network; None where there are no kernels, or nothing that they are good for.

    The network must have convolutions, and each of its weights must belong to one layer that is known here. Hooks are
    given layers as they were, so a network with any is left alone, and so is one that cannot be copied.
    """
    found = kernels()
    below = {entry.name for entry in layout.entries if entry.stop <= layout.maskable}
    own: list[str] = []
    convolutions = 0
    for path, layer in module.named_modules():
        if _known(layer):
            own += [f"{path}.{name}" if path else name for name, _ in layer.named_parameters(recurse=False)]
            convolutions += isinstance(layer, nn.Conv2d)
    shared = len(list(module.named_parameters())) != len(list(module.named_parameters(remove_duplicate=False)))
    hooked = any(getattr(layer, name) for layer in module.modules() for name in _HOOKS)
    if found is None or not convolutions or set(own) != below or shared or hooked:
        return None
    try:
        return ActiveNetwork(module, layout, found)
    except Exception:  # of whatever kind a part raises that cannot be copied
        return None


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _known(layer: nn.Module) -> bool:
    if type(layer) is nn.Linear:
        return True
    if type(layer) is not nn.Conv2d or layer.groups != 1 or layer.padding_mode != "zeros":
        return False
    sizes = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    if any(isinstance(size, str) or size[0] != size[1] for size in sizes):
        return False
    if max(layer.in_channels, layer.out_channels) >= 1 << 16:  # either is the input of a pass
        return False
    return layer.dilation[0] == 1 and layer.padding[0] < layer.kernel_size[0] < 256  # type: ignore[operator]


def _exchanged(layer: nn.Module, found: Kernels) -> nn.Module | None:
    if type(layer) is nn.MaxPool2d and not layer.return_indices:
        return MaxPool(layer)
    if type(layer) in (nn.BatchNorm2d, norm.BatchNorm) and layer.affine and not layer.track_running_stats:
        return BatchNorm(layer, found)  # type: ignore[arg-type]
    if not _known(layer):
        return None
    return ActiveConv2d(layer, found) if isinstance(layer, nn.Conv2d) else ActiveLinear(layer)  # type: ignore[arg-type]


def pays(submodel: Submodel) -> bool:
    """Tell whether so few entries are active that layers of active entries pay."""
    return (
        submodel.shapes is None
        and submodel.indices is not None
        and (len(submodel.indices) < FULL_FROM * submodel.maskable)
    )
