"""The codecs of record batches: what they look like, and how they are written. `decompression.py` reads them.

What Kafka's Java client writes and reads sets the details:

* gzip: one or more members; whatever follows the last one is not looked at.
* snappy: xerial framing (16 bytes of header, then i32-length blocks of at most 32 KiB each), also several such streams
  one behind the other; or one bare snappy block, as librdkafka writes it. Xerial is what we write.
* lz4: one LZ4 frame of independent blocks; the Java client cannot read linked blocks, so they are refused here instead
  of in every consumer. Message sets of magic 0 carry a header checksum that was computed over the wrong bytes
  (KAFKA-3160): it is overlooked when such a set is read and reproduced when one is written.
* zstd: one or more frames and nothing else.

A codec is imported when the first batch needs it.
"""

import struct
import zlib
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from ottla.wire.buffers import COPIED_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

Buffer = bytes | bytearray | memoryview


class Compression(IntEnum):
    """Codec with its number in a batch's attributes. The lower-case names are the values of compression.type."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# compression.gzip.level and so on; snappy has no levels.
DEFAULT_LEVELS = {Compression.GZIP: -1, Compression.LZ4: 9, Compression.ZSTD: 3}

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_LENGTH = struct.Struct(">i")

LZ4_MAGIC = b"\x04\x22\x4d\x18"
ZSTD_MAGIC = 0xFD2FB528


def compress(codec: Compression, data: Buffer, level: int | None = None, *, broken_lz4_checksum: bool = False) -> bytes:
    """Compress data in Java's framing of the codec. Levels are Kafka's, such as those of compression.gzip.level."""
    if codec == Compression.NONE:
        return bytes(data)
    if codec == Compression.ZSTD:  # in one go it writes the size of the contents into the frame
        from zstandard import ZstdCompressor

        return ZstdCompressor(level=_level(codec, level)).compress(data)
    stream = _stream(codec, level, broken_lz4_checksum)
    return b"".join((stream.compress(data), stream.flush()))


def _level(codec: Compression, level: int | None) -> int:
    return DEFAULT_LEVELS.get(codec, 0) if level is None else level


class Compressing:
    """Incremental compressor. It holds only little uncompressed data."""

    def __init__(self, codec: Compression, level: int | None = None, *, broken_lz4_checksum: bool = False) -> None:
        self._codec, self._level, self._broken_lz4_checksum = codec, level, broken_lz4_checksum
        self._plain = bytearray()
        self._stream: _Stream | None = None
        self._compressed: list[bytes] = []

    def add(self, parts: "Sequence[Buffer]") -> None:
        """Append all of `parts`."""
        # Small parts are joined first: one call for a record and not one for each field.
        if sum(map(len, parts)) <= COPIED_BYTES_MAX:
            self._add(b"".join(parts))
            return
        for part in parts:
            view = memoryview(part)
            # No other thread runs while bytes are copied, so a long value is taken in steps.
            for start in range(0, len(view), COPIED_BYTES_MAX):
                self._add(view[start : start + COPIED_BYTES_MAX])

    def _add(self, piece: Buffer) -> None:
        self._plain += piece
        # Records are collected until compressing them is worth a call.
        if len(self._plain) > COPIED_BYTES_MAX and self._codec != Compression.NONE:
            if self._stream is None:
                self._stream = _stream(self._codec, self._level, self._broken_lz4_checksum)
            self._compressed.append(self._stream.compress(self._plain))
            self._plain.clear()

    def finish(self) -> Buffer:
        """Return the compressed form of everything that was added."""
        if self._codec == Compression.NONE:
            return self._plain
        # It was short, so it is compressed in one go: zstd writes the size of the contents into the frame then.
        if self._stream is None:
            return compress(self._codec, self._plain, self._level, broken_lz4_checksum=self._broken_lz4_checksum)
        return b"".join((*self._compressed, self._stream.compress(self._plain), self._stream.flush()))


class _Stream(Protocol):
    def compress(self, data: Buffer, /) -> bytes:
        """Compress more data; return the output that is available so far."""

    def flush(self) -> bytes:
        """Return the remaining output at the end."""


def _stream(codec: Compression, level: int | None, broken_lz4_checksum: bool) -> _Stream:
    level = _level(codec, level)
    if codec == Compression.GZIP:
        return zlib.compressobj(level, zlib.DEFLATED, 31)
    if codec == Compression.SNAPPY:
        return _SnappyStream()
    if codec == Compression.LZ4:
        return _Lz4Stream(level, broken_lz4_checksum)
    from zstandard import ZstdCompressor

    stream: _Stream = ZstdCompressor(level=level).compressobj()
    return stream


# --- snappy -----------------------------------------------------------------------------------------------------------


class _SnappyStream:
    def __init__(self) -> None:
        self._header = XERIAL_HEADER

    def compress(self, data: Buffer, /) -> bytes:
        header, self._header = self._header, b""
        return header + _snappy_compressed_blocks(data)

    def flush(self) -> bytes:
        return b""


def _snappy_compressed_blocks(data: Buffer) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts: list[bytes] = []
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(parts)


# --- lz4 --------------------------------------------------------------------------------------------------------------


class _Lz4Stream:
    def __init__(self, level: int, broken_checksum: bool) -> None:
        from lz4 import frame

        # Java takes 9 for "the fast compressor" and everything else for a level of the slow one, which starts at 3
        # here.
        frame_level = 0 if level == DEFAULT_LEVELS[Compression.LZ4] else max(level, frame.COMPRESSIONLEVEL_MINHC)
        self._frame = frame.LZ4FrameCompressor(
            # Blocks that are not linked, because Java's reader knows no others; 64 KiB is what Java writes.
            compression_level=frame_level,
            block_size=frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
        )
        self._header: bytes = self._frame.begin()
        if broken_checksum:
            self._header = self._header[:6] + bytes((lz4_header_checksum(self._header[:6]),)) + self._header[7:]

    def compress(self, data: Buffer, /) -> bytes:
        header, self._header = self._header, b""
        return header + bytes(self._frame.compress(data))

    def flush(self) -> bytes:
        return bytes(self._frame.flush())


@lru_cache(maxsize=256)  # nearly all frames have one and the same header
def lz4_header_checksum(descriptor: bytes) -> int:
    """Return the checksum of an LZ4 frame's header of at most 15 bytes: the second byte of XXH32 with seed 0."""
    mask, prime_1, prime_2, prime_3, prime_4, prime_5 = (
        0xFFFFFFFF, 2654435761, 2246822519, 3266489917, 668265263, 374761393,
    )  # fmt: skip

    def rotated(value: int, bits: int) -> int:
        return (value << bits | value >> 32 - bits) & mask

    digest = prime_5 + len(descriptor)
    words = len(descriptor) & ~3
    for (word,) in struct.iter_unpack("<I", descriptor[:words]):
        digest = rotated((digest + word * prime_3) & mask, 17) * prime_4
    for byte in descriptor[words:]:
        digest = rotated((digest + byte * prime_5) & mask, 11) * prime_1
    digest &= mask
    digest = (digest ^ digest >> 15) * prime_2 & mask
    digest = (digest ^ digest >> 13) * prime_3 & mask
    return (digest ^ digest >> 16) >> 8 & 0xFF
