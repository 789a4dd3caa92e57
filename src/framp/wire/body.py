"""The body of a message: typed fields one after another. The reader checks each length before it believes it."""

import struct
from typing import Any, final

from framp.errors import WireError
from framp.wire.compression import Compression

NONE, FALSE, TRUE, INTEGER, REAL, TEXT, TENSOR, VALUES, INDICES, SHAPES, RECORD = range(11)
"""The byte before each field says what it is."""

Plain = bool | int | float | str | None
"""What fields of records are."""

LONGEST_TEXT = 4096
LONGEST_INTEGER = 255
"""In bytes: exact fractions have long denominators."""
_LARGEST = 1 << 48


@final
class Writer:
    """Collects the parts of a body."""

    def __init__(self, compression: Compression | None = None) -> None:
        self.parts: list[bytes | memoryview] = []
        self.compression = compression or Compression()

    def raw(self, content: bytes | memoryview) -> None:
        """Add bytes whose number the reader knows."""
        self.parts.append(content)

    def tag(self, kind: int) -> None:
        """Add what the next field is."""
        self.parts.append(bytes((kind,)))

    def size(self, number: int) -> None:
        """Add a number that is not negative: seven bits a byte, the low ones first."""
        found = bytearray()
        while number >= 0x80:
            found.append(number & 0x7F | 0x80)
            number >>= 7
        found.append(number)
        self.parts.append(bytes(found))

    def block(self, content: bytes) -> None:
        """Add bytes after their number."""
        self.size(len(content))
        self.raw(content)

    def plain(self, value: Plain) -> None:
        """Add a truth value, an integer, a float, a text or nothing."""
        match value:
            case None:
                self.tag(NONE)
            case bool():
                self.tag(TRUE if value else FALSE)
            case int():
                needed = value.bit_length() // 8 + 1
                length = next((size for size in (1, 2, 4, 8) if size >= needed), needed)
                if length > LONGEST_INTEGER:
                    raise WireError(f"an integer of {length} bytes does not fit into a message; shorten the fraction")
                self.raw(bytes((INTEGER, length)) + value.to_bytes(length, "little", signed=True))
            case float():
                self.raw(struct.pack("<Bd", REAL, value))
            case str():
                text = value.encode("utf-8", "surrogatepass")
                if len(text) > LONGEST_TEXT:
                    raise WireError(f"a text of {len(text)} bytes does not fit into a message; shorten it")
                self.tag(TEXT)
                self.block(text)
            case _:  # such as numpy's integers
                raise WireError(f"{value!r} of type {type(value).__name__} does not fit into a message; convert it")


@final
class Reader:
    """Takes a body apart."""

    def __init__(self, body: memoryview, limit: int) -> None:
        self._body, self._place, self._left = body, 0, limit
        self.compression = Compression()

    def claim(self, size: int) -> None:
        """Take memory for a tensor out of what the message may need, or raise before it is allocated."""
        if size > self._left:
            raise WireError(f"the message decodes to more than is allowed, by {size - self._left} bytes; raise limit")
        self._left -= size

    def raw(self, size: int) -> memoryview:
        """Take so many bytes."""
        if size > len(self._body) - self._place:
            raise WireError(f"the message ends {size - len(self._body) + self._place} bytes early; send it again")
        self._place += size
        return self._body[self._place - size : self._place]

    def byte(self) -> int:
        """Take one byte."""
        return self.raw(1)[0]

    def tag(self, *kinds: int) -> int:
        """Take what the next field is, one of those that may come here."""
        found = self.byte()
        if found not in kinds:
            raise WireError(f"a field of type {found} stands where the message needs one of {list(kinds)}")
        return found

    def size(self) -> int:
        """Take a number that is not negative."""
        number = shift = 0
        while True:
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 42:
                raise WireError("a length in the message is out of bounds; send it again")
        if number >= _LARGEST or (byte == 0 and shift):
            raise WireError("a length in the message is out of bounds; send it again")
        return number

    def block(self) -> memoryview:
        """Take bytes after their number."""
        return self.raw(self.size())

    def plain(self, *kinds: int) -> Any:
        """Take a truth value, an integer, a float, a text or nothing, as far as they may come here."""
        kind = self.tag(*kinds)
        if kind == NONE:
            return None
        if kind == INTEGER:
            return int.from_bytes(self.raw(self.byte()), "little", signed=True)
        if kind == REAL:
            return struct.unpack("<d", self.raw(8))[0]
        if kind == TEXT:
            size = self.size()
            if size > LONGEST_TEXT:
                raise WireError(f"a text of {size} bytes is longer than the {LONGEST_TEXT} allowed")
            return bytes(self.raw(size)).decode("utf-8", "surrogatepass")
        return kind == TRUE

    def end(self) -> None:
        """Refuse what is left over."""
        if self._place != len(self._body):
            raise WireError(f"the message has {len(self._body) - self._place} bytes too many; send it again")
