"""The flat parameter layout: one vector for the whole model, maskable entries first.

    vector = [ maskable: layers with weight matrices, their biases too | always: norm affine, bare scales ]
               0 ... maskable                                            maskable ... size

A width slice, a depth cut and a TopK mask are all sets of indices below `maskable`; what lies above travels with
every submodel and is never counted. Tensors are views of the vector, never copies.
"""

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from framp.errors import ModelError

Shapes = tuple[tuple[int, ...] | None, ...]
"""The shape of each entry's part in a smaller network; None for an entry that it does not have."""

_NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
_DTYPES = (torch.float32, torch.float64)
"""What the server computes with."""
_LARGEST = 2**31 - 1
"""Indices are int32."""


@dataclass(frozen=True)
class Entry:
    """One named tensor and its place in the vector."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        """The end of the tensor's place."""
        return self.start + prod(self.shape)


@dataclass(frozen=True)
class ParameterLayout:
    """Where each parameter of a model lies in its flat vector."""

    entries: tuple[Entry, ...]
    maskable: int
    size: int
    dtype: torch.dtype

    @classmethod
    def of(cls, module: nn.Module) -> "ParameterLayout":
        """Read the layout off a model."""
        _refuse_running_statistics(module)
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        first = [
            parameter for part in module.modules() if _has_weights(part) for parameter in part.parameters(recurse=False)
        ]
        maskable = list(dict.fromkeys(id(parameter) for parameter in first))
        by_identity = {id(parameter): parameter for parameter in module.parameters()}
        always = [key for key in by_identity if key not in set(maskable)]
        if not maskable:
            raise ModelError("the model has no layer with a weight matrix, so there is nothing to extract from")
        entries: list[Entry] = []
        start = 0
        for key in maskable + always:
            entries.append(Entry(names[key], tuple(by_identity[key].shape), start))
            start = entries[-1].stop
        if start > _LARGEST:
            raise ModelError(f"the model has {start} parameters; more than {_LARGEST} cannot be numbered")
        dtypes = {parameter.dtype for parameter in by_identity.values()}
        if len(dtypes) != 1:
            raise ModelError(f"the model mixes parameter types {sorted(map(str, dtypes))}; convert it to one of them")
        (dtype,) = dtypes
        if dtype not in _DTYPES:
            raise ModelError(f"the model's parameters are {dtype}; convert it with .float() or .double()")
        return cls(tuple(entries), entries[len(maskable) - 1].stop, start, dtype)

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """Return the named tensors of a flat vector, as views."""
        return {entry.name: vector[entry.start : entry.stop].view(entry.shape) for entry in self.entries}

    def flatten(self, module: nn.Module) -> Tensor:
        """Copy a model's parameters into a new flat vector."""
        vector = torch.empty(self.size, dtype=self.dtype)
        views = self.views(vector)
        for name, parameter in module.named_parameters():
            views[name].copy_(parameter.detach())
        return vector

    def part(self, shapes: Shapes) -> "ParameterLayout":
        """Return the layout of the smaller network whose entries have some shapes."""
        entries: list[Entry] = []
        maskable = start = 0
        for whole, shape in zip(self.entries, shapes, strict=True):
            if shape is not None:
                entries.append(Entry(whole.name, shape, start))
                start = entries[-1].stop
                maskable = start if whole.stop <= self.maskable else maskable
        return ParameterLayout(tuple(entries), maskable, start, self.dtype)

    def bind(self, module: nn.Module, vector: Tensor, gradient: Tensor | None = None) -> None:
        """Make a model's parameters (and gradients) views of flat vectors: what changes in one changes in both.

        Layers take on the sizes of what they are bound to; a parameter that the layout does not have becomes empty.
        """
        values = self.views(vector)
        gradients = {} if gradient is None else self.views(gradient)
        for name, parameter in module.named_parameters():
            parameter.grad = None
            parameter.data = values.get(name, vector[:0])
            parameter.grad = gradients.get(name)
        for layer in module.modules():
            _resize(layer)
        if callable(adopt := getattr(module, "adopt", None)):  # a network that can do without some of its parts
            adopt(set(values))


def release(module: nn.Module) -> None:
    """Let go of the memory of a model's parameters and gradients; to be bound again before it is used."""
    for parameter in module.parameters():
        parameter.grad = None
        parameter.data = parameter.data.new_empty(0)


def _resize(layer: nn.Module) -> None:
    """Bring a layer's own numbers into line with its parameters' shapes."""
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor) or not weight.numel():
        return
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        groups, outputs = layer.__dict__.setdefault("_whole", (layer.groups, layer.out_channels))
        layer.groups = 1 if groups == 1 else groups * weight.shape[0] // outputs
        layer.out_channels, layer.in_channels = weight.shape[0], weight.shape[1] * layer.groups
    elif isinstance(layer, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        layer.in_channels, layer.out_channels = weight.shape[:2]
    elif isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = weight.shape
    elif isinstance(layer, nn.modules.batchnorm._NormBase):
        layer.num_features = weight.shape[0]
    elif isinstance(layer, nn.GroupNorm):
        layer.num_channels = weight.shape[0]
    elif isinstance(layer, nn.LayerNorm | nn.RMSNorm):
        layer.normalized_shape = tuple(weight.shape)


def _has_weights(part: nn.Module) -> bool:
    """Tell whether a layer multiplies by weights, as convolutions, linear layers, attention or embeddings do."""
    own = part.parameters(recurse=False)
    return not isinstance(part, _NORMS) and any(parameter.ndim >= 2 for parameter in own)


def _refuse_running_statistics(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if getattr(part, "track_running_stats", False):
            raise ModelError(
                f"layer '{name}' keeps running statistics, which cannot be generated or merged; "
                "pass track_running_stats=False or use GroupNorm"
            )
