"""The codecs of record batches: compress and decompress, with a limit on what comes out.

What Kafka's Java client writes and reads sets the details:

* gzip: one or more members; whatever follows the last one is not looked at.
* snappy: xerial framing (16 bytes of header, then i32-length blocks of at most 32 KiB each), also several such streams
  one behind the other; or one bare snappy block, as librdkafka writes it. Xerial is what we write.
* lz4: one LZ4 frame of independent blocks; the Java client cannot read linked blocks, so they are refused here instead
  of in every consumer. Message sets of magic 0 carry a header checksum that was computed over the wrong bytes
  (KAFKA-3160): it is overlooked when such a set is read and reproduced when one is written.
* zstd: one or more frames and nothing else.

A codec is imported when the first batch needs it. Foreign bytes either decompress, within the limit, or raise KafkaError:
UNKNOWN_SERVER_ERROR for garbage, which is what Kafka answers (it lets the codec's exception through), and
MESSAGE_TOO_LARGE beyond the limit, on which a Java producer splits its batch and tries again.
"""

import struct
import sys
import zlib
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.pages import COPIED_BYTES_MAX, SHORT_LIVED_BYTES_MAX, pages
from ottla.wire.threads import let_others_run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zstandard import ZstdDecompressor

Buffer = bytes | bytearray | memoryview


class Compression(IntEnum):
    """A codec by its number in the attributes of a batch; lower-case names are those of compression.type."""

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
_XERIAL_MAGIC_HEAD: int = _XERIAL_LENGTH.unpack_from(XERIAL_MAGIC)[0]

LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_BYTES_MAX = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
# What a byte of input can become at most; `decompressed_bound` counts on it.
_LZ4_RATIO_MAX = 255

ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES_MAX = 128 << 10
_GZIP_RATIO_MAX = 1032

_CHUNK_BYTES = 256 * 1024
_GZIP_INPUT_BYTES = 16 * 1024  # at a time: what follows a member is copied at its end, and members may be tiny
_LZ4_INPUT_BYTES = 256 * 1024  # at a time: with each chunk of output the codec copies the input that is left
# From here on a result lies in pages of its own, which go back to the system as a whole.
_MAPPED_FROM_BYTES = 8 * 1024 * 1024
_RESTS_AFTER_BYTES = 1024 * 1024
BLOCKS_SCANNED_MAX = 2_000  # where a bound is wanted at once; a MiB has 32 blocks


class TooLargeDecompressed(KafkaError):
    """The records would become larger than the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, f"Records take more than {limit} bytes when decompressed")


def compress(codec: Compression, data: Buffer, level: int | None = None, *, broken_lz4_checksum: bool = False) -> bytes:
    """The data in Java's framing of the codec. Levels are Kafka's: compression.gzip.level, .lz4.level, .zstd.level."""
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
    """Compresses data while it is put together. However long the data is, little of it exists uncompressed."""

    def __init__(self, codec: Compression, level: int | None = None, *, broken_lz4_checksum: bool = False) -> None:
        self._codec = codec
        self._level = level
        self._broken_lz4_checksum = broken_lz4_checksum
        self._plain = bytearray()
        self._stream: _Stream | None = None
        self._compressed: list[bytes] = []

    def add(self, parts: "Sequence[Buffer]") -> None:
        """Append all parts."""
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
        """All that was added, compressed."""
        if self._codec == Compression.NONE:
            return self._plain
        # It was short, so it is compressed in one go: zstd writes the size of the contents into the frame then.
        if self._stream is None:
            return compress(self._codec, self._plain, self._level, broken_lz4_checksum=self._broken_lz4_checksum)
        return b"".join((*self._compressed, self._stream.compress(self._plain), self._stream.flush()))


class _Stream(Protocol):
    def compress(self, data: Buffer, /) -> bytes:
        """What comes out for more data."""

    def flush(self) -> bytes:
        """The rest."""


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


def decompress(codec: Compression, data: Buffer, limit: int, *, broken_lz4_checksum: bool = False) -> Buffer:
    """The data decompressed, at most limit bytes of it: what would become more raises before it is allocated.

    A large result is in pages of its own: it grows in place, where joining pieces would take twice the memory.
    A thread that calls this keeps the interpreter lock for a few milliseconds at a time.
    """
    if codec == Compression.NONE:
        return bytes(data)
    data = memoryview(data)
    if codec == Compression.GZIP:
        return _decompress_gzip(data, limit)
    if codec == Compression.SNAPPY:
        return _decompress_snappy(data, limit)
    if codec == Compression.LZ4:
        return _decompress_lz4(data, limit, broken_lz4_checksum)
    return _decompress_zstd(data, limit)


def decompressed_bound(codec: Compression, data: Buffer) -> int:
    """How much decompress() can make of the data at most: cheap, read off the framing, never too low for good data.

    Garbage may give any number; it fails before it has produced more than that. Data in very many blocks is taken for
    beyond any bound, because reading their headers would cost more than the answer is worth.
    """
    data = memoryview(data)
    if codec == Compression.NONE:
        return len(data)
    if codec == Compression.GZIP:
        # The framing of gzip says nothing before its end, so the worst is assumed.
        return len(data) * _GZIP_RATIO_MAX
    if codec == Compression.SNAPPY:
        blocks = _snappy_blocks(data, strict=False, blocks_max=BLOCKS_SCANNED_MAX)
        return sys.maxsize if blocks is None else sum(_snappy_length(block) for block in blocks)
    if codec == Compression.LZ4:
        return _lz4_bound(data)
    return _scan_zstd(data, BLOCKS_SCANNED_MAX)[0]


def _garbage(codec: str, reason: object) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Failed to decompress {codec} records: {reason}")


def _read_bounded(read: "Callable[[int], bytes]", limit: int) -> Buffer:
    """Everything a decompressing reader gives, chunk by chunk, so that no more is ever allocated than has come."""
    chunks: list[bytes] = []
    size = 0
    while chunk := read(_CHUNK_BYTES):
        size += len(chunk)
        # Before it is kept: a bomb takes one chunk more than the limit and no further memory.
        if size > limit:
            raise TooLargeDecompressed(limit)
        chunks.append(chunk)
        # Up to here the C library has memory at hand, and to join the chunks costs less than to grow a buffer. A larger
        # result would take twice its size for a moment.
        if size >= _MAPPED_FROM_BYTES:
            return _read_mapped(chunks, read, limit)
    # Most batches end within the first chunk, which is given away as it is, without a copy.
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _read_mapped(begun: list[bytes], read: "Callable[[int], bytes]", limit: int) -> memoryview:
    """The same in pages of its own, which take memory as they are written and go back to the system as a whole."""
    mapped = pages(limit)
    # Their memory is free before the pages fill up.
    begun.reverse()
    while begun:
        mapped.write(begun.pop())
    rested_at = 0
    while chunk := read(_CHUNK_BYTES):
        if mapped.tell() + len(chunk) > limit:
            raise TooLargeDecompressed(limit)
        mapped.write(chunk)
        # The codec lets go of the interpreter lock only for moments that are too short for the event loop to wake up
        # in.
        if mapped.tell() - rested_at >= _RESTS_AFTER_BYTES:
            rested_at = mapped.tell()
            let_others_run()
    return memoryview(mapped)[: mapped.tell()]


# --- gzip -------------------------------------------------------------------------------------------------------------


def _decompress_gzip(data: memoryview, limit: int) -> Buffer:
    first, position = _gunzip_member(data, 0, limit)
    # One member, as nearly always: its result needs no copy.
    if not _is_gzip_member(data, position):
        return first
    result = bytearray(first)
    while _is_gzip_member(data, position):  # GZIPInputStream reads on only where another member begins
        try:
            more, position = _gunzip_member(data, position, limit - len(result))
        except TooLargeDecompressed:
            raise TooLargeDecompressed(limit) from None
        # What only looks like another member is overlooked, as Java's reader does.
        except KafkaError:
            break
        result += more
    return result


def _is_gzip_member(data: memoryview, position: int) -> bool:
    return bytes(data[position : position + 2]) == b"\x1f\x8b"


def _gunzip_member(data: memoryview, position: int, limit: int) -> tuple[Buffer, int]:
    """What the member at a position decompresses to, and where it ends."""
    # 31: a gzip header and trailer, the largest window.
    member = zlib.decompressobj(31)
    pending: Buffer = b""

    def read(size: int) -> bytes:
        nonlocal pending, position
        while not member.eof:
            if not pending:
                pending = data[position : position + _GZIP_INPUT_BYTES]
                position += len(pending)
            chunk = member.decompress(pending, size)
            is_at_end = not pending
            pending = member.unconsumed_tail
            if chunk or is_at_end:
                return chunk
        return b""

    try:
        result = _read_bounded(read, limit)
    except zlib.error as error:
        raise _garbage("gzip", error) from None
    # The trailer with its checksum has not come, so nothing vouches for the result.
    if not member.eof:
        raise _garbage("gzip", "unexpected end of input")
    # The next member begins in the piece that was read last.
    return result, position - len(member.unused_data)


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


def _snappy_blocks(
    data: memoryview, *, strict: bool = True, blocks_max: int | None = None
) -> list[memoryview] | None:
    """The compressed blocks of xerial streams, or the data itself where it has no xerial header; None: too many."""
    if data[:8] != XERIAL_MAGIC or len(data) < len(XERIAL_HEADER):
        return [data]
    blocks = []
    position = len(XERIAL_HEADER)
    turns = 0
    while position + 4 <= len(data):  # fewer bytes than a length are overlooked, as Java does
        turns += 1
        if blocks_max is not None and turns > blocks_max:
            return None
        length: int = _XERIAL_LENGTH.unpack_from(data, position)[0]
        if length == _XERIAL_MAGIC_HEAD:  # the next stream
            # The magic's first bytes are a negative length, so no block can be meant.
            if strict and data[position : position + 8] != XERIAL_MAGIC:
                raise _garbage("snappy", "invalid header of a further stream")
            position += len(XERIAL_HEADER)
            continue
        position += 4
        if not 0 < length <= len(data) - position:
            if strict:
                raise _garbage("snappy", f"invalid block length {length}")
            break
        blocks.append(data[position : position + length])
        position += length
    return blocks


def _snappy_length(block: memoryview) -> int:
    """The length that stands before a snappy block; the decoder holds the block to it."""
    length = 0
    for index, byte in enumerate(block[:5]):
        length |= (byte & 127) << 7 * index
        if byte < 128:
            return length
    return 0


def _decompress_snappy(data: memoryview, limit: int) -> Buffer:
    from cramjam import DecompressionError, snappy

    blocks = _snappy_blocks(data) or []
    # The blocks say how long they get, so one buffer of the right size holds them all, without joining.
    size = sum(map(_snappy_length, blocks))
    # A block may lie about its length, so this is asked before memory is taken for it.
    if size > limit:
        raise TooLargeDecompressed(limit)
    # The decoder refuses a block that is longer than it says, so nothing is written past the end.
    result = memoryview(bytearray(size) if size <= SHORT_LIVED_BYTES_MAX else pages(size))
    position = 0
    try:
        for block in blocks:
            position += snappy.decompress_raw_into(block, result[position:])
    except DecompressionError as error:
        raise _garbage("snappy", error) from None
    return result


# --- lz4 --------------------------------------------------------------------------------------------------------------


class _Lz4Stream:
    def __init__(self, level: int, broken_checksum: bool) -> None:
        from lz4 import frame

        # Java takes 9 for "the fast compressor" and everything else for a level of the slow one, which starts at 3
        # here.
        frame_level = 0 if level == DEFAULT_LEVELS[Compression.LZ4] else max(level, frame.COMPRESSIONLEVEL_MINHC)
        self._frame = frame.LZ4FrameCompressor(
            # Blocks that are not linked, because Java's reader knows no others; 64 KiB is what Java writes.
            compression_level=frame_level, block_size=frame.BLOCKSIZE_MAX64KB, block_linked=False
        )
        self._header: bytes = self._frame.begin()
        if broken_checksum:
            self._header = self._header[:6] + bytes((_lz4_checksum(self._header[:6]),)) + self._header[7:]

    def compress(self, data: Buffer, /) -> bytes:
        header, self._header = self._header, b""
        return header + bytes(self._frame.compress(data))

    def flush(self) -> bytes:
        return bytes(self._frame.flush())


def _lz4_descriptor_end(data: memoryview) -> int:
    """Where the header checksum stands, after checking what Java checks of a frame's header."""
    if len(data) < 7 or data[:4] != LZ4_MAGIC:
        raise _garbage("lz4", "no frame header")
    flags, block_descriptor = data[4], data[5]
    # Java's reader refuses what it does not know. Accepted here, such a frame would stop every Java consumer.
    if flags >> 6 != 1 or flags & 0x03 or block_descriptor & 0x8F or block_descriptor >> 4 not in _LZ4_BLOCK_BYTES_MAX:
        raise _garbage("lz4", "unknown version or reserved bits in the frame header")
    if not flags & 0x20:
        raise _garbage("lz4", "dependent blocks are unsupported")
    # The frame may carry the size of its contents in eight more bytes.
    end = 14 if flags & 0x08 else 6
    if len(data) <= end:
        raise _garbage("lz4", "stream ended prematurely")
    return end


def _decompress_lz4(data: memoryview, limit: int, overlook_header_checksum: bool) -> Buffer:
    from lz4.frame import LZ4FrameDecompressor

    descriptor_end = _lz4_descriptor_end(data)
    decompressor = LZ4FrameDecompressor()
    position = 0

    def read(size: int) -> bytes:
        nonlocal position
        while not decompressor.eof:
            wants_more = decompressor.needs_input
            piece = data[position : position + _LZ4_INPUT_BYTES] if wants_more else b""
            position += len(piece)
            chunk: bytes = decompressor.decompress(piece, max_length=size)
            # Without output and without more input nothing would ever come.
            if chunk or (wants_more and not piece):
                return chunk
        return b""

    try:
        # The right checksum is put in place of the stored one; the codec cannot be told to overlook it.
        if overlook_header_checksum:
            decompressor.decompress(bytes((*data[:descriptor_end], _lz4_checksum(bytes(data[4:descriptor_end])))))
            position = descriptor_end + 1
        result = _read_bounded(read, limit)
    except RuntimeError as error:
        raise _garbage("lz4", error) from None
    # Without its end mark the frame may be cut off, which the codec does not complain of.
    if not decompressor.eof:
        raise _garbage("lz4", "stream ended prematurely")
    return result


def _lz4_checksum(descriptor: bytes) -> int:
    """Second byte of XXH32 with seed 0, for the at most 15 bytes that a frame header has."""
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


def _lz4_bound(data: memoryview) -> int:
    try:
        position = _lz4_descriptor_end(data) + 1
    except KafkaError:
        return 0
    block_bytes_max = _LZ4_BLOCK_BYTES_MAX[data[5] >> 4]
    block_overhead = 8 if data[4] & 0x10 else 4
    bound = turns = 0
    while position + 4 <= len(data):
        turns += 1
        # So many tiny blocks are taken for expensive, because reading their headers already is.
        if turns > BLOCKS_SCANNED_MAX:
            return sys.maxsize
        size = int.from_bytes(data[position : position + 4], "little")
        if size == 0:
            break
        is_stored, size = size >> 31, size & 0x7FFFFFFF
        # A compressed block gives no size; it is bounded by the frame's block size and by the best ratio.
        bound += size if is_stored else min(block_bytes_max, size * _LZ4_RATIO_MAX)
        position += block_overhead + size
    return bound


# --- zstd -------------------------------------------------------------------------------------------------------------


def _decompress_zstd(data: memoryview, limit: int) -> Buffer:
    from zstandard import ZstdDecompressor, ZstdError

    if not _scan_zstd(data)[1]:  # the reader below takes the end of the input for the end of the frame
        raise _garbage("zstd", "truncated or unknown frame")
    try:
        # `pop` and `append` are single steps, so threads need no lock here.
        decompressor = _idle_zstd_decompressors.pop()
    except IndexError:
        decompressor = ZstdDecompressor()
    try:
        with decompressor.stream_reader(data, read_across_frames=True) as reader:
            result = _read_bounded(reader.read, limit)
    except ZstdError as error:
        raise _garbage("zstd", error) from None
    if len(result) <= _CHUNK_BYTES:  # larger ones would keep as much memory
        _idle_zstd_decompressors.append(decompressor)
    return result


# One for each thread that was in here at the same time; making one takes as long as a batch of 16 KiB does.
_idle_zstd_decompressors: "list[ZstdDecompressor]" = []


def _scan_zstd(data: memoryview, blocks_max: int = sys.maxsize) -> tuple[int, bool]:
    """(bound on the decompressed size, whether the data is whole frames and nothing else), from the block headers."""
    position = bound = turns = 0
    while position < len(data):
        if len(data) - position < 5 or int.from_bytes(data[position : position + 4], "little") != ZSTD_MAGIC:
            return bound, False
        descriptor = data[position + 4]
        single_segment = descriptor >> 5 & 1
        # A frame of a single segment has one byte of size where others have none, and no byte for the window.
        content_size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
        position += 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3] + content_size_bytes
        last = False
        while not last:
            turns += 1
            if turns > blocks_max:
                return sys.maxsize, False
            if position + 3 > len(data):
                return bound, False
            header = int.from_bytes(data[position : position + 3], "little")
            last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
            # A compressed block gives at most 128 KiB; raw and repeated ones say how much.
            bound += _ZSTD_BLOCK_BYTES_MAX if kind == 2 else size
            # A repeated byte takes one byte of input, whatever its length.
            position += 4 if kind == 1 else 3 + size
        # The checksum behind the last block.
        position += 4 if descriptor & 4 else 0
    return bound, position == len(data)
