"""The looks at a batch's header and at its records in C, and their twins in Python: the same answers about the same batches."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.log.batch_checks import is_intact, is_intact_python, ordinary_fields, ordinary_fields_python
from ottla.replication.log.tests.logs import batch, idempotent
from ottla.wire.checksum import crc32c
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import ATTRIBUTES_OFFSET, RECORDS_OFFSET, Record, read_header
from ottla.wire.tests.effort import examples

FLAGS = st.sampled_from([0, 7, 0x10, 0x17])
LIMITS = st.sampled_from([0, 1, 2, 100, 1_000_000, 2**31 - 1])
TELLING_BYTES = (0, 1, 2, 0x7F, 0x80, 0xFF)


def fields(records: memoryview, *limits: int) -> tuple[int, ...] | None:
    """What both say."""
    found = ordinary_fields(records, *limits)
    assert found == ordinary_fields_python(records, *limits)
    return found


@given(st.integers(1, 4), st.integers(-1, 3), FLAGS, LIMITS, LIMITS)
def test_both_take_the_same_of_good_batches(
    count: int, sequence: int, flags: int, records_max: int, bytes_max: int
) -> None:
    records = batch(*range(count)) if sequence < 0 else idempotent(sequence, is_transactional=sequence == 3)
    found = fields(records, flags, records_max, bytes_max)
    header = read_header(records, 0)
    is_good = header[12] <= records_max and header.batch_length <= bytes_max and not header.attributes & ~flags
    assert found == (tuple(header) if is_good else None)


@settings(max_examples=examples(300))
@given(st.randoms(use_true_random=False), FLAGS, LIMITS, LIMITS)
def test_both_take_the_same_of_damaged_batches(
    chance: random.Random, flags: int, records_max: int, bytes_max: int
) -> None:
    records = bytearray(batch(1, 2) if chance.randrange(2) else idempotent(chance.randrange(3)))
    for _ in range(chance.randint(1, 3)):
        records[chance.randrange(RECORDS_OFFSET)] = chance.choice(TELLING_BYTES)
    fields(
        memoryview(records)[: chance.choice((len(records), chance.randrange(len(records))))],
        flags,
        records_max,
        bytes_max,
    )


@given(st.binary(max_size=80))
def test_both_take_the_same_of_random_bytes(records: bytes) -> None:
    fields(memoryview(records), 0x17, 100, 100)


def is_good(records: bytes, earliest: int = -1, latest: int = 2**70) -> bool:
    """What both say."""
    found = is_intact(memoryview(records), earliest, latest)
    assert found is is_intact_python(memoryview(records), earliest, latest)
    return found


def changed(records: bytes, chance: random.Random) -> bytearray:
    """With a few other bytes, and the checksum of what it is now."""
    new = bytearray(records)
    for _ in range(chance.randint(1, 3)):
        new[chance.randrange(ATTRIBUTES_OFFSET, len(new))] = chance.choice(TELLING_BYTES)
    new[17:21] = crc32c(new[ATTRIBUTES_OFFSET:]).to_bytes(4, "big")
    return new


BOUNDS = st.sampled_from([-(2**70), -(2**63), -1, 0, 1, 5, 2**40, 2**62, 2**63 - 1, 2**63, 2**70])
TIMES = st.integers(0, 2**40) | st.sampled_from([-2, -1, 0, 2**62, 2**62 + 1, 2**63 - 1])


@given(st.lists(st.tuples(TIMES, st.binary(max_size=40)), min_size=1, max_size=5), BOUNDS, BOUNDS)
def test_both_take_the_same_good_records(made: list[tuple[int, bytes]], earliest: int, latest: int) -> None:
    records = encode_batch([Record(offset, time, None, value) for offset, (time, value) in enumerate(made)])
    times = [time for time, _ in made]
    is_in_range = min(times) >= max(-1, earliest) and max(times) <= min(2**62, latest)
    assert is_good(records, earliest, latest) is is_in_range
    assert not is_good(records[:17] + b"abcd" + records[21:], earliest, latest)


@settings(max_examples=examples(300))
@given(st.randoms(use_true_random=False), BOUNDS)
def test_both_take_the_same_damaged_records(chance: random.Random, latest: int) -> None:
    records = changed(batch(1, 2), chance)
    is_good(bytes(records), 0, latest)
    is_good(bytes(records[: chance.randrange(len(records))]), 0, latest)


@settings(max_examples=examples(100))
@given(st.lists(st.integers(0, 70_000), min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_both_take_the_same_long_records(sizes: list[int], chance: random.Random) -> None:
    records = encode_batch([Record(offset, 7, None, bytes(size)) for offset, size in enumerate(sizes)])
    assert is_good(records)
    damaged = bytearray(records)
    damaged[chance.randrange(ATTRIBUTES_OFFSET, len(damaged))] ^= 1 << chance.randrange(8)
    assert not is_good(bytes(damaged))


@given(st.binary(max_size=100))
def test_both_take_the_same_random_bytes(records: bytes) -> None:
    is_good(records)
