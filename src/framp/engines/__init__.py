"""Engines carry messages between the server and its clients. No result depends on which one does."""

from framp.engines.engine import Engine
from framp.engines.processes import Processes
from framp.engines.serial import Serial

__all__ = ["Engine", "Processes", "Serial"]
