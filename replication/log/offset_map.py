"""The last offset of each key in the dirty part of a log, within a limit of memory."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.wire.buffers import COPIED_BYTES_MAX
from ottla.wire.records import Record

BYTES_PER_KEY = 160  # of bookkeeping, beside the key itself


class OffsetMap:
    """See above. Everything up to `latest_offset` is known, and nothing beyond it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_left = bytes_max
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, records: Iterable[Record], start_offset: int) -> bool:
        """Note the records from `start_offset` on, in their order; False if the map is full before the last one."""
        offsets, bytes_left = self._offsets, self._bytes_left
        for record in records:
            if record.key is None or record.offset < start_offset:
                continue
            key = _mapped(record.key)
            if key not in offsets:
                size = len(key) + BYTES_PER_KEY
                # The first key is taken whatever its size, or the pass would never get beyond it.
                if size > bytes_left and offsets:
                    self._bytes_left = bytes_left
                    return False
                bytes_left -= size
            offsets[key] = self.latest_offset = record.offset
        self._bytes_left = bytes_left
        return True

    def is_last(self, key: bytes, offset: int) -> bool:
        """Whether no later record has this key."""
        return offset >= self._offsets.get(_mapped(key), -1)


def _mapped(key: bytes) -> bytes:
    """The map's entry for a key. The map has a digest of a very long key, and any other key as it is."""
    # A key of a large batch is a view, which would keep the whole batch in memory for as long as the map.
    if len(key) <= COPIED_BYTES_MAX:
        return bytes(key)
    import hashlib  # here, because it loads OpenSSL, and hardly anybody has such keys

    return hashlib.blake2b(key).digest()
