"""CRC-32C, by the native module where the processor has the instruction for it, else by a package.

`google-crc32c` is always there. It takes bytes alone, so that a view costs a copy: a microsecond for 16 KiB. Where nobody has compiled
it, as for musl, it computes in Python, 280 ms for a mebibyte. So `crc32c`, which is compiled for more systems, comes first if somebody
has installed it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ottla.wire.native import native

Crc32c = Callable[..., int]


def _of_package() -> Crc32c:
    try:
        found: Crc32c = import_module("crc32c").crc32c
    except ModuleNotFoundError:
        extend: Callable[[int, bytes], int] = import_module("google_crc32c").extend
    else:
        return found

    def crc32c(data: Any, value: int = 0) -> int:
        return extend(value, data if type(data) is bytes else bytes(memoryview(data)))

    return crc32c


_compiled: Crc32c | None = native("crc32c", None)
crc32c: Crc32c = _of_package() if _compiled is None else _compiled
"""crc32c(data, value=0) -> int: the checksum of any buffer, continued from `value`."""
