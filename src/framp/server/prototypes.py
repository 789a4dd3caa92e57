"""Global prototypes: P^c is the mean over the participants that hold class c; nobody holds it: it stays as it was."""

from collections.abc import Sequence

import torch
from torch import Tensor

from framp.messages import Prototypes


class GlobalPrototypes:
    """One prototype a class, and by how many holders it was last made (0: there is none yet)."""

    def __init__(self, classes: int, features: int, dtype: torch.dtype, weighted: bool) -> None:
        self.vectors = torch.zeros(classes, features, dtype=dtype)
        self.counts = torch.zeros(classes, dtype=torch.int64)
        self._weighted = weighted

    def merge(self, received: Sequence[Prototypes]) -> None:
        """Replace the prototypes of the classes that somebody held, each holder counting once or by its samples."""
        if not received:
            return
        counts = torch.stack([prototypes.counts for prototypes in received])
        weights = (counts if self._weighted else (counts > 0)).to(self.vectors.dtype)
        vectors = torch.stack([prototypes.vectors for prototypes in received])
        total = weights.sum(dim=0)
        means = torch.einsum("nc,nch->ch", weights, vectors) / total.clamp(min=1).unsqueeze(1)
        held = total > 0
        self.vectors[held] = means[held]
        self.counts[held] = (counts > 0).sum(dim=0)[held]

    def snapshot(self) -> Prototypes | None:
        """Return the prototypes as they are now, to be sent; None before there is any."""
        if not bool((self.counts > 0).any()):
            return None
        return Prototypes(self.vectors.clone(), self.counts.clone())

    def state(self) -> dict[str, Tensor]:
        """Return the prototypes as named tensors."""
        return {"prototypes.vectors": self.vectors, "prototypes.counts": self.counts}
