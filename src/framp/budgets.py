"""Budgets: the fraction of the full model's maskable parameters that a client can hold and train."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from framp.errors import ConfigError


@dataclass(frozen=True)
class Budget:
    """A fraction γ in (0, 1], under the name that the user gave it ("1/64", "0.04")."""

    name: str
    fraction: Fraction

    @classmethod
    def parse(cls, text: str | float | int) -> "Budget":
        """Read "1/64", "0.04", .04 or 1; the fraction is exact, not a rounded float."""
        name = str(text).strip()
        try:
            fraction = Fraction(name)
        except (ValueError, ZeroDivisionError):
            raise ConfigError(f"budget '{name}' is not a number; write a fraction such as 1/16 or 0.25") from None
        if not 0 < fraction <= 1:
            raise ConfigError(f"budget '{name}' is outside (0, 1]; a budget is a fraction of the full model")
        return cls(name, fraction)

    def limit(self, maskable: int) -> int:
        """Return k = ⌊γ·d⌋, the largest number of maskable parameters within the budget."""
        return int(self.fraction * maskable)


FULL = Budget("1", Fraction(1))


def group_sizes(shares: Sequence[float], clients: int) -> list[int]:
    """Split `clients` into groups by their shares (largest remainder; the earlier group wins a tie)."""
    exact = [Fraction(str(share)) * clients for share in shares]
    sizes = [int(value) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda g: (sizes[g] - exact[g], g))
    for group in by_remainder[: clients - sum(sizes)]:
        sizes[group] += 1
    return sizes


def assign(budgets: Sequence[Budget], shares: Sequence[float], clients: int) -> np.ndarray:
    """Return each client's group (an index into `budgets`): contiguous blocks in the order of the list."""
    sizes = group_sizes(shares, clients)
    return np.repeat(np.arange(len(budgets), dtype=np.int16), sizes)
