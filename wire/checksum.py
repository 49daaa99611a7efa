"""CRC-32C of record batches, and MurmurHash2 of keys.

The native module computes CRC-32C where the processor has the instruction for it; else a package does. `google-crc32c` is always
installed. It takes bytes alone, so that a view costs a copy: a microsecond for 16 KiB. Without the compiled module, as on musl,
this module computes in Python, 280 ms for a mebibyte. So `crc32c`, which is compiled for more systems, comes first if somebody
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

_MURMUR_SEED, _MURMUR_FACTOR, _MASK = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return Kafka's murmur2 hash (Utils.murmur2), unsigned, 32 bits; Java's producer uses it to choose partitions."""
    mixed = (_MURMUR_SEED ^ len(data)) & _MASK
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MURMUR_FACTOR & _MASK
        word = (word ^ word >> 24) * _MURMUR_FACTOR & _MASK
        mixed = (mixed * _MURMUR_FACTOR & _MASK) ^ word
    if rest := data[whole:]:
        mixed = (mixed ^ int.from_bytes(rest, "little")) * _MURMUR_FACTOR & _MASK
    mixed = (mixed ^ mixed >> 13) * _MURMUR_FACTOR & _MASK
    return mixed ^ mixed >> 15
