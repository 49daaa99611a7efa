"""Codecs by (class, version): generated when first asked for, kept for the life of the process.

Any thread may ask; two that ask for the same at once both get one, and one of these is kept.

Generating needs construct and some milliseconds per codec, which a broker that was just started would notice. So the
compiled code is kept beside Python's own compiled modules, one file per codec. A file spells out its key: this very Python, generator
and declaration. It is used only under the same key, and if its checksum is right. Otherwise, and where no file can be written, the
codec is simply generated again: the files are never needed. Nothing is synced: after a power cut a file may hold zeros, which the
checksum finds.
"""

from __future__ import annotations

import marshal
import os
import sys
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from ottla.wire import runtime
from ottla.wire.checksum import crc32c
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.wire.schema import Struct

_LENGTH_BYTES = 4


def read_cached(path: Path, key: bytes) -> Any:
    """Return the value that `write_cached` stored at `path`; None if it is incomplete or has another key."""
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
    """Replace the file at `path` atomically; do nothing if that is impossible.

    `value` is anything that compiled modules can hold.
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
        # This code will be run, so no other user may write to it, whatever the umask: Python's own files are no different.
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


Codec = Callable[..., Any]

_GENERATOR_FILES = ("generator.py", "generator_decode.py", "generator_encode.py", "runtime.py", "types.py")

_codecs: dict[tuple[type[Struct], int, str], Codec] = {}


def codec(cls: type[Struct], version: int, kind: str) -> Codec:
    """Return a function for `cls` at `version`; `kind` is decode, decode_prefix, decode_bounded or encode."""
    known = _codecs.get((cls, version, kind))
    if known is None:
        if version not in cls.versions:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{cls.__name__} has no version {version}")
        known = _codecs[cls, version, kind] = _load(cls, version, kind)
    return known


def is_loaded(cls: type[Struct], version: int, kind: str) -> bool:
    """Return True if `codec` returns this function without loading it."""
    return (cls, version, kind) in _codecs


def _load(cls: type[Struct], version: int, kind: str) -> Codec:
    namespace: dict[str, Any] = {name: getattr(runtime, name) for name in runtime.__all__}
    namespace.update(cls.structs())
    exec(_code(cls, version, kind), namespace)  # noqa: S102 - our own code, see the module's docstring
    function: Codec = namespace[kind]
    return function


def _code(cls: type[Struct], version: int, kind: str) -> CodeType:
    path = cache_path(cls, version, kind)
    if path is None:
        return _generate(cls, version, kind)
    try:
        key = cache_key(cls, version, kind)
    except OSError:  # an installation without source files
        return _generate(cls, version, kind)
    code = read_cached(path, key)
    if not isinstance(code, CodeType):
        code = _generate(cls, version, kind)
        write_cached(path, key, code)
    return code


def _generate(cls: type[Struct], version: int, kind: str) -> CodeType:
    from ottla.wire.generator import generate

    return compile(generate(cls, version, kind), f"<{kind} {cls.__name__} v{version}>", "exec")


# ------------------------------------------------------------------ the files


def cache_path(cls: type[Struct], version: int, kind: str) -> Path | None:
    """Return the path of the cached codec of a class in this package; None for other classes."""
    compiled_module = __spec__.cached if __spec__ is not None else None
    # A class inside a function has "<locals>" in its name. Another function may have one of the same name.
    if compiled_module is None or not cls.__module__.startswith("ottla.") or "<" in cls.__qualname__:
        return None
    module = cls.__module__.removeprefix("ottla.")
    return Path(compiled_module).with_name(
        f"{module}.{cls.__qualname__}-v{version}-{kind}.{sys.implementation.cache_tag}.codec"
    )


def cache_key(cls: type[Struct], version: int, kind: str) -> bytes:
    """Return a key that changes with everything that the generated code depends on.

    Raises OSError if source files are missing.
    """
    return f"{kind} v{version} {sys.version} {_generator_checksums()} {cls.declaration()}".encode()


@cache
def _generator_checksums() -> list[int]:
    folder = Path(__file__).parent
    return [zlib.crc32((folder / name).read_bytes()) for name in _GENERATOR_FILES]
