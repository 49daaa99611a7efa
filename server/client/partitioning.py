"""Which partition a record goes to: that of its key, as Kafka's own clients choose it, or any.

The hash is MurmurHash2 with Kafka's seed (its class Utils); equal keys of other clients share the partition.
"""

from __future__ import annotations

from collections.abc import Sequence

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """32 bits, unsigned."""
    length = len(data)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        part = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        part = (part ^ part >> 24) * _M & _MASK
        value = (value * _M & _MASK) ^ part
    if length > whole:
        value = ((value ^ int.from_bytes(data[whole:], "little")) * _M) & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15


def partition_of(key: bytes, partitions: Sequence[int]) -> int:
    """The partition of a key, among all of its topic in their order."""
    return partitions[(murmur2(key) & 0x7FFFFFFF) % len(partitions)]
