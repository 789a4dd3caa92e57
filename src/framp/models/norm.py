"""Normalisation layers that keep no running statistics: those could be neither generated nor merged."""

from torch import nn

from framp.errors import ConfigError, unknown

GROUPS = 2


def norm(kind: str, channels: int) -> nn.Module:
    """Return batch norm on batch statistics (also at test time), or group norm."""
    if kind == "batch":
        return nn.BatchNorm2d(channels, track_running_stats=False)
    if kind == "group":
        return nn.GroupNorm(GROUPS if channels % GROUPS == 0 else 1, channels)
    raise ConfigError(unknown("norm", kind, ("batch", "group")))
