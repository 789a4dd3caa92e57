"""The client's side. It imports nothing of the server's: what it knows has arrived in a message.

`client.py` answers each kind of message, `training.py` is local training, `describe.py` makes the descriptor.
"""

from framp.client.client import Client

__all__ = ["Client"]
