"""The codec of a (class, version): generated when it is first asked for, kept for the life of the process.

Any thread may ask; two that ask for the same at once both get one, and one of these is kept.

Generating needs construct and some milliseconds per codec, which a broker that was just started would notice. So the
compiled code is kept beside Python's own compiled modules, one file per codec. A file is used only if it was written
by this very Python and generator for this very declaration, which it spells out, and if its checksum is right.
Otherwise, and where no file can be written, the codec is simply generated again: the files are never needed.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from ottla.wire import runtime
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.kept_files import read_cached, write_cached

if TYPE_CHECKING:
    from ottla.wire.schema import Struct

Codec = Callable[..., Any]

_GENERATOR_FILES = ("generator.py", "generator_decode.py", "generator_encode.py", "runtime.py", "types.py")

_codecs: dict[tuple[type[Struct], int, str], Codec] = {}


def codec(cls: type[Struct], version: int, kind: str) -> Codec:
    """The function `kind` ("decode", "decode_prefix", "decode_bounded" or "encode") of `cls` at `version`."""
    known = _codecs.get((cls, version, kind))
    if known is None:
        if version not in cls.versions:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{cls.__name__} has no version {version}")
        known = _codecs[cls, version, kind] = _load(cls, version, kind)
    return known


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
    """Where the code of a class of this package is kept; other classes are not worth a file."""
    compiled_module = __spec__.cached if __spec__ is not None else None
    # A class inside a function has "<locals>" in its name. Another function may have one of the same name.
    if compiled_module is None or not cls.__module__.startswith("ottla.") or "<" in cls.__qualname__:
        return None
    module = cls.__module__.removeprefix("ottla.")
    return Path(compiled_module).with_name(
        f"{module}.{cls.__qualname__}-v{version}-{kind}.{sys.implementation.cache_tag}.codec"
    )


def cache_key(cls: type[Struct], version: int, kind: str) -> bytes:
    """What the code depends on. OSError: the generator has no source files here."""
    return f"{kind} v{version} {sys.version} {_generator_checksums()} {cls.declaration()}".encode()


@cache
def _generator_checksums() -> list[int]:
    folder = Path(__file__).parent
    return [zlib.crc32((folder / name).read_bytes()) for name in _GENERATOR_FILES]
