"""Contents of a file in memory, and frozen copies of them that share the bytes.

Logs are only appended to. So a `FrozenContents` holds the buffers of its file and how many bytes of each are its own; what
the file appends later lies behind those. A file never changes bytes that a frozen copy holds: where it is cut below them, or
written anew, it goes on in a buffer of its own. Freezing costs the same for a gigabyte as for a byte.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from ottla.replication.log.storage import Buffer
from ottla.replication.system import file_in_memory
from ottla.server.testing.memory.chunks import CHUNK_BYTES, Chunk

MIRRORED_BYTES = 1 << 20  # copied at a time
SHORT_BYTES_MAX = 256 * 1024  # longer ones are in chunks
PIECES_MAX = 8  # of short contents; more are joined


class _Piece(NamedTuple):
    """The first `length` bytes of a buffer. Only bytes behind them may still change."""

    buffer: bytes | bytearray | Chunk
    length: int


class FrozenContents:
    """Contents of a file at one moment; they never change."""

    __slots__ = ("length", "pieces")

    def __init__(self, pieces: tuple[_Piece, ...] = (), length: int = 0) -> None:
        self.pieces = pieces
        """The buffers, in order, each with the number of its bytes that count."""
        self.length = length

    @classmethod
    def of(cls, data: bytes) -> FrozenContents:
        """Return contents that are these bytes."""
        return cls((_Piece(data, len(data)),), len(data)) if data else EMPTY

    def __bytes__(self) -> bytes:
        return _joined(self.pieces)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FrozenContents):
            return NotImplemented
        # Most copies share their buffers. Then the bytes need not be looked at.
        return self.length == other.length and (self.pieces == other.pieces or bytes(self) == bytes(other))

    __hash__ = None  # type: ignore[assignment]  # of a gigabyte it would be dear

    def __repr__(self) -> str:
        return f"FrozenContents({self.length} bytes)"


EMPTY = FrozenContents()


class _Mirror:
    """A file without a name that has a copy of contents, for whoever needs a descriptor of them, as TLS does."""

    __slots__ = ("_descriptor", "_length")

    def __init__(self) -> None:
        found = file_in_memory()
        if found is not None:
            self._descriptor = found[0]
        else:  # not every system has such files
            with tempfile.TemporaryFile() as file:
                self._descriptor = os.dup(file.fileno())
        self._length = 0

    def __del__(self) -> None:
        os.close(self._descriptor)

    def descriptor(self, contents: Contents) -> int:
        """Return the descriptor, after adding what was appended since."""
        while self._length < len(contents):
            data = contents.read(self._length, MIRRORED_BYTES)
            self._length += os.pwrite(self._descriptor, data, self._length)
        return self._descriptor


class _Layout(NamedTuple):
    """Where the bytes of contents lie. A whole one takes the place of another, because threads look at it meanwhile."""

    pieces: tuple[_Piece, ...]
    ends: tuple[int, ...]
    """End of each piece, as a position in the contents."""
    start: int
    """Number of the bytes before the tail."""
    tail: bytearray | Chunk
    """Bytes behind the pieces, to which files append."""

    @classmethod
    def of(cls, pieces: tuple[_Piece, ...]) -> _Layout:
        if not pieces:
            return cls((), (), 0, bytearray())
        ends = tuple(accumulate([length for _, length in pieces]))
        start = ends[-1]
        # Short pieces come from restored snapshots to which was appended; a long file has a chunk in each piece.
        if len(pieces) > PIECES_MAX + 2 * (start // CHUNK_BYTES):
            pieces, ends = (_Piece(_joined(pieces), start),), (start,)
        return cls(pieces, ends, start, bytearray())

    def followed_by_chunk(self) -> _Layout:
        """Return these bytes with a new chunk as the tail."""
        length = len(self.tail)
        if not length:
            return self._replace(tail=Chunk())
        end = self.start + length
        return _Layout((*self.pieces, _Piece(self.tail, length)), (*self.ends, end), end, Chunk())


class Contents:
    """Contents that can change. The bytes are some frozen pieces, then a buffer to which is appended."""

    __slots__ = ("_layout", "_mirror", "_promised")

    def __init__(self, frozen: FrozenContents = EMPTY) -> None:
        self._mirror: _Mirror | None = None
        self._begin(frozen.pieces)

    def _begin(self, pieces: tuple[_Piece, ...]) -> None:
        self._layout = _Layout.of(pieces)
        self._promised = 0  # bytes of the tail that frozen contents hold

    def __len__(self) -> int:
        layout = self._layout
        return layout.start + len(layout.tail)

    def __bytes__(self) -> bytes:
        pieces, _, _, tail = self._layout
        return _joined((*pieces, _Piece(tail, len(tail))))

    def freeze(self) -> FrozenContents:
        """Return these contents as they are now."""
        pieces, _, start, tail = self._layout
        length = len(tail)  # asked once, because threads append meanwhile
        if not length:
            return FrozenContents(pieces, start)
        self._promised = length
        return FrozenContents((*pieces, _Piece(tail, length)), start + length)

    def append(self, buffer: Buffer) -> None:
        """Add bytes at the end."""
        tail = self._layout.tail
        if isinstance(tail, bytearray) and len(tail) + len(buffer) <= SHORT_BYTES_MAX:
            tail += buffer
            return
        with memoryview(buffer) as view:
            at = 0 if isinstance(tail, bytearray) else tail.append(view)
            while at < len(view):
                chunk = self._begin_chunk()
                at += chunk.append(view[at:])

    def _begin_chunk(self) -> Chunk:
        self._layout = self._layout.followed_by_chunk()
        self._promised = 0
        assert isinstance(self._layout.tail, Chunk)
        return self._layout.tail

    def truncate(self, size: int) -> None:
        """Cut the contents to `size` bytes; do nothing if they are shorter."""
        self._mirror = None
        tail, kept = self._layout.tail, size - self._layout.start
        if kept < self._promised or kept < 0:  # somebody holds the bytes that go, so they stay where they are
            self._begin(_cut(self.freeze(), size))
        elif isinstance(tail, bytearray):
            del tail[kept:]
        else:
            tail.truncate(kept)

    def descriptor(self) -> int:
        """Return a descriptor of a copy of these bytes, valid until the next cut."""
        if self._mirror is None:
            self._mirror = _Mirror()
        return self._mirror.descriptor(self)

    def read(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes from `position` on; fewer at the end."""
        # Not by a view: while one exists no other thread could append.
        pieces, _, start, tail = self._layout
        if (begin := position - start) >= 0:
            return bytes(tail[begin : min(begin + length, len(tail))])
        if len(pieces) == 1 and position + length <= start:  # as nearly always in what was restored
            return bytes(pieces[0].buffer[position : position + length])
        return b"".join([buffer[begin:end] for buffer, begin, end in self._parts(position, length)])

    def first_view(self, position: int, length: int) -> memoryview:
        """Return a view of bytes from `position` on: of `length`, or as many as lie in one piece.

        Release it before the next change: a buffer cannot grow while a view of it exists.
        """
        for buffer, begin, end in self._parts(position, length):
            return (buffer.view() if isinstance(buffer, Chunk) else memoryview(buffer))[begin:end]
        return memoryview(b"")

    def _parts(self, position: int, length: int) -> Iterator[tuple[bytes | bytearray | Chunk, int, int]]:
        """Yield the buffers that hold a range, each with the beginning and the end of its part."""
        pieces, ends, start, tail = self._layout
        last = position + length
        for index in range(bisect_right(ends, position), len(pieces)):
            buffer, size = pieces[index]
            at = ends[index] - size
            if at >= last:
                return
            yield buffer, max(0, position - at), min(size, last - at)
        if (end := min(len(tail), last - start)) > (begin := max(0, position - start)):
            yield tail, begin, end


def _joined(pieces: tuple[_Piece, ...]) -> bytes:
    if len(pieces) == 1:
        return bytes(pieces[0].buffer[: pieces[0].length])  # of bytes it is no copy
    return b"".join([buffer[:length] for buffer, length in pieces])


def _cut(frozen: FrozenContents, size: int) -> tuple[_Piece, ...]:
    """Return the pieces of the first `size` bytes."""
    kept: list[_Piece] = []
    left = size
    for buffer, length in frozen.pieces:
        if left <= 0:
            break
        kept.append(_Piece(buffer, min(length, left)))
        left -= kept[-1].length
    return tuple(kept)
