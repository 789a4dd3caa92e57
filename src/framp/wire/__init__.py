"""The wire: one binary format for every message, so that whoever carries messages carries nothing but bytes.

`message.py` is the frame (version, length, hash), `contents.py` what each kind of message is made of, `index_set.py`
and `gaps.py` code index sets, `values.py` and `planes.py` numbers. Neither the server nor the client is imported.
"""

from framp.wire.carrier import Traffic, Wire
from framp.wire.feedback import ErrorFeedback
from framp.wire.message import HEADER, LIMIT, decode, encode
from framp.wire.values import CODINGS, LOSSLESS

__all__ = [
    "CODINGS",
    "HEADER",
    "LIMIT",
    "LOSSLESS",
    "ErrorFeedback",
    "Traffic",
    "Wire",
    "decode",
    "encode",
]
