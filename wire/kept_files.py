"""Files beside Python's own compiled modules, for what a start would otherwise work out again. None of them is ever needed.

A file spells out the key that it was written under. It is used only under the same key, and if its checksum is right.

`read_cached` and `write_cached` keep one value in a file. `Pieces` and `write_pieces` keep many pieces of bytes, of which a reader
takes those that it needs. There the table in front of them has a checksum, and in it is that of each piece. Nothing is synced: after
a power cut a file may have its name and its length, and zeros where its content should be, which Python would run or stumble over.
"""

from __future__ import annotations

import marshal
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from ottla.wire.checksum import crc32c

_LENGTH_BYTES = 4
_PIECES = b"pieces 3 "
"""In front of the key of pieces, the number of their layout: an upgrade leaves the files of the release before where they are."""

Place = tuple[int, int, bytes]
"""Where in the file a piece begins, its length, and its checksum."""


def read_cached(path: Path, key: bytes) -> Any:
    """What `write_cached` has kept in `path`, if it is whole and was written under the same key; else None."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    # A view, because each copy of a megabyte would take as long as reading it.
    body, checksum = memoryview(content)[_LENGTH_BYTES:], content[:_LENGTH_BYTES]
    start = _LENGTH_BYTES + len(key)
    if checksum != _checksum(body) or body[:start] != len(key).to_bytes(_LENGTH_BYTES, "big") + key:
        return None
    try:
        return marshal.loads(body[start:])  # as trustworthy as the .pyc files beside it
    except (EOFError, ValueError, TypeError):
        return None


def write_cached(path: Path, key: bytes, value: Any) -> None:
    """Replace `path` at once, so that nobody reads half of it; do nothing where that is impossible.

    The value is code, or what else Python keeps in compiled modules.
    """
    body = len(key).to_bytes(_LENGTH_BYTES, "big") + key + marshal.dumps(value)
    _replace(path, [_checksum(body), body])


class Pieces:
    """Pieces of bytes by their names, and what is known of each: `table[name]`, a tuple."""

    def __init__(self, file: int | None, table: Mapping[str, tuple[Any, ...]], places: Mapping[str, Place]) -> None:
        self._file = file
        self.table = table
        self._places = places

    @classmethod
    def of(cls, path: Path, key: bytes) -> Self:
        """Those that `write_pieces` has kept, or none. To be closed."""
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return cls(None, {}, {})
        found = _read_head(file, key)
        if found is None:
            os.close(file)
            return cls(None, {}, {})
        return cls(file, *found)

    def read(self, name: str) -> bytes | None:
        """None: there is none, it is damaged, or they are closed."""
        # Read once: another thread may close them. If the number is another file's by now, the checksum tells.
        place, file = self._places.get(name), self._file
        if place is None or file is None:
            return None
        start, length, checksum = place
        try:
            piece = os.pread(file, length, start)
        except OSError:
            return None
        return piece if _checksum(piece) == checksum else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def _read_head(file: int, key: bytes) -> tuple[dict[str, tuple[Any, ...]], dict[str, Place]] | None:
    """The table and the places of a file of pieces; None if it is damaged or has another key."""
    try:
        length, size = int.from_bytes(os.pread(file, _LENGTH_BYTES, 0), "big"), os.fstat(file).st_size
        if length > size:  # four gigabytes, it may say
            return None
        head = os.pread(file, length, _LENGTH_BYTES)
        checksum, body = head[:_LENGTH_BYTES], memoryview(head)[_LENGTH_BYTES:]
        if len(head) != length or checksum != _checksum(body):
            return None
        kept_key, total, table, ends = marshal.loads(body)
        if kept_key != _PIECES + key or size != total + _LENGTH_BYTES + length:
            return None
    except (OSError, EOFError, ValueError, TypeError):
        return None
    places, start = {}, _LENGTH_BYTES + length
    for name, (piece_bytes, checksum) in zip(table, ends, strict=True):
        places[name] = start, piece_bytes, checksum
        start += piece_bytes
    return table, places


def write_pieces(path: Path, key: bytes, pieces: Mapping[str, tuple[tuple[Any, ...], bytes]]) -> None:
    """Keep pieces, each with what is known of it, for `Pieces.of`; as `write_cached` does."""
    table = {name: tuple(info) for name, (info, _) in pieces.items()}
    ends = [(len(piece), _checksum(piece)) for _, piece in pieces.values()]
    body = marshal.dumps((_PIECES + key, sum(length for length, _ in ends), table, ends))
    length = (_LENGTH_BYTES + len(body)).to_bytes(_LENGTH_BYTES, "big")
    _replace(path, [length, _checksum(body), body, *(piece for _, piece in pieces.values())])


def _replace(path: Path, content: Iterable[bytes]) -> None:
    if sys.dont_write_bytecode:
        return
    # Two processes may write the same file, so each has a name of its own for the unfinished one.
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            unfinished.unlink()  # of a process that was killed
        # What is in there will be run, so nobody else may write to it, whatever the umask: Python's own files are no different.
        with open(unfinished, "xb", opener=_for_us_to_write) as file:
            file.writelines(content)
        unfinished.replace(path)
    except BaseException as problem:  # Ctrl-C as well
        with suppress(OSError):
            unfinished.unlink()
        if not isinstance(problem, OSError):
            raise


def _for_us_to_write(path: str, flags: int) -> int:
    return os.open(path, flags, 0o644)


def _checksum(body: bytes | memoryview) -> bytes:
    # That of records, because a start looks at five megabytes: zlib's takes twenty times as long.
    return crc32c(body).to_bytes(_LENGTH_BYTES, "big")
