"""How many bytes of tensors a network keeps alive at once, while it trains or is put to use.

The passes run on torch's meta device, which knows shapes and computes nothing; a graph's run for real.
"""

import weakref
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from framp.data.kinds import Images, Kind
from framp.layout import ParameterLayout, Shapes
from framp.models import Architecture, blank
from framp.work import run_exits


@dataclass(frozen=True)
class Footprint:
    """What a network, or the smaller one of some shapes, keeps alive beside its parameters and their gradients."""

    architecture: Architecture
    kind: Kind
    shapes: Shapes | None = None
    _peaks: dict[tuple[bool, int], int] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def _network(self) -> tuple[torch.nn.Module, ParameterLayout, torch.device]:
        module = blank(self.architecture)
        device = torch.device("meta" if isinstance(self.kind, Images) else "cpu")
        full = ParameterLayout.of(module)
        layout = full if self.shapes is None else full.part(self.shapes)
        vector = torch.zeros(layout.size, dtype=layout.dtype, device=device)
        module.to(device)
        layout.bind(module, vector, torch.zeros_like(vector))
        return module, layout, device

    def training(self, samples: int) -> int:
        """Return the peak of a forward and a backward pass over a batch, the batch included."""
        return self._peak(samples, True)

    def use(self, samples: int) -> int:
        """Return the peak of a forward pass over a batch without gradients, the batch included."""
        return self._peak(samples, False)

    def largest_parameter(self) -> int:
        """Return the bytes of the largest tensor of weights."""
        return max(parameter.nbytes for parameter in self._network[0].parameters())

    def _peak(self, samples: int, trained: bool) -> int:
        if (trained, samples) not in self._peaks:
            module, layout, device = self._network
            module.train(trained)
            inputs, own = self._batch(samples, layout.dtype, device)
            live = _Live(own)
            with live, torch.set_grad_enabled(trained), torch.random.fork_rng(devices=[]):
                logits = run_exits(module, inputs)
                if trained:
                    labels = torch.zeros(samples, dtype=torch.int64, device=device)
                    losses = [functional.cross_entropy(exit, labels) for exit in logits]
                    torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
            self._peaks[trained, samples] = live.peak
        return self._peaks[trained, samples]

    def _batch(self, samples: int, dtype: torch.dtype, device: torch.device) -> tuple[Any, int]:
        """Return blank samples, and their bytes: those of a graph lie with the client in any case."""
        if isinstance(self.kind, Images):
            images = self.kind.blank(dtype, samples).to(device).to(memory_format=torch.channels_last)
            return images, images.nbytes
        return self.kind.blank(dtype, samples), 0


class _Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the storages that operations make, until they are given back."""

    def __init__(self, own: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = own
        self._known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        self._see(args, known=True)
        result = function(*args, **(kwargs or {}))
        self._see(result if isinstance(result, list | tuple) else (result,), known=False)
        self.peak = max(self.peak, self.now)
        return result

    def _see(self, values: Any, known: bool) -> None:
        """Note new storages; those that an operation is given without having been made here cost nothing."""
        for value in values:
            if isinstance(value, list | tuple):
                self._see(value, known)
            elif isinstance(value, Tensor) and value.layout == torch.strided:
                storage = value.untyped_storage()
                key = storage._cdata
                if key in self._known:
                    continue
                self._known.add(key)
                held = 0 if known else storage.nbytes()
                self.now += held
                weakref.finalize(storage, self._gone, key, held)

    def _gone(self, key: int, held: int) -> None:
        self._known.discard(key)
        self.now -= held
