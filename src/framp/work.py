"""The work of a network's weights: how many multiply-adds each entry costs for one sample, read off one run.

A sample is an image, or one node of a graph. An entry of a convolution is used at each position of the output, one of a
linear layer once. A bias only adds, so it costs nothing, and neither does what has no weights (norms, pooling, the step
to a graph's neighbours). All entries of a tensor cost the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from framp.data.kinds import Kind
from framp.errors import ModelError
from framp.layout import Entry, ParameterLayout


@dataclass(frozen=True)
class Work:
    """What the maskable tensors cost."""

    entries: tuple[Entry, ...]
    uses: tuple[int, ...]
    """Of each tensor, the multiply-adds of one of its entries for one sample, rounded up."""

    @cached_property
    def total(self) -> int:
        """The multiply-adds of the full network for one sample."""
        return sum(uses * (entry.stop - entry.start) for entry, uses in zip(self.entries, self.uses, strict=True))

    def of(self, indices: Tensor | None) -> int:
        """Return the multiply-adds of some entries (ascending; None: all of them) for one sample."""
        if indices is None:
            return self.total
        return int(self._counts(indices.numpy()) @ np.array(self.uses, dtype=np.int64))

    def share(self, indices: Tensor | None) -> float:
        """Return which fraction of the full network's multiply-adds some entries cost; 0 where it has none."""
        return self.of(indices) / self.total if self.total else 0.0

    def each(self, indices: np.ndarray) -> np.ndarray:
        """Return what each of some entries (ascending) costs."""
        return np.repeat(np.array(self.uses, dtype=np.int64), self._counts(indices))

    def _counts(self, indices: np.ndarray) -> np.ndarray:
        """Return how many of some entries each tensor has."""
        return np.diff(np.searchsorted(indices, [entry.stop for entry in self.entries]), prepend=0)


def work_of(module: nn.Module, layout: ParameterLayout, kind: Kind) -> Work:
    """Run a network on blank samples, all of its exits if it has several, and read off how its weights are used."""
    module.eval()
    inputs = kind.blank(layout.dtype)
    recorder = _Recorder(module, kind.entrance(inputs))
    with torch.enable_grad(), recorder:  # without gradients, attention would be one operation
        run_exits(module, inputs)
    samples = kind.entrance(inputs).shape[0]
    entries = tuple(entry for entry in layout.entries if entry.stop <= layout.maskable)
    return Work(entries, tuple(ceil(recorder.uses(entry.name) / samples) for entry in entries))


def run_exits(module: nn.Module, inputs: Any) -> list[Tensor]:
    """Return the logits of each of a network's exits."""
    exits: Callable[[Any], list[Tensor]] | None = getattr(module, "exit_logits", None)
    return [module.head(module.features(inputs))] if exits is None else exits(inputs)  # type: ignore[operator]


_PRODUCTS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "linear": (0, 1)}
"""Operations that multiply matrices, and which of their arguments those are."""
_VIEWS = {
    *("t", "transpose", "permute", "view", "_unsafe_view", "reshape", "expand", "squeeze", "unsqueeze", "detach"),
    *("alias", "clone", "contiguous", "_to_copy", "slice", "select", "split", "split_with_sizes", "unbind", "narrow"),
}
"""Operations that return what they are given, or parts of it."""
_FREE = {"embedding", "index_select", "index", "add", "add_", "sub", "cat", "new_zeros", "zeros_like", "empty_like"}
"""Operations without multiplications."""
_PRODUCTS_BY_ENTRY = {"mul", "mul_", "div"}


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts how often a network's weights are used."""

    def __init__(self, module: nn.Module, entrance: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._module = type(module).__name__
        self._names = {id(parameter): name for name, parameter in module.named_parameters()}
        self._sizes = {name: parameter.numel() for name, parameter in module.named_parameters()}
        self._products = dict.fromkeys(self._sizes, 0)
        # tensors are kept alive, for their identity is the key
        self._views: dict[int, tuple[Tensor, str]] = {}
        self._samples: dict[int, Tensor] = {id(entrance): entrance}
        """What follows from the samples."""
        self._computed: dict[int, Tensor] = {}
        """What follows from parameters alone."""

    def uses(self, name: str) -> Fraction:
        """Return how many multiply-adds an entry of a parameter took part in, on average."""
        return Fraction(self._products[name], max(self._sizes[name], 1))

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        results = [part for part in _flattened([result]) if isinstance(part, Tensor)]
        tensors = [part for part in _flattened(args) if isinstance(part, Tensor)]
        if name in _VIEWS and (source := self._name(args[0])) is not None:
            self._views |= {id(part): (part, source) for part in results}
            return result
        if any(self._name(tensor) for tensor in tensors):
            self._count(name, args, tensors, result)
        multiplies = name == "convolution" or name in _PRODUCTS
        if multiplies and any(id(tensor) in self._computed for tensor in tensors):
            raise self._unknown("weights are no parameter but computed")
        if any(id(tensor) in self._samples for tensor in tensors):
            self._samples |= {id(part): part for part in results}
        elif any(id(tensor) in self._computed or self._name(tensor) for tensor in tensors):
            self._computed |= {id(part): part for part in results}
        return result

    def _name(self, value: Tensor) -> str | None:
        """Return which parameter a tensor is, or a view of."""
        return self._names.get(id(value)) or self._views.get(id(value), (value, None))[1]

    def _unknown(self, why: str) -> ModelError:
        return ModelError(
            f"the work of {self._module} cannot be counted: {why}; "
            "take a method whose budget is of parameters alone, such as framp"
        )

    def _count(self, name: str, args: tuple[Any, ...], tensors: list[Tensor], result: Any) -> None:
        if name == "convolution":
            transposed, weight = args[6], args[1]
            uses = (args[0] if transposed else result).numel() // max(weight.shape[0], 1)
            self._add(weight, uses * weight.numel())
        elif name in _PRODUCTS:
            left, right = (args[place] for place in _PRODUCTS[name])
            for factor in (left, right):
                self._add(factor, result.numel() * left.shape[-1])
        elif name in _PRODUCTS_BY_ENTRY:
            for factor in tensors[:2]:
                self._add(factor, result.numel())
        elif name not in _FREE and any(self._name(tensor) and tensor.ndim >= 2 for tensor in tensors):
            raise self._unknown(f"operation '{name}' on a weight is not known")

    def _add(self, factor: Tensor, products: int) -> None:
        name = self._name(factor)
        if name is not None:
            self._products[name] += products


def _flattened(args: Any) -> list[Any]:
    return [item for argument in args for item in (argument if isinstance(argument, list | tuple) else [argument])]
