"""The partition of a key, as the Java client's producer chooses it: MurmurHash2 (Kafka: BuiltInPartitioner, Utils.murmur2)."""

from __future__ import annotations

SEED, FACTOR, SHIFT = 0x9747B28C, 0x5BD1E995, 24
_MASK = 0xFFFFFFFF


def partition_of_key(key: bytes | None, partition_count: int) -> int:
    """Without a key the first one: a producer of one record may choose any."""
    return 0 if key is None else (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """32 bits, unsigned."""
    mixed = SEED ^ len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * FACTOR & _MASK
        word = (word ^ word >> SHIFT) * FACTOR & _MASK
        mixed = (mixed * FACTOR & _MASK) ^ word
    if rest := data[whole:]:
        mixed = (mixed ^ int.from_bytes(rest, "little")) * FACTOR & _MASK
    mixed = (mixed ^ mixed >> 13) * FACTOR & _MASK
    return mixed ^ mixed >> 15
