"""The server's side: `round.py` is one round, `server.py` what it knows and asks, `inbox.py` what it accepts."""

from framp.server.inbox import Inbox
from framp.server.prototypes import GlobalPrototypes
from framp.server.registry import Registry
from framp.server.round import RoundReport, play
from framp.server.server import Method, Server

__all__ = ["GlobalPrototypes", "Inbox", "Method", "Registry", "RoundReport", "Server", "play"]
