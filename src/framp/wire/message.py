"""One message as bytes: a header of fixed length, and a body that its length and its hash have to match.

"frmp" · version · kind · length of the body · BLAKE2b of all that and the body · body
 4 bytes  1         1      8                     16
"""

import struct
from hashlib import blake2b
from typing import TypeVar

from torch import Tensor

from framp.errors import FrampError, WireError, listed
from framp.layout import ParameterLayout
from framp.messages import Message, Reply, Submodel
from framp.wire.body import Reader, Writer
from framp.wire.compression import Compression
from framp.wire.contents import CONTENTS, Manners
from framp.wire.values import LOSSLESS

Known = TypeVar("Known", bound=Message | Reply)

MAGIC, VERSION = b"frmp", 1
_START = struct.Struct("<4sBBQ")
_HASH = 16
HEADER = _START.size + _HASH
LIMIT = 1 << 26
"""The most bytes of tensors that a message may decode to, unless the receiver says otherwise."""
_KINDS = list(CONTENTS)


def written(message: Message | Reply, how: Manners, compression: Compression | None = None) -> list[bytes | memoryview]:
    """Write the body of a message, in parts; who sends many keeps one `compression` for them."""
    kind = type(message)
    if kind not in CONTENTS:
        raise WireError(f"{kind.__name__} is no message; send one of {', '.join(known.__name__ for known in _KINDS)}")
    writer = Writer(compression)
    write, _ = CONTENTS[kind]
    write(writer, message, how)
    return writer.parts


def framed(kind: type, body: list[bytes | memoryview]) -> bytes:
    """Put the header before a body."""
    start = _START.pack(MAGIC, VERSION, _KINDS.index(kind), sum(map(len, body)))
    return b"".join((start, _hash(start, *body), *body))


def encode(
    message: Message | Reply,
    values: str = LOSSLESS,
    layout: ParameterLayout | None = None,
    previous: Tensor | None = None,
    submodel: Submodel | None = None,
) -> bytes:
    """Encode a message.

    Args:
        message: What to send.
        values: How the values of submodels and updates are sent: "fp32" (without loss), "fp16", "bf16" or "int8".
        layout: The full model's: index sets and scales are then coded tensor by tensor.
        previous: The index set that the receiver last had; the difference from it is sent where it is shorter.
        submodel: Of an update, that of its task: the scales of int8 are then those of the tensors.
    """
    return framed(type(message), written(message, Manners(values, layout, submodel, previous)))


def decode(
    data: bytes | memoryview,
    expected: type[Known] | tuple[type[Known], ...],
    limit: int = LIMIT,
    previous: Tensor | None = None,
) -> Known:
    """Decode a message of an expected kind, or raise `WireError`.

    Args:
        data: What has arrived.
        expected: The kinds of messages that may come.
        limit: The most bytes of tensors that it may decode to.
        previous: The index set that the receiver last had.
    """
    data = memoryview(data).cast("B")
    if len(data) < HEADER:
        raise WireError(f"a message of {len(data)} bytes is shorter than its header of {HEADER}; send it again")
    magic, version, kind, length = _START.unpack(data[: _START.size])
    body = data[HEADER:]
    if magic != MAGIC:
        raise WireError("these bytes are no message of FRAMP's; they start with something else")
    if version != VERSION:
        raise WireError(f"the message has version {version}, and this side reads {VERSION}; use the same FRAMP")
    if length != len(body):
        raise WireError(f"the message has {len(body)} bytes after its header instead of {length}; send it again")
    if _hash(data[: _START.size], body) != data[_START.size : HEADER]:
        raise WireError("the message does not match its hash; send it again")
    kinds = expected if isinstance(expected, tuple) else (expected,)
    if kind >= len(_KINDS) or _KINDS[kind] not in kinds:
        found = _KINDS[kind].__name__ if kind < len(_KINDS) else f"number {kind}"
        wanted = listed((one.__name__ for one in kinds), "or")
        raise WireError(f"a message of type {found} arrived where {wanted} was expected; send that")
    reader = Reader(body, limit)
    _, read = CONTENTS[_KINDS[kind]]
    try:
        message: Known = read(reader, previous)
        reader.end()
    except WireError:
        raise
    except (FrampError, ValueError, TypeError, OverflowError) as error:
        raise WireError(f"the message contradicts itself ({error}); send it again") from None
    return message


def _hash(*parts: bytes | memoryview) -> bytes:
    found = blake2b(digest_size=_HASH)
    for part in parts:
        found.update(part)
    return found.digest()
