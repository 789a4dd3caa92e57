"""The hypernetwork H(v; φ): descriptor → hidden → flat parameter vector (equation 2), learning in closed form.

    f(v) = ReLU(A v + a) − ReLU(A v̄ + a),   w = b + W f(v)

v̄ is the average client's descriptor, so b is exactly the average client's model, the part that everybody shares, and
W holds what is personal. Without centring, f(v) = ReLU(A v + a), as a plain two-layer MLP has it.

For participants n with Δ_n = M_n ⊙ (trained − received), the vector-Jacobian product of the linear head is exact
without autograd: ∂W = −mean_n Δ_n f_nᵀ, ∂b = −mean_n Δ_n, ∂f_n = −Wᵀ Δ_n. The sign is that of descent: generated
weights move towards trained ones. W is changed in place, row-sparse, with no buffer of its size.

W is a matrix here; `blockwise.py` has one that is a product and takes less memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import final

import torch
from torch import Tensor

from framp.layout import ParameterLayout
from framp.settings import GenerationConfig
from framp.updates import Block


class TwoLayers(ABC):
    """A two-layer MLP whose output is a whole model: all of it but W."""

    def __init__(self, inner: Tensor, inner_bias: Tensor, head_bias: Tensor, average: Tensor, centred: bool) -> None:
        self.inner, self.inner_bias, self.head_bias = inner, inner_bias, head_bias
        self.average, self.centred = average, centred

    @abstractmethod
    def scatter(self, scales: Tensor, generator: torch.Generator) -> None:
        """Start W at random, with a standard deviation for each entry of the vector."""

    @abstractmethod
    def over(self, bias: Tensor, features: Tensor) -> Tensor:
        """Return the model of some features over some b, b + W f, as a vector of its own."""

    @abstractmethod
    def follow(self, blocks: Iterable[Block], features: Tensor, step: float) -> Tensor:
        """Move W by step · Σ_n Δ_n f_nᵀ; return the pull on each f_n, Wᵀ Δ_n with W as it was."""

    def hidden(self, descriptors: Tensor) -> Tensor:
        """Return ReLU(A v + a) for one descriptor or for rows of them."""
        return torch.relu(descriptors.to(self.inner.dtype) @ self.inner.T + self.inner_bias)

    def features(self, descriptors: Tensor) -> Tensor:
        """Return f(v), what the head sees."""
        hidden = self.hidden(descriptors)
        return hidden - self.hidden(self.average) if self.centred else hidden

    def generate(self, descriptor: Tensor) -> Tensor:
        """Return the model of a descriptor, w = b + W f(v), to be trained."""
        return self.between(self.head_bias, descriptor, 1)

    def between(self, bias: Tensor, descriptor: Tensor, strength: float) -> Tensor:
        """Return the model over some b that lies between the average client's (strength 0) and a client's own (1)."""
        features = strength * self.features(descriptor) + (1 - strength) * self.features(self.average)
        return self.over(bias, features)

    def learn(
        self, descriptors: Tensor, blocks: Iterable[Block], shared_rate: float, personal_rate: float, by_holders: bool
    ) -> None:
        """Take one step: the shared part (b) at its own rate, the personal part (W, A, a) at β."""
        step = personal_rate / len(descriptors)
        moved = self._moving_bias(blocks, shared_rate, None if by_holders else len(descriptors))
        pull = self.follow(moved, self.features(descriptors), step)
        self._learn_below(descriptors.to(self.inner.dtype), pull, step)

    def _moving_bias(self, blocks: Iterable[Block], rate: float, participants: int | None) -> Iterator[Block]:
        """Move b by each block that passes: by the mean over the participants, or (None) over an entry's holders."""
        for block in blocks:
            bias = block.of(self.head_bias)
            count = torch.as_tensor(block.holders).clamp(min=1) if participants is None else participants
            bias += rate * block.changes.sum(dim=0) / count
            block.put(self.head_bias, bias)
            yield block

    def _learn_below(self, descriptors: Tensor, pull: Tensor, step: float) -> None:
        """Pass the pull on the features through the ReLU to A and a."""
        if self.centred:
            descriptors = torch.cat([descriptors, self.average.to(descriptors.dtype).unsqueeze(0)])
            pull = torch.cat([pull, -pull.sum(dim=0, keepdim=True)])
        pull = pull * (self.hidden(descriptors) > 0)
        self.inner += step * pull.T @ descriptors
        self.inner_bias += step * pull.sum(dim=0)

    def state(self) -> dict[str, Tensor]:
        """Return φ as named tensors."""
        return {"inner.weight": self.inner, "inner.bias": self.inner_bias, "head.bias": self.head_bias}


@final
class Hypernetwork(TwoLayers):
    """W is one matrix, entries × hidden."""

    def __init__(
        self, inner: Tensor, inner_bias: Tensor, head: Tensor, head_bias: Tensor, average: Tensor, centred: bool
    ) -> None:
        super().__init__(inner, inner_bias, head_bias, average, centred)
        self.head = head

    @classmethod
    def configured(
        cls,
        config: GenerationConfig,
        layout: ParameterLayout,
        target: Tensor,
        average: Tensor,
        generator: torch.Generator,
    ) -> "Hypernetwork":
        """Take the hidden width from the configuration."""
        return cls.initialised(config.hidden, target, average, config.centred, generator)

    @classmethod
    def initialised(
        cls, hidden: int, target: Tensor, average: Tensor, centred: bool, generator: torch.Generator
    ) -> "Hypernetwork":
        """Start at a conventionally initialised network `target` for everybody, which becomes b; W is zero."""
        inner, inner_bias = first_layer(hidden, target, average, generator)
        head = torch.zeros(target.numel(), hidden, dtype=target.dtype)
        return cls(inner, inner_bias, head, target, average, centred)

    def scatter(self, scales: Tensor, generator: torch.Generator) -> None:
        """Start W at random, with a standard deviation for each entry of the vector."""
        self.head.normal_(generator=generator)
        self.head *= scales.unsqueeze(1)

    def over(self, bias: Tensor, features: Tensor) -> Tensor:
        """Return b + W f."""
        return torch.addmv(bias, self.head, features)

    def follow(self, blocks: Iterable[Block], features: Tensor, step: float) -> Tensor:
        """Move W block by block."""
        return followed(self.head, blocks, features, step)

    def state(self) -> dict[str, Tensor]:
        """Return φ as named tensors."""
        return {**super().state(), "head.weight": self.head}


def first_layer(hidden: int, target: Tensor, average: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return A and a as a linear layer starts."""
    dimensions = average.numel()
    bound = dimensions**-0.5
    inner = torch.empty(hidden, dimensions, dtype=target.dtype).uniform_(-bound, bound, generator=generator)
    return inner, torch.empty(hidden, dtype=target.dtype).uniform_(-bound, bound, generator=generator)


def followed(matrix: Tensor, blocks: Iterable[Block], features: Tensor, step: float) -> Tensor:
    """Add step · Σ_n changes_n f_nᵀ to a matrix in place; return matrixᵀ changes_n, with the matrix as it was."""
    pull = torch.zeros_like(features)  # −∂f_n
    for block in blocks:
        part = block.of(matrix)
        pull += block.changes @ part
        part.addmm_(block.changes.T, features, alpha=step)
        block.put(matrix, part)
    return pull
