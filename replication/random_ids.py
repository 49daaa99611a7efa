"""Random UUIDs as bytes. Python's own module for them looks at the platform when it is loaded, which takes longer than all else here."""

import os

_VERSION = 0xF000 << 64, 0x4000 << 64  # the bits of the version, and what they are in a random UUID (RFC 9562, version 4)
_VARIANT = 0xC000 << 48, 0x8000 << 48


def random_uuid() -> bytes:
    """One that nobody else has."""
    return uuid_of(int.from_bytes(os.urandom(16), "big"))


def uuid_of(bits: int) -> bytes:
    """The random UUID that these 128 random bits make."""
    for mask, value in (_VERSION, _VARIANT):
        bits = bits & ~mask | value
    return bits.to_bytes(16, "big")
