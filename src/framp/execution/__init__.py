"""Training and running a submodel at the cost of its active weights."""

from framp.execution.active import ActiveNetwork, active_network, pays
from framp.execution.native import kernels

__all__ = ["ActiveNetwork", "active_network", "kernels", "pays"]
