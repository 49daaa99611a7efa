"""Java's hashing of strings and the order of its hash tables, as far as clients can see them."""

from functools import lru_cache

CACHED_CHARACTERS_MAX = 256  # names that are in use are shorter, and the cache shall stay small


def string_hash(text: str) -> int:
    """Return Java's String.hashCode, computed over UTF-16 units, as an unsigned number."""
    return _cached_hash(text) if len(text) <= CACHED_CHARACTERS_MAX else _hash(text)


def _hash(text: str, value: int = 0) -> int:
    """Continue a string hash with `text`. `value`: the hash of the preceding text."""
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8) + units[index + 1]) & 0xFFFFFFFF
    return value


_cached_hash = lru_cache(maxsize=4096)(_hash)


def absolute_string_hash(text: str) -> int:
    """Return the absolute value of Java's signed string hash; 0 for Integer.MIN_VALUE, as in Kafka."""
    return _absolute(string_hash(text))


def _absolute(value: int) -> int:
    return value if value < 0x80000000 else (0x100000000 - value) & 0x7FFFFFFF


def absolute_joined_hash(start: str, end: str) -> int:
    """Return `absolute_string_hash(start + end)`. The hash of `start` is cached for further values of `end`."""
    return _absolute(_hash(end, _hash_of_start(start)))


_hash_of_start = lru_cache(maxsize=16)(_hash)


def hash_map_slot(key: str, size: int) -> int:
    """Return a key's position in the iteration order of a java.util.HashMap with `size` entries."""
    return table_slot(key, size, 16)


def table_slot(key: str, size: int, capacity: int) -> int:
    """Return a key's slot in a java.util.HashMap with `size` entries, created with initial capacity `capacity`."""
    slots = 1 << (capacity - 1).bit_length() if capacity > 1 else 1
    # Java's table doubles when it is more than three quarters full.
    while size > slots * 0.75:
        slots *= 2
    value = string_hash(key)
    # Java mixes the high bits into the low ones, because only these choose the slot.
    return (value ^ value >> 16) & (slots - 1)
