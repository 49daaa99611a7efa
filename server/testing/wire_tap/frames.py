"""Cut a stream of bytes, in pieces of any size, into frames with a size field of four bytes.

Nearly every frame is small and lies whole in a piece: it is copied once. Of others a sink takes what it wants to keep.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ottla.server.testing.wire_tap.skeletons import Sink

WHOLE_BYTES_MAX = 128 * 1024
"""Frames up to this size are kept as they are, records included: a copy costs less than a walk."""

SIZE_BYTES = 4
_size = struct.Struct(">i").unpack_from

Whole = Callable[[bytes], None]
Begin = Callable[[int, bytes], Sink]
End = Callable[[int, Sink], None]


class NotKafka(Exception):
    """Raised for bytes that are no frames of Kafka's protocol."""


class FrameCutter:
    """Cut one direction of a connection.

    `on_whole(frame)` is called for a small frame, `on_begin(size, head)` for another one when its first `head_bytes` are
    there, and `on_end(size, sink)` with the sink that `on_begin` returned. Frames come without their size field.
    """

    __slots__ = ("_head", "_head_bytes", "_left", "_on_begin", "_on_end", "_on_whole", "_sink", "_size", "offset")

    def __init__(self, head_bytes: int, on_whole: Whole, on_begin: Begin, on_end: End) -> None:
        self._head_bytes = head_bytes
        self._on_whole, self._on_begin, self._on_end = on_whole, on_begin, on_end
        self._head = bytearray()  # of a frame whose sink is not known yet
        self._size = self._left = 0
        self._sink: Sink | None = None
        self.offset = 0
        """Bytes of the stream before the frame that was begun last."""

    @property
    def needs_bytes(self) -> bool:
        """True if the next bytes of this frame are kept, so that they must not pass by unseen."""
        return self._sink is None or self._sink.needs_bytes

    def until_boundary(self) -> int:
        """Return how many more bytes belong to the current frame for certain; 0 between two frames."""
        if self._sink is not None:
            return self._left
        have = len(self._head)
        if not have:
            return 0
        return SIZE_BYTES - have if have < SIZE_BYTES else SIZE_BYTES + _checked(_size(self._head)[0]) - have

    def feed(self, data: Any, count: int) -> None:
        """Take the first `count` bytes of `data`. Raises NotKafka."""
        at = 0
        smallest = SIZE_BYTES + self._head_bytes
        with memoryview(data) as view:
            while at < count:
                if self._sink is None and not self._head and count - at >= smallest:
                    size = _size(data, at)[0]
                    end = at + SIZE_BYTES + size
                    if self._head_bytes <= size <= WHOLE_BYTES_MAX and end <= count:
                        self._on_whole(bytes(view[at + SIZE_BYTES : end]))
                        self.offset += SIZE_BYTES + size
                        at = end
                        continue
                at = self._take(view, at, count)

    def skip(self, count: int) -> None:
        """Pass over bytes of the current frame that nobody has seen. Callers ask `needs_bytes` first."""
        assert self._sink is not None
        self._sink.skip(count)
        self._left -= count
        self._finish()

    def _take(self, view: memoryview, at: int, count: int) -> int:
        if self._sink is not None:
            end = min(count, at + self._left)
            self._sink.take(view[at:end])
            self._left -= end - at
            self._finish()
            return end
        head = self._head
        end = min(count, at + self._wanted() - len(head))
        head += view[at:end]
        if len(head) >= SIZE_BYTES and len(head) == self._wanted():
            self._begin()
        return end

    def _wanted(self) -> int:
        """Return how long `_head` has to be for the next step: the size field, then with it the first bytes."""
        if len(self._head) < SIZE_BYTES:
            return SIZE_BYTES
        return SIZE_BYTES + min(_checked(_size(self._head)[0]), self._head_bytes)

    def _begin(self) -> None:
        self._size = _size(self._head)[0]
        head = bytes(self._head[SIZE_BYTES:])
        self._sink = self._on_begin(self._size, head)
        self._sink.take(memoryview(head))
        self._head.clear()
        self._left = self._size - len(head)
        self._finish()

    def _finish(self) -> None:
        if self._left:
            return
        sink, self._sink = self._sink, None
        assert sink is not None
        self._on_end(self._size, sink)
        self.offset += SIZE_BYTES + self._size


def _checked(size: int) -> int:
    if size < 0:
        raise NotKafka(f"a frame of {size} bytes")
    return size
