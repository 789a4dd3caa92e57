"""Error feedback: what quantising an update lost is added to the client's next one before that is quantised.

It is the sender's state, held by whoever encodes a client's updates. A residual waits until its entry is held again; of
a smaller network, whose entries the client cannot name, it is dropped when the shapes change.
"""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from torch import Tensor

from framp.layout import ParameterLayout, Shapes
from framp.messages import Submodel, Update
from framp.wire.message import decode, encode


@dataclass(frozen=True, eq=False)
class _Residual:
    shapes: Shapes | None
    entries: np.ndarray
    values: Tensor
    always: Tensor


@final
class ErrorFeedback:
    """The residuals of some clients' updates."""

    def __init__(self, layout: ParameterLayout | None = None, values: str = "int8") -> None:
        self._layout, self._coding = layout, values
        self._residuals: dict[int, _Residual] = {}

    def encode(self, update: Update, submodel: Submodel) -> bytes:
        """Encode an update with what was lost of the client's earlier ones; remember what is lost now."""
        entries = _entries(submodel)
        waiting = self._waiting(update.client, submodel)
        lost = _none(update) if waiting is None else waiting
        place = np.searchsorted(lost.entries, entries)
        known = place < len(lost.entries)
        known[known] = lost.entries[place[known]] == entries[known]
        found = torch.from_numpy(place[known])
        owed = torch.zeros_like(update.values)
        owed[torch.from_numpy(known)] = lost.values[found]
        whole = replace(update, values=update.values + owed, always=update.always + lost.always)
        data = encode(whole, self._coding, self._layout, submodel=submodel)
        sent = decode(data, Update, limit=2 * _size(update) + (1 << 20))

        others = torch.ones(len(lost.values), dtype=torch.bool)
        others[found] = False
        merged = np.concatenate([lost.entries[others.numpy()], entries])
        values = torch.cat([lost.values[others], _finite(whole.values - sent.values)])
        order = np.argsort(merged, kind="stable")
        self._residuals[update.client] = _Residual(
            submodel.shapes, merged[order], values[torch.from_numpy(order)], _finite(whole.always - sent.always)
        )
        return data

    def residual(self, client: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the entries of a client's residual, its values, and the residual of what always travels."""
        residual = self._residuals[client]
        return torch.from_numpy(residual.entries), residual.values, residual.always

    def _waiting(self, client: int, submodel: Submodel) -> _Residual | None:
        residual = self._residuals.get(client)
        fits = residual is not None and residual.shapes == submodel.shapes
        return residual if fits and len(residual.always) == len(submodel.always) else None  # type: ignore[union-attr]


def _entries(submodel: Submodel) -> np.ndarray:
    held = submodel.mask_indices
    return np.arange(len(submodel.values), dtype=np.int32) if held is None else held.numpy()


def _none(update: Update) -> _Residual:
    return _Residual(None, np.empty(0, np.int32), update.values[:0], torch.zeros_like(update.always))


def _finite(tensor: Tensor) -> Tensor:
    """Nothing of an update that is refused may come back with the next one."""
    return torch.where(tensor.isfinite(), tensor, 0)


def _size(update: Update) -> int:
    tensors = [update.values, update.always, update.classes, update.extractor]
    if update.prototypes is not None:
        tensors += [update.prototypes.vectors, update.prototypes.counts]
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)
