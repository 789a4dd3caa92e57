"""A full model of its own for every client, generated from its descriptor (section 4.1)."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from framp import rng
from framp.config import Config
from framp.errors import ConfigError
from framp.layout import ParameterLayout
from framp.settings import GenerationConfig
from framp.stage1_generation.blockwise import BlockwiseHypernetwork
from framp.stage1_generation.descriptors import Descriptors
from framp.stage1_generation.hypernetwork import Hypernetwork, TwoLayers
from framp.stage1_generation.served import Served
from framp.updates import MaskedUpdate, blocks

HEADS: dict[str, type[Hypernetwork] | type[BlockwiseHypernetwork]] = {
    "full": Hypernetwork,
    "blocks": BlockwiseHypernetwork,
}


@final
class Generated:
    """The hypernetwork over the clients' descriptors."""

    def __init__(
        self, initial: Tensor, layout: ParameterLayout, descriptors: Descriptors, config: GenerationConfig, seed: int
    ) -> None:
        self.descriptors, self.config = descriptors, config
        generator = rng.torch_generator(seed, rng.NOBODY, rng.NOBODY, "hypernetwork")
        self.network: TwoLayers = HEADS[config.head].configured(config, layout, initial, descriptors.mean(), generator)
        self.shared = Served(self.network.head_bias, config.served_average)
        if config.head_scale > 0:
            scales = layer_scales(initial, layout).mul_(config.head_scale / self._typical_norm())
            self.network.scatter(scales, generator)

    @classmethod
    def configured(
        cls, config: Config, initial: Tensor, layout: ParameterLayout, descriptors: Descriptors | None
    ) -> "Generated":
        """Start at the initial network for everybody, give or take the head's initial weights."""
        if descriptors is None:
            raise ConfigError("a generated backbone needs descriptors; name them in the recipe")
        return cls(initial, layout, descriptors, config.generation, config.seed)

    def _typical_norm(self) -> float:
        """Return how long f(v) is, on average over the first clients."""
        some = torch.stack([self.descriptors.of(client) for client in range(min(self.descriptors.clients, 64))])
        return max(float(self.network.features(some).norm(dim=1).mean()), 1e-3)

    def generate(self, client: int) -> Tensor:
        """Return ω_n = H(v_n; φ), to be trained."""
        return self.network.generate(self.descriptors.of(client))

    def serve(self, client: int) -> Tensor:
        """Return the model that a client is given to use: as personal as the configuration says."""
        return self.network.between(self.shared.vector, self.descriptors.of(client), self.config.served_strength)

    def generate_union(self) -> Tensor:
        """Return the average client's model, as it is used."""
        return self.network.between(self.shared.vector, self.descriptors.mean(), 1)

    def learn(self, updates: Sequence[MaskedUpdate]) -> dict[str, float]:
        """Move φ so that generated weights follow the trained ones; report the gain.

        The gain is how much of a participant's change its own next model takes over, and how much another's does.
        """
        descriptors = torch.stack([self.descriptors.of(update.client) for update in updates])
        features = self.network.features(descriptors)
        self.network.learn(
            descriptors,
            blocks(updates),
            self.config.shared_rate,
            self.config.personal_rate,
            self.config.shared_mean == "holders",
        )
        self.shared.follow()
        products = (self.config.shared_rate + self.config.personal_rate * features @ features.T) / len(updates)
        own = products.diagonal().mean()
        others = (products.sum() - products.diagonal().sum()) / max(len(updates) * (len(updates) - 1), 1)
        return {"gain_own": float(own), "gain_others": float(others)}

    def state(self) -> dict[str, Tensor]:
        """Return φ, and what is served of its shared part."""
        return {**self.network.state(), **self.shared.state()}


def layer_scales(initial: Tensor, layout: ParameterLayout) -> Tensor:
    """Return each maskable entry's own layer's standard deviation, and zero for what always travels.

    Keeping the scale of each layer keeps what global TopK finds in it.
    """
    scales = torch.zeros_like(initial)
    for entry in layout.entries:
        if entry.stop <= layout.maskable and entry.stop - entry.start > 1:
            scales[entry.start : entry.stop] = initial[entry.start : entry.stop].std()
    return scales
