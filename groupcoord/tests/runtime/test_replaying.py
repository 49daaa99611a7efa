"""A partition of an internal topic is read into its shard."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.groupcoord.classic.members import (
    GroupMetadataKey,
    GroupMetadataRecord,
    GroupMetadataValue,
    group_tombstone,
)
from ottla.groupcoord.offsets.table import OffsetCommitKey, OffsetCommitValue, OffsetRecord, offset_tombstone
from ottla.groupcoord.runtime import coordinator_shard
from ottla.groupcoord.runtime.coordinator_shard import Outcome, ShardKind
from ottla.groupcoord.runtime.loading import LONG_VALUE_BYTES, replay_batches
from ottla.groupcoord.service import GroupTypes, shard_kind
from ottla.groupcoord.tests.conversation import Conversation
from ottla.wire.compression import Compression
from ottla.wire.control_batches import ControlType, EndTxnMarker, encode_end_txn_marker
from ottla.wire.errors import ProtocolViolation
from ottla.wire.record_encoding import encode_batch, encode_pairs
from ottla.wire.records import DECOMPRESSED_BYTES_MAX, Record
from ottla.wire.tests.effort import examples

COMMITS = b"\0\1"


class Kind:
    """Records that are their values; a value "bad" does not parse."""

    topic = "a topic"
    superseding = frozenset({COMMITS})

    def decode(self, key: bytes | None, value: bytes | None) -> bytes | None:
        if value is not None and value.startswith(b"bad"):
            raise ProtocolViolation("bad")
        return b"" if value is None else value


class Replayed:
    """A shard that writes down what it replays: record, offset, producer id."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, int, int]] = []

    def replay(self, record: bytes, offset: int, producer_id: int) -> None:
        self.records.append((record, offset, producer_id))


def replayed(*records: tuple[bytes, bytes | None], **options: Any) -> list[tuple[bytes, int, int]]:
    shard: Any = Replayed()
    kind: Any = Kind()
    batch = encode_batch([Record(offset, 0, *each) for offset, each in enumerate(records)], **options)
    for waits_for in replay_batches(kind, shard, batch):
        if waits_for is not None:
            waits_for.load()
    return shard.records


def test_a_value_that_another_follows_is_not_replayed() -> None:
    key, other, growing = COMMITS + b"key", COMMITS + b"other", b"\0\7key"
    values = [(key, b"1"), (growing, b"2"), (other, b"3"), (key, b"4"), (growing, b"5")]
    assert replayed(*values) == [(b"2", 1, -1), (b"3", 2, -1), (b"4", 3, -1), (b"5", 4, -1)]


def test_tombstones_and_what_belongs_to_a_transaction_are_all_replayed() -> None:
    key = COMMITS + b"key"
    values = [(key, b"1"), (key, None), (key, None), (key, b"4"), (key, b"5")]
    assert replayed(*values) == [(b"1", 0, -1), (b"", 1, -1), (b"", 2, -1), (b"5", 4, -1)]
    transaction = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    assert [offset for _, offset, _ in replayed(*values, **transaction)] == [0, 1, 2, 3, 4]


def test_the_last_value_that_parses_counts() -> None:
    """A broker of a newer release may have written the last one, or a disk has damaged it."""
    key = COMMITS + b"key"
    assert replayed((key, b"1"), (key, b"2"), (key, b"bad"), (key, b"bad")) == [(b"2", 1, -1)]
    assert replayed((key, b"bad"), (key, b"2"), (key, None), (key, b"bad")) == [(b"2", 1, -1), (b"", 2, -1)]


def test_a_thread_decompresses_a_long_batch() -> None:
    noise = random.Random(1).randbytes(LONG_VALUE_BYTES)
    shard: Any = Replayed()
    kind: Any = Kind()
    key = COMMITS + b"key"
    batch = encode_batch([Record(0, 0, b"a", noise), Record(1, 0, key, b"first")], compression=Compression.ZSTD)
    batch += encode_batch([Record(0, 0, key, b"second")], base_offset=2)
    done = [each.load() for each in replay_batches(kind, shard, batch) if each is not None]
    # What comes behind it is collected when it is replayed, so no two of them are in memory together.
    assert shard.records == [(noise, 0, -1), (b"first", 1, -1), (b"second", 2, -1)]
    assert len(done) == 1


@pytest.mark.parametrize(("size", "is_compressed"), [(coordinator_shard.COMPRESSED_FROM, True), (200_000, False)])
def test_a_batch_that_could_not_be_loaded_again_is_not_compressed(
    size: int, is_compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log refuses it for its size then. Names of 8,000 characters, which are all alike, compress to nearly nothing."""
    assert coordinator_shard.COMPRESSED_TO < DECOMPRESSED_BYTES_MAX
    monkeypatch.setattr(coordinator_shard, "COMPRESSED_TO", 100_000)
    outcome = Outcome([(b"key", b"n" * size)], [], [], is_atomic=True)
    assert (len(coordinator_shard.whole_batch(outcome, encode_pairs, 1)) < size) is is_compressed


@pytest.mark.parametrize("size", [1, LONG_VALUE_BYTES + 1])
def test_a_long_record_is_decoded_by_a_thread_and_a_bad_one_passed_over(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = b"g" * size, b"bad" * size
    assert replayed((b"a", good), (b"b", bad), (b"c", good)) == [(good, 0, -1), (good, 2, -1)]
    assert [each.getMessage() for each in caplog.records] == ["a record of a topic at offset 1 does not parse: bad"]


def test_headers_of_records_are_passed_over() -> None:
    """A header of two bytes would become objects of eighty, and nobody asks for them."""
    headers = ((b"", None),) * 1_000
    batch = encode_batch([Record(offset, 0, b"key", b"value %d" % offset, headers) for offset in range(3)])
    shard: Any = Replayed()
    kind: Any = Kind()
    assert not any(replay_batches(kind, shard, batch))
    assert shard.records == [(b"value 0", 0, -1), (b"value 1", 1, -1), (b"value 2", 2, -1)]


# ---------------------------------------------------------------------- the whole is what all of its records make

places = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["t", "u"]), st.integers(0, 1))
steps = st.one_of(
    st.tuples(st.just("commit"), places, st.sampled_from([-1, -1, 5, 6])),
    st.tuples(st.just("newer"), places),
    st.tuples(st.just("tombstone"), places),
    st.tuples(st.just("marker"), st.sampled_from([5, 6]), st.booleans()),
    st.tuples(st.just("group"), st.sampled_from(["a", "b"]), st.booleans()),
)


def batch_of(step: Any, offset: int) -> bytes:
    match step:
        case ("commit", (group, topic, partition), producer_id):
            value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1)
            record: Any = OffsetRecord(OffsetCommitKey(group=group, topic=topic, partition=partition), value)
            pair = FORMATS.encode_record(record)
            transaction = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": 0,
                "is_transactional": True,
            }
            return encode_batch([Record(0, 0, *pair)], base_offset=offset, **({} if producer_id < 0 else transaction))
        case ("newer", (group, topic, partition)):
            key = OffsetCommitKey(group=group, topic=topic, partition=partition)
            pair = FORMATS.encode_record(
                OffsetRecord(key, OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1))
            )
            return encode_batch([Record(0, 0, pair[0], b"\0\x09of another release")], base_offset=offset)
        case ("tombstone", place):
            record = offset_tombstone(*place)
        case ("group", group, True):
            metadata = GroupMetadataValue(protocol_type="", generation=offset, protocol=None, leader=None, members=[])
            record = GroupMetadataRecord(GroupMetadataKey(group=group), metadata)
        case ("group", group, False):
            record = group_tombstone(group)
        case ("marker", producer_id, is_committed):
            marker = EndTxnMarker(ControlType.COMMIT if is_committed else ControlType.ABORT, 0)
            return encode_end_txn_marker(
                marker, timestamp_ms=1, producer_id=producer_id, producer_epoch=0, base_offset=offset
            )
    return encode_batch([Record(0, 0, *FORMATS.encode_record(record))], base_offset=offset)


FORMATS = GroupTypes().formats


def loaded(kind: ShardKind[Any], pieces: list[bytes]) -> tuple[object, ...]:
    """What a shard knows that has replayed these pieces of a log."""
    shard = kind.make()
    for piece in pieces:
        assert not any(replay_batches(kind, shard, piece))
    offsets = shard._managers[0]._offsets
    committed = {
        (group_id, topic, partition): (each.offset, each.record_offset)
        for group_id, topics in offsets.all_committed()
        for topic, partitions in topics.items()
        for partition, each in partitions.items()
    }
    pending = {
        producer_id: {place: each.record_offset for place, each in transaction.offsets.items()}
        for producer_id, transaction in offsets._pending._by_producer.items()
    }
    groups = {group_id: (group.state_name, group.generation_id) for group_id, group in shard._groups.items()}
    return committed, {each: held for each, held in pending.items() if held}, groups


@given(st.lists(steps, max_size=30), st.integers(1, 10))
@settings(max_examples=examples(300), deadline=None)
def test_a_log_is_what_all_of_its_records_make_of_nothing(story: list[Any], piece_length: int) -> None:
    types = GroupTypes()
    talk = Conversation(types.types)
    kind = shard_kind(types, talk._new_shard)
    log = [batch_of(step, offset) for offset, step in enumerate(story)]
    pieces = [b"".join(log[start : start + piece_length]) for start in range(0, len(log), piece_length)]
    found, expected = loaded(kind, pieces), loaded(replace(kind, superseding=frozenset()), log)
    assert found[:2] == expected[:2]
    # An offset that counts in place of one that does not parse may bring back a group that has ended in between.
    if not any(step[0] == "newer" for step in story):
        assert found == expected


def test_of_very_many_commits_of_one_partition_the_last_alone_is_decoded() -> None:
    types = GroupTypes()
    decoded: Counter[bytes] = Counter()

    def decode(key: bytes, value: bytes) -> Any:
        decoded[key] += 1
        return types.formats.decode_record(key, value)

    kind = replace(shard_kind(types, Conversation(types.types)._new_shard), decode=decode)
    piece = b"".join(batch_of(("commit", ("a", "t", number % 2), -1), number) for number in range(1_000))
    committed, _, _ = loaded(kind, [piece])
    assert committed == {("a", "t", 0): (998, 998), ("a", "t", 1): (999, 999)}
    assert list(decoded.values()) == [1, 1]
