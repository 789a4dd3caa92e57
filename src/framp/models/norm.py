"""Normalisation layers that keep no running statistics: those could be neither generated nor merged."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from framp.errors import ConfigError, unknown

GROUPS = 2


class BatchNorm(nn.BatchNorm2d):
    """Batch norm on batch statistics, also at test time; of a single value a channel the bias is left."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, track_running_stats=False)

    def forward(self, maps: Tensor) -> Tensor:
        """Normalise feature maps."""
        if (self.training or self.running_mean is None) and maps.shape[0] * maps.shape[2] * maps.shape[3] == 1:
            return 0 * maps + self.bias.view(1, -1, 1, 1)
        return super().forward(maps)


class GroupNorm(nn.GroupNorm):
    """Group norm of two groups; of one where the channels, perhaps a narrower network's, cannot be halved."""

    def __init__(self, channels: int) -> None:
        super().__init__(1, channels)

    def forward(self, maps: Tensor) -> Tensor:
        """Normalise feature maps."""
        groups = GROUPS if maps.shape[1] % GROUPS == 0 else 1
        return F.group_norm(maps, groups, self.weight, self.bias, self.eps)


def norm(kind: str, channels: int) -> nn.Module:
    """Return batch norm on batch statistics (also at test time), or group norm."""
    if kind == "batch":
        return BatchNorm(channels)
    if kind == "group":
        return GroupNorm(channels)
    raise ConfigError(unknown("norm", kind, ("batch", "group")))
