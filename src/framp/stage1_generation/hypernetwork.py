"""The hypernetwork H(v; φ): descriptor → hidden → flat parameter vector (equation 2), learning in closed form.

    h = ReLU(A v + a),   w = b + W h

For participants n with Δ_n = M_n ⊙ (trained − received), the vector-Jacobian product of the linear head is exact
without autograd: ∂W = −mean_n Δ_n h_nᵀ, ∂b = −mean_n Δ_n, ∂h_n = −Wᵀ Δ_n. The sign is that of descent: generated
weights move towards trained ones (algorithms 0.5). W is changed in place, row-sparse, with no buffer of its size.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from framp.stage1_generation.updates import Block


class Hypernetwork:
    """A two-layer MLP whose output is a whole model."""

    def __init__(self, inner: Tensor, inner_bias: Tensor, head: Tensor, head_bias: Tensor) -> None:
        self.inner, self.inner_bias = inner, inner_bias
        self.head, self.head_bias = head, head_bias

    @classmethod
    def initialised(
        cls, dimensions: int, hidden: int, target: Tensor, scales: Tensor, generator: torch.Generator
    ) -> "Hypernetwork":
        """Start at a conventionally initialised network `target`, with head weights of std `scales` per entry."""
        bound = dimensions**-0.5
        inner = torch.empty(hidden, dimensions, dtype=target.dtype).uniform_(-bound, bound, generator=generator)
        inner_bias = torch.empty(hidden, dtype=target.dtype).uniform_(-bound, bound, generator=generator)
        head = torch.empty(target.numel(), hidden, dtype=target.dtype).normal_(generator=generator)
        head *= scales.unsqueeze(1)
        return cls(inner, inner_bias, head, target.clone())

    def hidden(self, descriptors: Tensor) -> Tensor:
        """Return h for one descriptor or for a row of them."""
        return torch.relu(descriptors.to(self.inner.dtype) @ self.inner.T + self.inner_bias)

    def generate(self, descriptor: Tensor) -> Tensor:
        """Return the flat vector of one descriptor's model."""
        return torch.addmv(self.head_bias, self.head, self.hidden(descriptor))

    def learn(
        self, descriptors: Tensor, blocks: Iterable[Block], shared_rate: float, personal_rate: float, by_holders: bool
    ) -> None:
        """Take one step: the shared part (b) at its own rate, the personal part (W and the layer below) at β."""
        participants = len(descriptors)
        hidden = self.hidden(descriptors)
        hidden_gradient = torch.zeros_like(hidden)
        for block in blocks:
            head = block.of(self.head)
            hidden_gradient -= block.changes @ head
            head.addmm_(block.changes.T, hidden, alpha=personal_rate / participants)
            block.put(self.head, head)

            bias = block.of(self.head_bias)
            count = torch.as_tensor(block.holders).clamp(min=1) if by_holders else participants
            bias += shared_rate * block.changes.sum(dim=0) / count
            block.put(self.head_bias, bias)
        before_relu = hidden_gradient * (hidden > 0)
        step = personal_rate / participants
        self.inner -= step * before_relu.T @ descriptors.to(self.inner.dtype)
        self.inner_bias -= step * before_relu.sum(dim=0)

    def state(self) -> dict[str, Tensor]:
        """Return φ as named tensors."""
        return {
            "inner.weight": self.inner,
            "inner.bias": self.inner_bias,
            "head.weight": self.head,
            "head.bias": self.head_bias,
        }
