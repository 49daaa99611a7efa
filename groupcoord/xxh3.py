"""XXH3 with 64 bits, without a seed: the hash by which Kafka's coordinators recognise topics.

Kafka keeps such hashes in the records of groups, so ours have to be the same numbers. The algorithm is specified with the
reference implementation of xxHash; inputs of up to 16, 128, 240 bytes and longer ones are mixed in four different ways.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF

_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MIX_1, _MIX_2 = 0x165667919E3779F9, 0x9FB21C651E98DF25

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE = 64
_STRIPES_PER_BLOCK = (len(_SECRET) - _STRIPE) // 8
_LANES = struct.Struct("<8Q").unpack_from
_ACCUMULATORS = (_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1)


def _read32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _read64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _fold(left: int, right: int) -> int:
    """The two halves of a product of 128 bits, one upon the other."""
    product = left * right
    return (product & _MASK64) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value = ((value ^ value >> 37) * _MIX_1) & _MASK64
    return value ^ value >> 32


def _old_avalanche(value: int) -> int:
    value = ((value ^ value >> 33) * _P64_2) & _MASK64
    value = ((value ^ value >> 29) * _P64_3) & _MASK64
    return value ^ value >> 32


def _mix16(data: bytes, at: int, secret_at: int) -> int:
    return _fold(
        _read64(data, at) ^ _read64(_SECRET, secret_at), _read64(data, at + 8) ^ _read64(_SECRET, secret_at + 8)
    )


def _tiny(data: bytes) -> int:
    """Up to 3 bytes."""
    length = len(data)
    if not length:
        return _old_avalanche(_read64(_SECRET, 56) ^ _read64(_SECRET, 64))
    combined = data[0] << 16 | data[length >> 1] << 24 | data[-1] | length << 8
    return _old_avalanche(combined ^ _read32(_SECRET, 0) ^ _read32(_SECRET, 4))


def _small(data: bytes) -> int:
    """4 to 8 bytes."""
    length = len(data)
    value = (_read32(data, length - 4) + (_read32(data, 0) << 32)) ^ _read64(_SECRET, 8) ^ _read64(_SECRET, 16)
    value ^= (value << 49 | value >> 15) & _MASK64 ^ (value << 24 | value >> 40) & _MASK64
    value = (value * _MIX_2) & _MASK64
    value ^= (value >> 35) + length
    value = (value * _MIX_2) & _MASK64
    return value ^ value >> 28


def _short(data: bytes) -> int:
    """9 to 16 bytes."""
    length = len(data)
    low = _read64(data, 0) ^ _read64(_SECRET, 24) ^ _read64(_SECRET, 32)
    high = _read64(data, length - 8) ^ _read64(_SECRET, 40) ^ _read64(_SECRET, 48)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return _avalanche((length + swapped + high + _fold(low, high)) & _MASK64)


def _medium(data: bytes) -> int:
    """17 to 128 bytes."""
    length = len(data)
    value = length * _P64_1
    for step in range((length - 1) // 32, -1, -1):
        value += _mix16(data, 16 * step, 32 * step)
        value += _mix16(data, length - 16 * (step + 1), 32 * step + 16)
    return _avalanche(value & _MASK64)


def _longer(data: bytes) -> int:
    """129 to 240 bytes."""
    length = len(data)
    value = length * _P64_1 + sum(_mix16(data, 16 * step, 16 * step) for step in range(8))
    value = _avalanche(value & _MASK64)
    value += sum(_mix16(data, 16 * step, 16 * (step - 8) + 3) for step in range(8, length // 16))
    value += _mix16(data, length - 16, 136 - 17)
    return _avalanche(value & _MASK64)


def _accumulate(sums: list[int], lanes: Sequence[int], keys: Sequence[int]) -> None:
    """Take in one stripe of 64 bytes."""
    for index in range(8):
        lane = lanes[index]
        keyed = lane ^ keys[index]
        sums[index ^ 1] += lane
        sums[index] = (sums[index] + (keyed & _MASK32) * (keyed >> 32)) & _MASK64


def _scramble(sums: list[int], keys: Sequence[int]) -> None:
    """Done after each block."""
    for index in range(8):
        value = sums[index] & _MASK64
        sums[index] = ((value ^ value >> 47 ^ keys[index]) * _P32_1) & _MASK64


def _merge(sums: list[int], secret_at: int, start: int) -> int:
    keys = _LANES(_SECRET, secret_at)
    total = start + sum(
        _fold((sums[index] & _MASK64) ^ keys[index], (sums[index + 1] & _MASK64) ^ keys[index + 1])
        for index in range(0, 8, 2)
    )
    return _avalanche(total & _MASK64)


_STRIPE_KEYS = [_LANES(_SECRET, 8 * stripe) for stripe in range(_STRIPES_PER_BLOCK)]
_BLOCK_KEYS = _LANES(_SECRET, len(_SECRET) - _STRIPE)
_LAST_KEYS = _LANES(_SECRET, len(_SECRET) - _STRIPE - 7)


def _long(data: bytes) -> int:
    """More than 240 bytes."""
    sums = list(_ACCUMULATORS)
    stripes = (len(data) - 1) // _STRIPE
    for stripe in range(stripes):
        within = stripe % _STRIPES_PER_BLOCK
        _accumulate(sums, _LANES(data, stripe * _STRIPE), _STRIPE_KEYS[within])
        if within == _STRIPES_PER_BLOCK - 1:
            _scramble(sums, _BLOCK_KEYS)
    # The last stripe ends with the data, so it may overlap with the one before.
    _accumulate(sums, _LANES(data, len(data) - _STRIPE), _LAST_KEYS)
    return _merge(sums, 11, (len(data) * _P64_1) & _MASK64)


def xxh3_64(data: bytes) -> int:
    """The hash of these bytes, as an unsigned number."""
    length = len(data)
    for limit, hashed in ((3, _tiny), (8, _small), (16, _short), (128, _medium), (240, _longer)):
        if length <= limit:
            return hashed(data)
    return _long(data)
