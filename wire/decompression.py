"""Decompression of record batches, within a limit: all that Kafka's Java client writes. `compression.py` has the formats.

Bytes go from a codec into a `Sink` piece by piece, so that they can be looked at while they come
(`compressed_walk.py`) or be collected (`decompress`). A codec is imported when the first batch needs it. Foreign bytes either
decompress, within the limit, or raise KafkaError: UNKNOWN_SERVER_ERROR for garbage, which is what Kafka answers (it lets the
codec's exception through), and MESSAGE_TOO_LARGE beyond the limit, on which a Java producer splits its batch and tries
again.
"""

import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from ottla.wire.buffers import COPIED_BYTES_MAX, KEPT_BYTES, Scratch, free_unused, lent, pages
from ottla.wire.compression import (
    LZ4_MAGIC,
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    XERIAL_MAGIC,
    ZSTD_MAGIC,
    Buffer,
    Compression,
    lz4_header_checksum,
)
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.time_slice import let_others_run, paced

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor

BLOCKS_SCANNED_MAX = 500  # where a bound is wanted at once; a MiB has 32 blocks, and each costs some calls

_XERIAL_LENGTH = struct.Struct(">i")
_XERIAL_BLOCK_LENGTH = b"\x80\x80\x02"  # as snappy writes `XERIAL_BLOCK_BYTES`
_XERIAL_MAGIC_HEAD: int = _XERIAL_LENGTH.unpack_from(XERIAL_MAGIC)[0]
_LZ4_LENGTH = struct.Struct("<I")
_LZ4_BLOCK_BYTES_MAX = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_LZ4_CONTENT_SIZE, _LZ4_BLOCK_CHECKSUMS, _LZ4_CHECKSUMS = 0x08, 0x10, 0x14
# What a byte of input can become at most; `decompressed_bound` counts on it.
_LZ4_RATIO_MAX = 255
_ZSTD_BLOCK_BYTES_MAX = 128 << 10
_ZSTD_WINDOW_BYTES_MAX = 128 << 20  # unless a decoder allows more, which Java's is not
_ZSTD_CONSUMER_BYTES = 16 << 10  # what a Java consumer decompresses at a time
_GZIP_RATIO_MAX = 1032
_GZIP_MEMBER = b"\x1f\x8b\x08"
_SEARCHED_BYTES = 64 * 1024
_CHUNK_BYTES = 256 * 1024
_GZIP_INPUT_BYTES = 128 * 1024
_FURTHER_GZIP_INPUT_BYTES = 16 * 1024  # what follows a member is copied at its end, and members may be tiny
_LZ4_INPUT_BYTES = 256 * 1024  # at a time: with each chunk of output the codec copies the input that is left
_LZ4_TINY_BYTES = 256  # blocks of this size on average cost more by one call each than the whole frame by the codec
_LZ4_BLOCKS_BEFORE_JUDGED = 64
# Where there is room for all, nothing is kept in a window and copied out of it.
_ZSTD_AT_ONCE_BYTES = 2 * 1024 * 1024
_RESTS_AFTER_BYTES = 1024 * 1024
_ROOM_BYTES_MAX = 4 * 1024 * 1024  # what a codec asks for at a time: a block of lz4


class TooLargeDecompressed(KafkaError):
    """Error raised if decompressed records are larger than the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, f"Records take more than {limit} bytes when decompressed")


class NotInOnePass(Exception):
    """Error raised if a codec wants to take back bytes that the sink no longer has."""


class Sink(Protocol):
    """Destination of decompressed bytes."""

    size: int
    """Number of bytes taken."""

    limit: int
    """Largest number of bytes."""

    def room(self, size: int) -> memoryview:
        """Return memory for up to `size` further bytes. It must not be used after the next `took`."""

    def took(self, size: int) -> None:
        """Accept `size` bytes that were written to `room`. Raises TooLargeDecompressed if the limit is exceeded."""

    def take_back(self, size: int) -> None:
        """Keep only the first `size` bytes. Raises NotInOnePass if that is impossible."""


class Collected:
    """Sink that keeps all bytes in one piece: in scratch memory, or in new pages if they are too many."""

    def __init__(self, memory: Scratch, limit: int) -> None:
        self.size = 0
        self.limit = limit
        self._scratch: Scratch | None = memory
        self._view = memory.view
        self._rests_at = _RESTS_AFTER_BYTES

    def room(self, size: int) -> memoryview:
        end = self.size + size
        if end > len(self._view):
            self._move(max(end, self.limit + _ROOM_BYTES_MAX))
        return self._view[self.size : end]

    def took(self, size: int) -> None:
        self.size += size
        if self.size > self.limit:
            raise TooLargeDecompressed(self.limit)
        if self._scratch is not None:
            self._scratch.written = max(self._scratch.written, self.size)
        # A codec lets go of the interpreter lock only for moments that are too short for the event loop to wake up in.
        if self.size >= self._rests_at:
            self._rests_at = self.size + _RESTS_AFTER_BYTES
            let_others_run()

    def take_back(self, size: int) -> None:
        self.size = size

    def _move(self, capacity: int) -> None:
        moved = memoryview(pages(capacity))
        for start in range(0, self.size, COPIED_BYTES_MAX):
            moved[start : start + COPIED_BYTES_MAX] = self._view[start : start + COPIED_BYTES_MAX]
        self._view, self._scratch = moved, None

    def area(self) -> memoryview:
        """Return all bytes collected so far."""
        return self._view[: self.size]


@contextmanager
def decompressed(
    codec: Compression, data: Buffer, limit: int, *, broken_lz4_checksum: bool = False
) -> Iterator[memoryview]:
    """Lend the decompressed data for a `with` block: at most `limit` bytes in scratch memory.

    Raises an error before larger data are allocated. In a thread, it releases the interpreter lock every few ms.
    """
    with lent() as memory:
        collected = Collected(memory, limit)
        decompress_into(collected, codec, data, broken_lz4_checksum=broken_lz4_checksum)
        area = collected.area()
        try:
            yield area
        finally:
            # Whatever still looks at it keeps the memory for itself.
            with suppress(BufferError):
                area.release()


def decompress(codec: Compression, data: Buffer, limit: int, *, broken_lz4_checksum: bool = False) -> Buffer:
    """Return the decompressed data in memory that the caller may keep."""
    with decompressed(codec, data, limit, broken_lz4_checksum=broken_lz4_checksum) as area:
        # A scratch with more in it is not used again, so it can be given away.
        return bytes(area) if len(area) <= KEPT_BYTES else area[:]


def decompress_into(sink: Sink, codec: Compression, data: Buffer, *, broken_lz4_checksum: bool = False) -> None:
    """Decompress `data` into a sink, piece by piece."""
    view = memoryview(data)
    if codec == Compression.NONE:
        for start in range(0, len(view), COPIED_BYTES_MAX):
            _put(sink, view[start : start + COPIED_BYTES_MAX])
    elif codec == Compression.GZIP:
        _decompress_gzip(view, sink)
    elif codec == Compression.SNAPPY:
        _decompress_snappy(view, sink)
    elif codec == Compression.LZ4:
        _decompress_lz4(view, sink, broken_lz4_checksum)
    else:
        _decompress_zstd(view, sink)


def give_back_idle() -> None:
    """Free idle memory and decompressors if no batch was decompressed since the last call."""
    if free_unused():
        _idle_zstd_decompressors.clear()


def _put(sink: Sink, piece: Buffer) -> None:
    size = len(piece)
    sink.room(size)[:] = piece
    sink.took(size)


def decompressed_bound(codec: Compression, data: Buffer) -> int:
    """Return an upper bound of the decompressed size, read cheaply from the framing.

    The bound holds for valid data; for invalid data it may be too low, but then decompression fails first. If there are
    too many blocks to scan, it is beyond all limits.
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


# --- gzip -------------------------------------------------------------------------------------------------------------


def told_gzip_size(data: Buffer) -> int:
    """Return the size stated at the end of the last gzip member. It is not checked, but right for producers' data."""
    return int.from_bytes(memoryview(data)[-4:], "little")


def unstored_gzip_bytes(data: Buffer) -> int:
    """Return the number of bytes in a gzip member behind its leading stored blocks, which need only be copied."""
    position, end = 10, len(data)
    # A header of ten bytes has no extra fields.
    if end <= position or data[3]:
        return end
    for _ in range(BLOCKS_SCANNED_MAX):
        # The lowest bit says whether it is the last block, the next two are its type. A stored one ends with a byte.
        if position + 5 > end or data[position] & 6:
            break
        is_last = data[position] & 1
        position += 5 + int.from_bytes(data[position + 1 : position + 3], "little")
        if is_last:
            break
    return max(0, end - position)


@lru_cache(maxsize=1)
def _gzip_codec() -> Any:
    """Return Intel's igzip, or zlib if igzip is not installed. igzip is twice as fast."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib
    return isal_zlib


@lru_cache(maxsize=1)
def _libdeflate() -> tuple[Any, Any] | None:
    """Return libdeflate's functions; None if it is not installed.

    It takes 4/5 of igzip's time, but cannot decompress in pieces.
    """
    try:
        from deflate import DeflateError, gzip_decompress
    except ImportError:
        return None
    return gzip_decompress, DeflateError


def has_libdeflate() -> bool:
    """Tell whether gzip can be decompressed in one call, which takes at most a fifth of the time of pieces."""
    return _libdeflate() is not None


def gunzipped(data: memoryview, size_max: int) -> Buffer | None:
    """Return a single gzip member decompressed, at most `size_max` bytes; None if this fast path does not apply."""
    size, library = told_gzip_size(data), _libdeflate()
    if library is None or not 0 < size <= size_max:
        return None
    decompress_member, error = library
    # It ends with the first member and does not say where. Pieces, because a copy of all costs new memory.
    for start in range(1, len(data), _SEARCHED_BYTES):
        if _GZIP_MEMBER in bytes(data[start : start + _SEARCHED_BYTES + 2]):
            return None
    try:
        made: Buffer = decompress_member(data, originalsize=size)
    except error:
        return None
    return made


def _decompress_gzip(data: memoryview, sink: Sink) -> None:
    position = _gunzip_member(data, 0, sink, _GZIP_INPUT_BYTES)
    # GZIPInputStream reads on only where another member begins.
    while bytes(data[position : position + 2]) == b"\x1f\x8b":
        begun_at = sink.size
        try:
            position = _gunzip_member(data, position, sink, _FURTHER_GZIP_INPUT_BYTES)
        except TooLargeDecompressed:
            raise
        # What only looks like another member is overlooked, as Java's reader does.
        except KafkaError:
            sink.take_back(begun_at)
            break


def _gunzip_member(data: memoryview, position: int, sink: Sink, input_bytes: int) -> int:
    """Decompress the gzip member at `position` into `sink`. Return the position of its end."""
    codec = _gzip_codec()
    member = codec.decompressobj(31)  # a gzip header and trailer, the largest window
    pending: Buffer = b""
    try:
        while not member.eof:
            if not pending:
                pending = data[position : position + input_bytes]
                position += len(pending)
            chunk = member.decompress(pending, _CHUNK_BYTES)
            # The trailer with its checksum has not come, so nothing vouches for the result.
            if not chunk and not pending and not member.eof:
                raise _garbage("gzip", "unexpected end of input")
            pending = member.unconsumed_tail
            if chunk:
                _put(sink, chunk)
    except codec.error as error:
        raise _garbage("gzip", error) from None
    # The next member begins in the piece that was read last.
    return position - len(member.unused_data)


# --- snappy -----------------------------------------------------------------------------------------------------------


def _snappy_blocks(data: memoryview, *, strict: bool = True, blocks_max: int | None = None) -> list[memoryview] | None:
    """Return the compressed blocks of xerial streams, or all data as one block if they have no xerial header.

    Returns None if there are more than `blocks_max`.
    """
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
    """Return the length that a snappy block states at its start. The decoder checks it."""
    # All but the last block of a Java producer.
    if block[:3] == _XERIAL_BLOCK_LENGTH:
        return XERIAL_BLOCK_BYTES
    length = 0
    for index, byte in enumerate(block[:5]):
        length |= (byte & 127) << 7 * index
        if byte < 128:
            return length
    return 0


def _decompress_snappy(data: memoryview, sink: Sink) -> None:
    from cramjam import DecompressionError, snappy

    blocks = _snappy_blocks(data) or []
    # The blocks say how long they get, and may lie about it: so this is asked before memory is taken for them.
    sizes = [_snappy_length(block) for block in blocks]
    if sink.size + sum(sizes) > sink.limit:
        raise TooLargeDecompressed(sink.limit)
    first = 0
    while first < len(blocks):
        # As many as are worth the calls of the sink.
        end, together = first, 0
        while end < len(blocks) and (end == first or together + sizes[end] <= _CHUNK_BYTES):
            together += sizes[end]
            end += 1
        room, position = sink.room(together), 0
        try:
            for block in blocks[first:end]:
                # The decoder refuses a block that is longer than it says, so nothing is written past the end.
                position += snappy.decompress_raw_into(block, room[position:])
        except DecompressionError as error:
            raise _garbage("snappy", error) from None
        sink.took(position)
        first = end


# --- lz4 --------------------------------------------------------------------------------------------------------------


def _lz4_descriptor_end(data: memoryview) -> int:
    """Check an LZ4 frame's header as Java does. Return the position of the header checksum."""
    if len(data) < 7 or data[:4] != LZ4_MAGIC:
        raise _garbage("lz4", "no frame header")
    flags, block_descriptor = data[4], data[5]
    # Java's reader refuses what it does not know. Accepted here, such a frame would stop every Java consumer.
    if flags >> 6 != 1 or flags & 0x03 or block_descriptor & 0x8F or block_descriptor >> 4 not in _LZ4_BLOCK_BYTES_MAX:
        raise _garbage("lz4", "unknown version or reserved bits in the frame header")
    if not flags & 0x20:
        raise _garbage("lz4", "dependent blocks are unsupported")
    # The frame may carry the size of its contents in eight more bytes.
    end = 14 if flags & _LZ4_CONTENT_SIZE else 6
    if len(data) <= end:
        raise _garbage("lz4", "stream ended prematurely")
    return end


def _decompress_lz4(data: memoryview, sink: Sink, overlook_header_checksum: bool) -> None:
    end = _lz4_descriptor_end(data)
    descriptor = bytes(data[4:end])
    if not overlook_header_checksum and data[end] != lz4_header_checksum(descriptor):
        raise _garbage("lz4", "wrong checksum of the frame header")
    # Producers write no further checksums.
    if descriptor[0] & _LZ4_CHECKSUMS or not _decompress_lz4_blocks(data, end + 1, descriptor, sink):
        _decompress_lz4_frame(data, end, sink)


def _decompress_lz4_blocks(data: memoryview, position: int, descriptor: bytes, sink: Sink) -> bool:
    """Decompress an LZ4 frame block by block into `sink`.

    Return False if that was not done, because the codec for whole frames is quicker for such small blocks.
    """
    from cramjam import DecompressionError, lz4

    bytes_max = _LZ4_BLOCK_BYTES_MAX[descriptor[1] >> 4]
    begun_at, blocks_at, blocks = sink.size, position, 0
    while position + 4 <= len(data):
        head: int = _LZ4_LENGTH.unpack_from(data, position)[0]
        position += 4
        # The end mark.
        if not head:
            if descriptor[0] & _LZ4_CONTENT_SIZE and sink.size - begun_at != int.from_bytes(descriptor[2:], "little"):
                raise _garbage("lz4", "not as many bytes as the frame header says")
            return True
        size = head & 0x7FFFFFFF
        if not 0 < size <= bytes_max:  # see `_refuse_empty_lz4_block`
            raise _garbage("lz4", f"a block of {size} bytes")
        block = data[position : position + size]
        position += size
        if position > len(data):
            break
        if head >> 31:
            _put(sink, block)
        else:
            try:
                sink.took(lz4.decompress_block_into(block, sink.room(bytes_max), bytes_max))
            except DecompressionError as error:
                raise _garbage("lz4", error) from None
        blocks += 1
        if blocks == _LZ4_BLOCKS_BEFORE_JUDGED and position - blocks_at < blocks * _LZ4_TINY_BYTES:
            sink.take_back(begun_at)
            return False
    # Without its end mark the frame may be cut off.
    raise _garbage("lz4", "stream ended prematurely")


def _decompress_lz4_frame(data: memoryview, descriptor_end: int, sink: Sink) -> None:
    """Decompress an LZ4 frame by the codec for whole frames, which verifies all checksums."""
    from lz4.frame import LZ4FrameDecompressor

    decompressor = LZ4FrameDecompressor()
    _refuse_empty_lz4_block(data, descriptor_end + 1)
    # The checksum is right, or to be overlooked; the codec cannot be told to.
    header = bytes((*data[:descriptor_end], lz4_header_checksum(bytes(data[4:descriptor_end]))))
    position = descriptor_end + 1
    try:
        decompressor.decompress(header)
        while not decompressor.eof:
            wants_more = decompressor.needs_input
            piece = data[position : position + _LZ4_INPUT_BYTES] if wants_more else b""
            position += len(piece)
            chunk: bytes = decompressor.decompress(piece, max_length=_CHUNK_BYTES)
            if chunk:
                _put(sink, chunk)
            # Without output and without more input nothing would ever come.
            elif wants_more and not piece:
                raise _garbage("lz4", "stream ended prematurely")
    except RuntimeError as error:
        raise _garbage("lz4", error) from None


def _refuse_empty_lz4_block(data: memoryview, position: int) -> None:
    """Raise KafkaError for an empty block: Java's Lz4BlockInputStream would end the frame there."""
    give_way = paced()
    for turn, head in enumerate(_lz4_heads(data, position), 1):
        if not head & 0x7FFFFFFF:
            raise _garbage("lz4", "an empty block")
        if not turn % _LZ4_BLOCKS_BEFORE_JUDGED:
            give_way()


def _lz4_heads(data: memoryview, position: int) -> Iterator[int]:
    """Yield the number before each block, up to the end mark: the size, with the highest bit set in stored blocks."""
    overhead = 8 if data[4] & _LZ4_BLOCK_CHECKSUMS else 4
    while position + 4 <= len(data) and (head := _LZ4_LENGTH.unpack_from(data, position)[0]):
        yield head
        position += overhead + (head & 0x7FFFFFFF)


def _lz4_bound(data: memoryview) -> int:
    try:
        position = _lz4_descriptor_end(data) + 1
    except KafkaError:
        return 0
    block_bytes_max, bound = _LZ4_BLOCK_BYTES_MAX[data[5] >> 4], 0
    for turn, head in enumerate(_lz4_heads(data, position), 1):
        # So many tiny blocks are taken for expensive, because reading their headers already is.
        if turn > BLOCKS_SCANNED_MAX:
            return sys.maxsize
        size = head & 0x7FFFFFFF
        # A compressed block gives no size; it is bounded by the frame's block size and by the best ratio.
        bound += size if head >> 31 else min(block_bytes_max, size * _LZ4_RATIO_MAX)
    return bound


# --- zstd -------------------------------------------------------------------------------------------------------------


def _decompress_zstd(data: memoryview, sink: Sink) -> None:
    from zstandard import ZstdDecompressor, ZstdError

    bound, is_whole = _scan_zstd(data)
    if not is_whole:  # the reader below takes the end of the input for the end of the frame
        raise _garbage("zstd", "truncated or unknown frame")
    try:
        # `pop` and `append` are single steps, so threads need no lock here.
        decompressor = _idle_zstd_decompressors.pop()
    except IndexError:
        decompressor = ZstdDecompressor()
    is_at_once = bound <= _ZSTD_AT_ONCE_BYTES
    # With room for all of a frame the library does not look at its window. A consumer that lacks the room refuses one that is too
    # large: then it gets no more room here than there.
    least = _CHUNK_BYTES if bound < sys.maxsize else _ZSTD_CONSUMER_BYTES
    wanted = bound if is_at_once else least
    try:
        with decompressor.stream_reader(data, read_across_frames=True) as reader:
            # The reader is asked once more at the end. A frame that says it is longer than the room is checked less.
            while size := reader.readinto(sink.room(max(wanted, least))):
                sink.took(size)
                if is_at_once:
                    wanted -= size
    except ZstdError as error:
        raise _garbage("zstd", error) from None
    if bound <= _ZSTD_AT_ONCE_BYTES:  # others may have taken much memory for their windows
        _idle_zstd_decompressors.append(decompressor)


# One for each thread that was in here at the same time; making one takes as long as a batch of 16 KiB does.
_idle_zstd_decompressors: "list[ZstdDecompressor]" = []


def _zstd_window(descriptor: memoryview) -> int:
    """Return the window size of a zstd frame; 0 if the data end before it."""
    if not descriptor:
        return 0
    base = 1 << 10 + (descriptor[0] >> 3)
    return base + (base >> 3) * (descriptor[0] & 7)


def _scan_zstd(data: memoryview, blocks_max: int = sys.maxsize) -> tuple[int, bool]:
    """Read zstd block headers. Return a bound of the decompressed size, and whether all frames are complete.

    After more than `blocks_max` blocks the bound is sys.maxsize.
    """
    position = bound = turns = 0
    while position < len(data):
        if len(data) - position < 5 or int.from_bytes(data[position : position + 4], "little") != ZSTD_MAGIC:
            return bound, False
        descriptor = data[position + 4]
        single_segment = descriptor >> 5 & 1
        # Beyond any bound; see `_decompress_zstd`.
        if not single_segment and _zstd_window(data[position + 5 : position + 6]) > _ZSTD_WINDOW_BYTES_MAX:
            bound = sys.maxsize
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
