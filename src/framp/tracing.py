"""Reads a network's structure off one run of it.

Each operation of the run tells how its output's channels follow from its input's; one that is not known here is an
error that names it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from framp.data.kinds import Kind
from framp.errors import ModelError
from framp.layout import ParameterLayout
from framp.structure import Axis, Segment, Structure

Run = Callable[[nn.Module, Any], list[Tensor]]
"""Runs a network on samples, and returns the logits of each of its exits."""


def trace(module: nn.Module, layout: ParameterLayout, kind: Kind, run: Run | None = None) -> Structure:
    """Run a network on blank samples and read its channel structure off; `run` may do so in another way than usual."""
    module.eval()
    inputs = kind.blank(layout.dtype)
    recorder = _Recorder(module, kind.entrance(inputs))
    with torch.no_grad(), recorder:
        logits = [module.head(module.features(inputs))] if run is None else run(module, inputs)  # type: ignore[operator]
    return recorder.structure(layout, logits)


def _whole(size: int) -> Axis:
    return (Segment(None, size),)


_SAME = {
    *("relu", "relu_", "leaky_relu", "gelu", "silu", "silu_", "elu", "sigmoid", "tanh", "hardtanh", "hardtanh_"),
    *("hardswish", "hardswish_", "hardsigmoid", "softplus", "mish", "abs", "neg", "clone", "detach", "_to_copy"),
    *("max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d", "adaptive_max_pool2d", "upsample_nearest2d"),
    *("native_dropout", "dropout", "alias", "contiguous", "pow", "sqrt", "constant_pad_nd"),
}
_ROWS = {"index_select": 0, "index": 0, "scatter_add": 3, "scatter_add_": 3, "index_add": 3, "index_add_": 3}
"""Operations that choose or sum rows, and which of their arguments has the channels."""
_NEW = {"new_zeros", "new_ones", "new_empty", "zeros_like", "ones_like", "empty_like"}
"""Operations that take nothing but the size from their argument."""
_PAIRS = {"add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "maximum", "minimum"}
_BATCH_NORMS = {
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_batch_norm_no_update",
    "_native_batch_norm_legit_no_training",
}
_VIEWS = {"view", "_unsafe_view", "reshape", "squeeze", "unsqueeze"}


@dataclass
class _Label:
    """What is known of a tensor: which dimension has the channels, and what they are."""

    tensor: Tensor  # kept alive, for its identity is the key
    axis: list[Segment] = field(default_factory=list)
    dimension: int = 1
    weight: int | None = None
    """For a parameter seen transposed: its own identity."""


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches the operations of a run."""

    def __init__(self, module: nn.Module, entrance: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._module = type(module).__name__
        self._parameters = {id(parameter): parameter for parameter in module.parameters()}
        self._names = {id(parameter): name for name, parameter in module.named_parameters()}
        self._axes: dict[int, list[list[Segment]]] = {}
        self._sizes: list[int] = []
        self._parents: list[int | None] = []
        self._labels: dict[int, _Label] = {id(entrance): _Label(entrance, [Segment(None, entrance.shape[1])])}
        self._transposed: dict[int, tuple[Tensor, int]] = {}

    def structure(self, layout: ParameterLayout, logits: list[Tensor]) -> Structure:
        """Put together what was seen."""
        last = {self._outputs(exit) for exit in logits}
        groups: dict[int, int] = {}
        by_name = {name: key for key, name in self._names.items()}
        axes, used, classes = [], [], []
        for entry in layout.entries:
            seen = self._axes.get(by_name[entry.name])
            used.append(seen is not None)
            found: list[Axis] = []
            of_classes: int | None = None
            for dimension, size in enumerate(entry.shape):
                axis: list[Segment] = []
                for segment in [] if seen is None else seen[dimension]:
                    root = None if segment.group is None else self._root(segment.group)
                    if root in last:
                        of_classes, root = dimension, None
                    number = None if root is None else groups.setdefault(root, len(groups))
                    axis.append(Segment(number, segment.channels, segment.block))
                found.append(tuple(axis) or _whole(size))
            axes.append(tuple(found))
            classes.append(of_classes)
        return Structure(tuple(self._sizes[root] for root in groups), tuple(axes), tuple(used), tuple(classes))

    def _outputs(self, logits: Tensor) -> int:
        """Return the group of the channels that are the classes."""
        label = self._labels.get(id(logits))
        root = None
        if label is not None and label.dimension == 1 and len(label.axis) == 1 and label.axis[0].group is not None:
            root = self._root(label.axis[0].group)
        if root is None:
            raise self._unknown("the classes are not the output of one last layer")
        return root

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        first = result[0] if isinstance(result, tuple | list) else result
        if isinstance(first, Tensor):
            self._see(name, args, kwargs or {}, first)
        return result

    def _see(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> None:
        if name in ("t", "transpose", "permute") and id(args[0]) in self._parameters and result.ndim == 2:
            self._transposed[id(result)] = (result, id(args[0]))
            return
        tensors = [argument for argument in _flattened(args) if isinstance(argument, Tensor)]
        if name in _NEW or not any(id(tensor) in self._labels for tensor in tensors):
            for tensor in tensors:
                self._touch(tensor)
            return
        if name == "convolution":
            self._convolution(args, result)
        elif name in _ROWS:
            self._rows(name, args, result)
        elif name == "mm" and id(args[0]) not in self._labels:
            self._rows_of_sums(args, result)
        elif name in ("addmm", "mm", "linear"):
            self._linear(name, args, result)
        elif name in _BATCH_NORMS or name in ("native_group_norm", "native_layer_norm"):
            self._norm(name, args, result)
        elif name in _PAIRS:
            self._pair(args, result)
        elif name in _SAME:
            self._keep(args[0], result)
        elif name in ("mean", "sum", "amax"):
            self._reduce(name, args, result)
        elif name in _VIEWS:
            self._view(args[0], result)
        elif name == "cat":
            self._cat(args, kwargs, result)
        else:
            raise self._unknown(f"operation '{name}' is not known")

    def _unknown(self, why: str) -> ModelError:
        return ModelError(
            f"the channels of {self._module} cannot be traced: {why}; "
            "methods that cut widths need a network of convolutions, norms, sums and linear layers; take a TopK method"
        )

    # groups

    def _new(self, size: int) -> Segment:
        self._sizes.append(size)
        self._parents.append(len(self._sizes) - 1)
        return Segment(len(self._sizes) - 1, size)

    def _root(self, group: int) -> int | None:
        while (parent := self._parents[group]) is not None and parent != group:
            group = parent
        return group if parent is not None else None

    def _unify(self, one: list[Segment], other: list[Segment]) -> None:
        if [(segment.channels, segment.block) for segment in one] != [(s.channels, s.block) for s in other]:
            raise self._unknown("tensors of differently made channels are added or multiplied")
        for left, right in zip(one, other, strict=True):
            roots = [None if segment.group is None else self._root(segment.group) for segment in (left, right)]
            real = [root for root in roots if root is not None]
            if len(real) == 2:
                self._parents[max(real)] = min(real)
            elif len(real) == 1:
                self._parents[real[0]] = None  # what is tied to something that is never cut is never cut

    # operations

    def _label(self, tensor: Tensor) -> _Label:
        label = self._labels.get(id(tensor))
        if label is None:
            raise self._unknown("a layer's input does not follow from the samples")
        return label

    def _set(self, result: Tensor, axis: list[Segment], dimension: int = 1) -> None:
        self._labels[id(result)] = _Label(result, axis, dimension)

    def _keep(self, tensor: Tensor, result: Tensor) -> None:
        label = self._label(tensor)
        if tensor.shape[label.dimension] != result.shape[label.dimension]:
            raise self._unknown("channels are padded or cropped")
        self._set(result, label.axis, label.dimension)

    def _rows(self, name: str, args: tuple[Any, ...], result: Tensor) -> None:
        """Choose or sum some of the places of another dimension than the channels'."""
        values = args[_ROWS[name]]
        label = self._label(values)
        dimensions = (
            [place for place, index in enumerate(args[1]) if index is not None] if name == "index" else [args[1]]
        )
        if any(dimension % values.ndim == label.dimension for dimension in dimensions) or result.ndim != values.ndim:
            raise self._unknown(f"operation '{name}' chooses among the channels")
        if args[0] is not values and id(args[0]) in self._labels:
            self._unify(label.axis, self._label(args[0]).axis)  # rows are added to features that are there already
        self._keep(values, result)

    def _rows_of_sums(self, args: tuple[Any, ...], result: Tensor) -> None:
        """Take a neighbourhood's sums: a matrix that is no parameter times the samples' features."""
        label = self._label(args[1])
        if id(args[0]) in self._parameters or id(args[0]) in self._transposed or label.dimension != 1:
            raise self._unknown("a parameter is multiplied from the left")
        self._keep(args[1], result)

    def _parameter(self, tensor: Tensor | None, axes: list[list[Segment]]) -> None:
        """Note what lies along a parameter's dimensions; a parameter used twice ties both uses together."""
        if tensor is None or id(tensor) not in self._parameters:
            return
        known = self._axes.setdefault(id(tensor), axes)
        for one, other in zip(known, axes, strict=True):
            if one is not other:
                self._unify(one, other)

    def _touch(self, tensor: Tensor) -> None:
        """Note a parameter that is used in a way that says nothing about channels: it is never cut."""
        if id(tensor) in self._parameters:
            self._parameter(tensor, [[Segment(None, size)] for size in tensor.shape])

    def _convolution(self, args: tuple[Any, ...], result: Tensor) -> None:
        images, weight, bias, transposed, groups = args[0], args[1], args[2], args[6], args[8]
        if id(weight) not in self._parameters:
            raise self._unknown("a convolution's weights are no parameter but computed")
        axis = self._label(images).axis
        rest = [[Segment(None, size)] for size in weight.shape[2:]]
        if groups == 1:
            out = [self._new(result.shape[1])]
            self._parameter(weight, [axis, out, *rest] if transposed else [out, axis, *rest])
        elif weight.shape[1] == 1 and groups == images.shape[1] and not transposed:
            times = result.shape[1] // groups
            out = [Segment(segment.group, segment.channels, segment.block * times) for segment in axis]
            self._parameter(weight, [out, [Segment(None, 1)], *rest])
        else:
            raise self._unknown("a convolution has groups of several channels")
        self._parameter(bias, [out])
        self._set(result, out)

    def _linear(self, name: str, args: tuple[Any, ...], result: Tensor) -> None:
        bias, inputs, weight = args if name == "addmm" else (None, *args[:2])
        if name == "linear":
            inputs, weight, bias = args[0], args[1], args[2] if len(args) > 2 else None
        held = self._transposed.get(id(weight))
        parameter = self._parameters.get(held[1] if held else id(weight))
        if parameter is None:
            raise self._unknown("features are multiplied by something that is no parameter")
        label = self._label(inputs)
        if label.dimension != inputs.ndim - 1:
            raise self._unknown("a linear layer works along another dimension than the channels'")
        out = [self._new(result.shape[-1])]
        plain = held is not None or name == "linear"
        self._parameter(parameter, [out, label.axis] if plain else [label.axis, out])
        self._parameter(bias, [out])
        self._set(result, out, result.ndim - 1)

    def _norm(self, name: str, args: tuple[Any, ...], result: Tensor) -> None:
        label = self._label(args[0])
        if name == "native_layer_norm" and (len(args[1]) > 1 or label.dimension != args[0].ndim - 1):
            raise self._unknown("a layer norm works along other dimensions than the channels'")
        weight, bias = (args[2], args[3]) if name == "native_layer_norm" else (args[1], args[2])
        for tensor in (weight, bias):
            self._parameter(tensor, [label.axis])
        self._keep(args[0], result)

    def _pair(self, args: tuple[Any, ...], result: Tensor) -> None:
        labelled = [argument for argument in args[:2] if isinstance(argument, Tensor) and id(argument) in self._labels]
        label = self._label(labelled[0])
        for other in (argument for argument in args[:2] if isinstance(argument, Tensor)):
            if other is labelled[0]:
                continue
            if id(other) in self._labels:
                self._unify(label.axis, self._label(other).axis)
            elif id(other) in self._parameters:
                place = label.dimension - (result.ndim - other.ndim)
                axes = [[Segment(None, size)] for size in other.shape]
                if 0 <= place < other.ndim and other.shape[place] == result.shape[label.dimension]:
                    axes[place] = label.axis
                self._parameter(other, axes)
            elif not _alike(other, label.dimension - result.ndim):
                raise self._unknown("features are added to something that does not follow from the samples")
        self._set(result, label.axis, label.dimension)

    def _reduce(self, name: str, args: tuple[Any, ...], result: Tensor) -> None:
        label = self._label(args[0])
        dimensions = args[1] if len(args) > 1 and args[1] is not None else range(args[0].ndim)
        dimensions = {
            dimension % args[0].ndim for dimension in ([dimensions] if isinstance(dimensions, int) else dimensions)
        }
        if label.dimension in dimensions:
            raise self._unknown(f"operation '{name}' mixes the channels")
        gone = 0 if result.ndim == args[0].ndim else sum(dimension < label.dimension for dimension in dimensions)
        self._set(result, label.axis, label.dimension - gone)

    def _view(self, tensor: Tensor, result: Tensor) -> None:
        label = self._label(tensor)
        places = tensor.shape[label.dimension]
        if label.dimension == 1 and result.ndim >= 2 and result.shape[0] == tensor.shape[0]:
            times, rest = divmod(result.shape[1], places)
            if rest == 0 and times >= 1 and (times == 1 or result.ndim == 2):
                blocks = [Segment(s.group, s.channels, s.block * times) for s in label.axis]
                self._set(result, blocks)
                return
        raise self._unknown(f"a view turns {tuple(tensor.shape)} into {tuple(result.shape)}")

    def _cat(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> None:
        dimension = (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % result.ndim
        labels = [self._label(tensor) for tensor in args[0]]
        if dimension == labels[0].dimension:
            self._set(result, [segment for label in labels for segment in label.axis], dimension)
            return
        for label in labels[1:]:
            self._unify(labels[0].axis, label.axis)
        self._keep(args[0][0], result)


def _alike(tensor: Tensor, dimension: int) -> bool:
    """Tell whether a tensor is the same for all places of a dimension, counted from the last, of what it meets."""
    return (
        tensor.numel() == 1 or tensor.ndim < -dimension or 0 in (tensor.shape[dimension] - 1, tensor.stride(dimension))
    )


def _flattened(args: Sequence[Any]) -> list[Any]:
    return [item for argument in args for item in (argument if isinstance(argument, list | tuple) else [argument])]
