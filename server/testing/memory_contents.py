"""Contents of a file in memory, and frozen copies of them that share the bytes.

Logs are only appended to. So a `FrozenContents` holds the buffers of its file and how many bytes of each are its own; what
the file appends later lies behind those. A file never changes bytes that a frozen copy holds: where it is cut below them, or
written anew, it goes on in a buffer of its own. Freezing costs the same for a gigabyte as for a byte.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from ottla.replication.log.storage import Buffer
from ottla.replication.system import file_in_memory

MIRRORED_BYTES = 1 << 20  # copied at a time
PIECES_MAX = 8  # more are joined, so that a read looks at few of them


class _Piece(NamedTuple):
    """The first `length` bytes of a buffer. Only bytes behind them may still change."""

    buffer: bytes | bytearray
    length: int


class FrozenContents:
    """Contents of a file at one moment; they never change."""

    __slots__ = ("_pieces", "length")

    def __init__(self, pieces: tuple[_Piece, ...] = (), length: int = 0) -> None:
        self._pieces = pieces
        self.length = length

    @classmethod
    def of(cls, data: bytes) -> FrozenContents:
        """Return contents that are these bytes."""
        return cls((_Piece(data, len(data)),), len(data)) if data else EMPTY

    @property
    def pieces(self) -> tuple[_Piece, ...]:
        """The buffers, in order, each with the number of its bytes that count."""
        return self._pieces

    def __bytes__(self) -> bytes:
        return _joined(self._pieces)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FrozenContents):
            return NotImplemented
        # Most copies share their buffers. Then the bytes need not be looked at.
        return self.length == other.length and (self._pieces == other._pieces or bytes(self) == bytes(other))

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


class Contents:
    """Contents that can change. The bytes are some frozen pieces, then a buffer to which is appended."""

    __slots__ = ("_base", "_base_length", "_mirror", "_promised", "_tail")

    def __init__(self, frozen: FrozenContents = EMPTY) -> None:
        self._mirror: _Mirror | None = None
        self._begin(frozen.pieces, frozen.length)

    def _begin(self, pieces: tuple[_Piece, ...], length: int) -> None:
        self._base = pieces if len(pieces) <= PIECES_MAX else (_Piece(_joined(pieces), length),)
        self._base_length = length
        self._tail = bytearray()
        self._promised = 0  # bytes of the tail that frozen contents hold

    def __len__(self) -> int:
        return self._base_length + len(self._tail)

    def __bytes__(self) -> bytes:
        return _joined((*self._base, _Piece(self._tail, len(self._tail)))) if self._base else bytes(self._tail)

    def freeze(self) -> FrozenContents:
        """Return these contents as they are now."""
        tail = self._tail
        if not tail:
            return FrozenContents(self._base, self._base_length)
        self._promised = length = len(tail)  # asked once, because threads append meanwhile
        return FrozenContents((*self._base, _Piece(tail, length)), self._base_length + length)

    def append(self, buffer: Buffer) -> None:
        """Add bytes at the end."""
        self._tail += buffer

    def truncate(self, size: int) -> None:
        """Cut the contents to `size` bytes; do nothing if they are shorter."""
        self._mirror = None
        kept = size - self._base_length
        if kept >= self._promised:
            del self._tail[kept:]
        else:  # somebody holds the bytes that go, so they stay where they are
            self._begin(*_cut(self.freeze(), size))

    def descriptor(self) -> int:
        """Return a descriptor of a copy of these bytes, valid until the next cut."""
        if self._mirror is None:
            self._mirror = _Mirror()
        return self._mirror.descriptor(self)

    def read(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes from `position` on; fewer at the end."""
        start = position - self._base_length
        if start >= 0:
            # Not by a view: while one exists no other thread could append.
            return bytes(self._tail[start : start + length])
        if start + length <= 0 and len(self._base) == 1:  # as nearly always in what was restored
            return bytes(self._base[0].buffer[position : position + length])
        return b"".join(bytes(buffer[begin:end]) for buffer, begin, end in self._parts(position, length))

    def first_view(self, position: int, length: int) -> memoryview:
        """Return a view of bytes from `position` on: of `length`, or as many as lie in one piece.

        Release it before the next change: a buffer cannot grow while a view of it exists.
        """
        start = position - self._base_length
        if start >= 0:
            return memoryview(self._tail)[start : start + length]
        for buffer, begin, end in self._parts(position, length):
            return memoryview(buffer)[begin:end]
        return memoryview(b"")

    def _parts(self, position: int, length: int) -> Iterator[tuple[bytes | bytearray, int, int]]:
        """Yield the buffers that hold a range, each with the beginning and the end of its part."""
        at, end = 0, position + length
        for buffer, size in (*self._base, _Piece(self._tail, len(self._tail))):
            if at >= end:
                return
            if position < at + size:
                yield buffer, max(0, position - at), min(size, end - at)
            at += size


def _joined(pieces: tuple[_Piece, ...]) -> bytes:
    if len(pieces) == 1 and len(pieces[0].buffer) == pieces[0].length:
        return bytes(pieces[0].buffer)
    return b"".join(buffer[:length] for buffer, length in pieces)


def _cut(frozen: FrozenContents, size: int) -> tuple[tuple[_Piece, ...], int]:
    """Return the pieces of the first `size` bytes, and their number."""
    kept: list[_Piece] = []
    left = size
    for buffer, length in frozen.pieces:
        if left <= 0:
            break
        kept.append(_Piece(buffer, min(length, left)))
        left -= kept[-1].length
    return tuple(kept), size - max(0, left)
