"""Zstandard frames whose content size the reader knows beforehand: nothing is allocated on a frame's own word."""

from typing import final

import zstandard

from framp.errors import WireError

_LEVEL = 1
"""Higher levels gain less than 1 % on bitmaps and exponents."""
_WINDOW = 19
_FORMAT = zstandard.FORMAT_ZSTD1_MAGICLESS


@final
class Compression:
    """A compressor and a decompressor, for one message."""

    def __init__(self) -> None:
        settings = zstandard.ZstdCompressionParameters.from_level(
            _LEVEL, window_log=_WINDOW, format=_FORMAT, write_content_size=True, write_checksum=False
        )
        self._compressor = zstandard.ZstdCompressor(compression_params=settings)
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW, format=_FORMAT)

    def pack(self, content: bytes | memoryview) -> bytes:
        """Compress."""
        return self._compressor.compress(content)

    def unpack(self, packed: memoryview, size: int) -> bytes:
        """Decompress a frame that has to hold exactly `size` bytes."""
        try:
            declared = zstandard.get_frame_parameters(packed, format=_FORMAT)
            if declared.content_size != size or declared.window_size > max(size, 1 << _WINDOW):
                raise WireError(f"a compressed part declares {declared.content_size} bytes instead of {size}")
            content = self._decompressor.decompress(packed, max_output_size=size, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise WireError(f"a compressed part is damaged ({error}); send the message again") from None
        if len(content) != size:
            raise WireError(f"a compressed part holds {len(content)} bytes instead of {size}")
        return content
