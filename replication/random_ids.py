"""Random UUIDs as bytes. Python's own module for them looks at the platform when it is loaded, which takes longer than all else here.

Unguessable numbers come from the operating system, like the numbers of `secrets`, whose imports would make starts slower.
`server/tests/test_forked.py` lists who may use Python's `random`.
"""

from __future__ import annotations

import os

# The bits of the version and of the variant, and what they are in a random UUID (RFC 9562, version 4).
_VERSION = 0xF000 << 64, 0x4000 << 64
_VARIANT = 0xC000 << 48, 0x8000 << 48
_UUID_BYTES = 16


def random_uuid() -> bytes:
    """Return a random UUID."""
    return uuid_of(int.from_bytes(os.urandom(_UUID_BYTES), "big"))


def uuid_of(bits: int) -> bytes:
    """Return the random UUID (version 4) with these 128 random bits."""
    for mask, value in (_VERSION, _VARIANT):
        bits = bits & ~mask | value
    return bits.to_bytes(_UUID_BYTES, "big")


class UuidSupply:
    """Source of random UUIDs, which takes the bytes for about 1,000 of them from one system call.

    After each call the event loop may have to wait for other threads.
    """

    def __init__(self, asked_at_once: int = 1024) -> None:
        self._bytes_at_once = asked_at_once * _UUID_BYTES
        self._left = memoryview(b"")

    def clear(self) -> None:
        """Discard the unused bytes of the last system call."""
        self._left = memoryview(b"")

    def take(self) -> bytes:
        """Return a random UUID."""
        if not self._left:
            self._left = memoryview(os.urandom(self._bytes_at_once))
        bits, self._left = self._left[:_UUID_BYTES], self._left[_UUID_BYTES:]
        return uuid_of(int.from_bytes(bits, "big"))


RESERVED_IDS = (bytes(16), bytes(15) + b"\x01")
_topic_ids = UuidSupply()
# Workers are forked from one process. With the same bytes two of them would give different topics the same ids.
os.register_at_fork(after_in_child=_topic_ids.clear)


def random_topic_id() -> bytes:
    """Return a random topic id that is not one of Kafka's two reserved ids."""
    while (topic_id := _topic_ids.take()) in RESERVED_IDS:
        pass
    return topic_id
