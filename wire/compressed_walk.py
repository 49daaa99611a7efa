"""The walk over the records of a compressed batch, while they are decompressed: little of them is in memory at a time.

Gzip of ordinary length is inflated as a whole, where libdeflate is installed: that takes four fifths of the time.
"""

from ottla.wire.buffers import KEPT_BYTES, Scratch, lent
from ottla.wire.compression import Buffer, Compression
from ottla.wire.decompression import NotInOnePass, TooLargeDecompressed, decompress_into, gunzipped, has_libdeflate
from ottla.wire.record_walk import NOTHING_WALKED, Found, continue_walk, walk_records
from ottla.wire.time_slice import let_others_run

PIECE_BYTES = 128 * 1024  # stays in a processor's own cache, and is worth the calls
_RESTS_AFTER_BYTES = 1024 * 1024


class _Walk:
    """Sink that checks decompressed records and drops them. An incomplete record waits at the start of the buffer."""

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
        """Check the complete records in the buffer. Raises ValueError if a record is malformed."""
        left, view = self.left, self._view
        self.walked = continue_walk(view, 0, left, self._count, self.walked)
        position = self.walked[1]
        if position:
            view[: left - position] = view[position:left]
            self.left = left - position
        # Whatever comes now is behind the last record.
        if self.left and self.walked[0] == self._count:
            raise NotInOnePass
        self._walks_at = self.left + PIECE_BYTES


def walk_compressed(codec: Compression, data: Buffer, limit: int, count: int, *, is_once: bool = False) -> Found | None:
    """Check that `data` decompress to exactly `count` valid records in at most `limit` bytes; see `walk_records`.

    Returns None if they do not, or if it is unknown because pieces are not enough: decompress all records to find out.
    Raises KafkaError if decompression fails. `is_once`: decompress only once, not again in the slower way.
    """
    if codec == Compression.GZIP and has_libdeflate():
        found = _walk_inflated(memoryview(data), limit, count)
        if found is not None or is_once:
            return found
    return _walk_in_pieces(codec, data, limit, count)


def _walk_inflated(data: memoryview, limit: int, count: int) -> Found | None:
    area = gunzipped(data, min(limit, KEPT_BYTES))
    try:
        return None if area is None else walk_records(area, 0, len(area), count)
    except ValueError:
        return None


def _walk_in_pieces(codec: Compression, data: Buffer, limit: int, count: int) -> Found | None:
    with lent() as memory:
        walk = _Walk(memory, limit, count)
        try:
            decompress_into(walk, codec, data)
            walk.walk()
        except (NotInOnePass, ValueError):
            return None
        is_complete = walk.walked[0] == count and not walk.left
        return walk.walked[2:] if is_complete else None
