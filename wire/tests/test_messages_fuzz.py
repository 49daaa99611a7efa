"""Bytes from a stranger either decode or raise ProtocolViolation, for every version of every message.

The fast codec and the plain construct accept the same and refuse the same.
"""

import random
from typing import cast

import construct
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.wire.errors import ProtocolViolation
from ottla.wire.schema import Struct
from ottla.wire.tests.effort import examples
from ottla.wire.tests.message_values import cases, values

# Lengths and counts that lie, in both encodings: nulls, one too many, the largest, varints that do not end.
LIES = [
    b"\xff",
    b"\x00",
    b"\x80",
    b"\x7f\xff",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x80",
    b"\xf0\x9f\x98",
]


def damaged(encoded: bytes, chance: random.Random) -> bytes:
    """`encoded` with one to three places overwritten, cut out or doubled."""
    body = bytearray(encoded)
    for _ in range(chance.randint(1, 3)):
        at = chance.randint(0, len(body))
        match chance.randrange(4):
            case 0:
                body[at : at + 1] = chance.randbytes(1)
            case 1:
                lie = chance.choice(LIES)
                body[at : at + len(lie)] = lie
            case 2:
                del body[at : at + chance.randint(1, 4)]
            case 3:
                body[at:at] = body[at : at + chance.randint(1, 8)]
    return bytes(body)


def decodes_or_violates(cls: type[Struct], version: int, body: bytes) -> Struct | None:
    try:
        decoded, end = cls.decode_prefix(body, version)
    except ProtocolViolation:
        return None
    assert end <= len(body)
    # What was accepted can be passed on, and reads the same there. Two objects with a NaN are never equal.
    passed_on = decoded.encode(version)
    assert cls.decode(passed_on, version).encode(version) == passed_on
    return decoded


def parsed(plain: construct.Construct, body: bytes) -> Struct | None:
    """What the plain construct makes of it."""
    try:
        return cast(Struct, plain.parse(body))
    except construct.ConstructError:
        return None


@pytest.mark.parametrize(("cls", "version"), cases())
@settings(max_examples=examples(4), deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_foreign_bytes_decode_or_violate_the_protocol(
    cls: type[Struct], version: int, data: st.DataObject, seed: int
) -> None:
    chance = random.Random(seed)
    encoded = data.draw(values(cls, version)).encode(version)
    plain = cls.construct(version)
    for _ in range(12):
        body = damaged(encoded, chance)
        assert decodes_or_violates(cls, version, body) == parsed(plain, body)
        decodes_or_violates(cls, version, chance.randbytes(chance.randint(0, 60)))
        decodes_or_violates(cls, version, bytes(chance.choices(b"\x00\x01\x02\x05\x7f\xff", k=chance.randint(0, 60))))


@pytest.mark.thorough
@pytest.mark.parametrize(("cls", "version"), cases())
@settings(max_examples=examples(3), deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_truncated_body_violates_the_protocol(cls: type[Struct], version: int, data: st.DataObject) -> None:
    encoded = data.draw(values(cls, version)).encode(version)
    ends = range(0, len(encoded), 1 + len(encoded) // 40)
    for end in ends:
        with pytest.raises(ProtocolViolation):
            cls.decode(encoded[:end], version)
        with pytest.raises(ProtocolViolation):
            cls.decode(encoded, version, 0, end)
