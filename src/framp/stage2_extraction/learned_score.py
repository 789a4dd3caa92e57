"""The ablation row "MLP": entries by a learned score. The paper says little of it; this is our reading.

One small network for all entries and clients scores each entry of a generated model by what it is:

    s_j = |w_j|/s + MLP( w_j/s, |w_j|/s, σ_layer(j)/s, ln γ ),   s the standard deviation of all maskable weights

and the ⌊γ·d⌋ entries of highest score are the submodel. The MLP's output layer starts at zero, so the first submodels
are those of global TopK. It learns as if entry j had passed a soft gate sigmoid(s_j − θ), θ the lowest score chosen:
what a client changed, Δ_j, pulls the score by Δ_j·w_j·sigmoid'(s_j − θ), as it pulls the hypernetwork. A submodel's
pulls are summed and divided by the root of their number, so that large submodels do not drown small ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import final

import torch
from torch import Tensor

from framp import rng
from framp.budgets import Budget
from framp.config import Config
from framp.layout import Entry
from framp.stage2_extraction.extractor import Selection
from framp.stage2_extraction.network import Network
from framp.stage2_extraction.threshold import top_indices
from framp.updates import MaskedUpdate

_HIDDEN = 8
_BLOCK = 1 << 16


@final
@dataclass(frozen=True, eq=False)
class LearnedScore:
    """TopK on a score that is learned."""

    entries: tuple[Entry, ...]
    rate: float
    inner: Tensor
    inner_bias: Tensor
    outer: Tensor

    @classmethod
    def configured(cls, config: Config, network: Network) -> "LearnedScore":
        """Start as global TopK."""
        layout = network.layout
        entries = tuple(entry for entry in layout.entries if entry.stop <= layout.maskable)
        generator = rng.torch_generator(config.seed, rng.NOBODY, rng.NOBODY, "score network")
        inner = torch.empty(_HIDDEN, 4, dtype=layout.dtype).uniform_(-0.5, 0.5, generator=generator)
        inner_bias = torch.empty(_HIDDEN, dtype=layout.dtype).uniform_(-0.5, 0.5, generator=generator)
        return cls(entries, config.score.rate, inner, inner_bias, torch.zeros(_HIDDEN, dtype=layout.dtype))

    def granted(self, budget: Budget) -> Budget:
        """Keep to the client's budget."""
        return budget

    def select(self, weights: Tensor, budget: Budget, round: int, in_use: bool = False) -> Selection:
        """Choose the entries of highest score."""
        limit = budget.limit(weights.numel())
        if limit == weights.numel():
            return Selection()
        seen = _Seen(weights, self.entries, limit)
        scores = torch.empty_like(weights)
        for start in range(0, weights.numel(), _BLOCK):
            block = slice(start, start + _BLOCK)
            scores[block] = self.scores(seen.features(block))
        return Selection(top_indices(scores.sub_(scores.min()), limit))

    def learn(self, updates: Sequence[MaskedUpdate], generate: Callable[[int], Tensor]) -> None:
        """Move the score network by the participants' mean pull; full models say nothing about what to choose."""
        pulls = [torch.zeros_like(part) for part in (self.inner, self.inner_bias, self.outer)]
        for update in updates:
            if update.indices is not None:
                indices = update.indices.read(0, len(update.indices)).long()
                weights = generate(update.client)[: update.maskable]
                self._pull(pulls, weights, indices, update.values.read(0, len(indices)))
        for part, pull in zip((self.inner, self.inner_bias, self.outer), pulls, strict=True):
            part += self.rate / len(updates) * pull

    def state(self) -> dict[str, Tensor]:
        """Return the score network."""
        return {"score.inner": self.inner, "score.inner_bias": self.inner_bias, "score.outer": self.outer}

    def scores(self, features: Tensor) -> Tensor:
        """Return the scores of entries by their features."""
        return features[:, 1] + torch.relu(features @ self.inner.T + self.inner_bias) @ self.outer

    def _pull(self, pulls: list[Tensor], weights: Tensor, indices: Tensor, changes: Tensor) -> None:
        features = _Seen(weights, self.entries, len(indices)).features(indices)
        scores = self.scores(features)
        gate = torch.sigmoid(scores - scores.min())
        wanted = changes * weights[indices] * gate * (1 - gate) / len(indices) ** 0.5
        hidden = torch.relu(features @ self.inner.T + self.inner_bias)
        below = wanted.unsqueeze(1) * self.outer * (hidden > 0)
        pulls[0] += below.T @ features
        pulls[1] += below.sum(dim=0)
        pulls[2] += wanted @ hidden


class _Seen:
    """What the score network sees of a generated model."""

    def __init__(self, weights: Tensor, entries: Sequence[Entry], limit: int) -> None:
        self._weights, self._fraction = weights, log(limit / weights.numel())
        self._scale = weights.std()
        self._stds = torch.stack([weights[entry.start : entry.stop].std(correction=0) for entry in entries])
        self._stops = torch.tensor([entry.stop for entry in entries])

    def features(self, places: slice | Tensor) -> Tensor:
        """Return the features [n, 4] of some entries."""
        numbers = torch.arange(*places.indices(len(self._weights))) if isinstance(places, slice) else places
        chosen = self._weights[places] / self._scale
        layer = self._stds[torch.bucketize(numbers, self._stops, right=True)] / self._scale
        return torch.stack([chosen, chosen.abs(), layer, torch.full_like(chosen, self._fraction)], dim=1)
