"""What clients can see of Java's collections: where a string falls in a hash table."""

from functools import lru_cache

CACHED_CHARACTERS_MAX = 256  # names that are in use are shorter, and the cache shall stay small


def string_hash(text: str) -> int:
    """Java's String.hashCode, over UTF-16 units, as an unsigned number."""
    return _cached_hash(text) if len(text) <= CACHED_CHARACTERS_MAX else _hash(text)


def _hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8) + units[index + 1]) & 0xFFFFFFFF
    return value


_cached_hash = lru_cache(maxsize=4096)(_hash)


def absolute_string_hash(text: str) -> int:
    """The absolute value of the signed hash; that of Integer.MIN_VALUE is 0 as in Kafka."""
    value = string_hash(text)
    return value if value < 0x80000000 else (0x100000000 - value) & 0x7FFFFFFF


def hash_map_slot(key: str, size: int) -> int:
    """The place of a key when a java.util.HashMap of that many entries is iterated over."""
    slots = 16
    # Java's table doubles when it is more than three quarters full.
    while size > slots * 3 // 4:
        slots *= 2
    value = string_hash(key)
    # Java mixes the high bits into the low ones, because only these choose the slot.
    return (value ^ value >> 16) & (slots - 1)
