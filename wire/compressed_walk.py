"""The walk over the records of a compressed batch, while they are decompressed: little of them is in memory at a time.

Records that a codec could not compress, and has stored as they are (snappy: as literals), are walked where they are by one call
into C, and so are those that lz4 has compressed (`walk_stored`); gzip of ordinary length is inflated at once, where libdeflate is
installed. Both say yes or nothing, and where they say nothing all is done piece by piece.
"""

from collections.abc import Callable
from typing import Any

from ottla.wire.buffers import KEPT_BYTES, Scratch, lent
from ottla.wire.compression import Buffer, Compression
from ottla.wire.decompression import (
    NotInOnePass,
    TooLargeDecompressed,
    decompress_into,
    gunzipped,
    stored_gzip_is_intact,
)
from ottla.wire.native import native
from ottla.wire.record_walk import NOTHING_WALKED, walk_records, walk_whole_records
from ottla.wire.threads import let_others_run

Found = tuple[int, int, int, bool, bool]
"""What `walk_records` says of good records."""

PIECE_BYTES = 128 * 1024  # stays in a processor's own cache, and is worth the calls
_RESTS_AFTER_BYTES = 1024 * 1024
_LZ4_FRONT_BYTES = 19  # the longest header of a frame, and the head of its first block


class _Walk:
    """A sink (`decompression.Sink`) that walks over the records and forgets them.

    The beginning of a record that is cut off moves to the front, where its end will be written behind it.
    """

    def __init__(self, memory: Scratch, limit: int, count: int) -> None:
        self.size = 0
        self.limit = limit
        self.walked = NOTHING_WALKED
        self.left = 0
        """Bytes at the front that are not walked over."""
        self._memory = memory
        self._view = memory.view
        self._count = count
        self._walks_at = PIECE_BYTES
        self._rests_at = _RESTS_AFTER_BYTES

    def room(self, size: int) -> memoryview:
        end = self.left + size
        if end > len(self._view):
            raise NotInOnePass
        return self._view[self.left : end]

    def took(self, size: int) -> None:
        self.size += size
        if self.size > self.limit:
            raise TooLargeDecompressed(self.limit)
        self.left += size
        self._memory.written = max(self._memory.written, self.left)
        if self.left >= self._walks_at:
            self.walk()
        if self.size >= self._rests_at:
            self._rests_at = self.size + _RESTS_AFTER_BYTES
            let_others_run()

    def take_back(self, size: int) -> None:
        raise NotInOnePass

    def walk(self) -> None:
        """Walk over the records that are whole. ValueError: one of them is malformed."""
        left, view = self.left, self._view
        self.walked = walk_whole_records(view, 0, left, self._count, self.walked)
        position = self.walked[1]
        if position:
            view[: left - position] = view[position:left]
            self.left = left - position
        # Whatever comes now is behind the last record.
        if self.left and self.walked[0] == self._count:
            raise NotInOnePass
        self._walks_at = self.left + PIECE_BYTES


_walk_natively: Callable[[int, Buffer, int, int, memoryview], tuple[int, Found | None]] | None = native(
    "walk_stored_records", None
)
Background: Any = native("Background", None)
"""Does it in a thread of its own (`_background.h`); None where that cannot be."""
_decodes_lz4 = Background is not None  # which came with it


def walk_stored(codec: int, data: Buffer, limit: int, count: int) -> Found | None:
    """The same as `walk_compressed` of what the codec has only stored, or lz4 has compressed; None is no verdict (but see below)."""
    if _walk_natively is None:
        return None
    with lent() as memory:
        written, found = _walk_natively(codec, data, limit, count, memory.view)
        memory.written = max(memory.written, written)
    return None if codec == Compression.GZIP and found and not stored_gzip_is_intact(memoryview(data)) else found


def is_for_native_alone(codec: int, data: Buffer) -> bool:
    """Whether `walk_stored` decompresses such data, and says all there is to be said: None means that they are no good records then."""
    # A frame of lz4 without checksums but that of its header, whose first block is not stored: hardly any is then.
    if codec != Compression.LZ4 or not _decodes_lz4 or len(data) < _LZ4_FRONT_BYTES or data[4] & 0xF7 != 0x60:
        return False
    return data[18 if data[4] & 0x08 else 10] < 0x80


def walk_plain(codec: int, data: Buffer, limit: int, count: int) -> Found | None:
    """The same, and of gzip that is quickly inflated."""
    found = walk_stored(codec, data, limit, count)
    return walk_gzip(memoryview(data), limit, count) if found is None and codec == Compression.GZIP else found


def walk_gzip(data: memoryview, limit: int, count: int) -> Found | None:
    """The same of what gzip has compressed."""
    area = gunzipped(data, min(limit, KEPT_BYTES))
    try:
        return None if area is None else walk_records(area, 0, len(area), count)
    except ValueError:
        return None


def walk_compressed(
    codec: Compression, data: Buffer, limit: int, count: int, *, in_pieces: bool = True
) -> Found | None:
    """What `walk_records` says of the decompressed data, which are `count` good records and no more than `limit` bytes.

    None where they are not, or where that cannot be found out piece by piece: whoever wants to know why decompresses them
    as a whole. What does not decompress raises KafkaError, as it does there. Unless `in_pieces`, only the quick way is tried.
    """
    # Whoever comes here has been told no already, or asks of so much that it makes no difference.
    found = None if is_for_native_alone(codec, data) else walk_plain(codec, data, limit, count)
    return walk_in_pieces(codec, data, limit, count) if found is None and in_pieces else found


def walk_in_pieces(codec: Compression, data: Buffer, limit: int, count: int) -> Found | None:
    """The same, by the codec's library."""
    with lent() as memory:
        walk = _Walk(memory, limit, count)
        try:
            decompress_into(walk, codec, data)
            walk.walk()
        except (NotInOnePass, ValueError):
            return None
        is_complete = walk.walked[0] == count and not walk.left
        return walk.walked[2:] if is_complete else None
