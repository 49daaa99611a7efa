"""Files beside Python's own compiled modules, for what a start would otherwise work out again. None of them is ever needed.

A file spells out the key that it was written under. It is used only under the same key, and if its checksum is right. Nothing is
synced: after a power cut a file may have its name and its length, and zeros where its content should be, which Python would run or
stumble over.
"""

from __future__ import annotations

import marshal
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ottla.wire.checksum import crc32c

_LENGTH_BYTES = 4


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
