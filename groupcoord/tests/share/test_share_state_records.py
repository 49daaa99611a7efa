"""Records and keys of the share state topic, to the byte."""

import pytest

from ottla.groupcoord.java_hashing import absolute_joined_hash, absolute_string_hash
from ottla.groupcoord.share.coordinator.records import (
    RecordedBatch,
    SharePartitionKey,
    ShareSnapshotValue,
    ShareUpdateValue,
    SnapshotRecord,
    UpdateRecord,
    decode_record,
    encode_record,
    encode_records,
    load_codecs,
    parse_coordinator_key,
    tombstone,
)
from ottla.wire import codecs
from ottla.wire.errors import ProtocolViolation
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import crc_is_valid, iter_batches

TOPIC_ID = bytes(range(16))
KEY = SharePartitionKey("grp", TOPIC_ID, 7)
BATCHES = [RecordedBatch(first_offset=10, last_offset=12, delivery_state=2, delivery_count=1)]
KEY_REST = b"\x00\x03grp" + TOPIC_ID + b"\x00\x00\x00\x07"
BATCHES_BYTES = b"\x02" + b"\0" * 7 + b"\x0a" + b"\0" * 7 + b"\x0c" + b"\x02" + b"\x00\x01" + b"\x00"


def snapshot(count: int) -> SnapshotRecord:
    value = ShareSnapshotValue(
        snapshot_epoch=3,
        state_epoch=2,
        leader_epoch=1,
        start_offset=10,
        delivery_complete_count=count,
        create_timestamp=5,
        write_timestamp=6,
        state_batches=BATCHES,
    )
    return SnapshotRecord(KEY, value)


def test_snapshot_has_its_count_in_a_tag() -> None:
    epochs = b"\x00\x00\x00\x03\x00\x00\x00\x02\x00\x00\x00\x01"
    offsets = b"\0" * 7 + b"\x0a" + b"\0" * 7 + b"\x05" + b"\0" * 7 + b"\x06"
    key, value = encode_record(snapshot(4))
    assert key == b"\x00\x00" + KEY_REST
    assert value == b"\x00\x00" + epochs + offsets + BATCHES_BYTES + b"\x01\x00\x04\x00\x00\x00\x04"
    assert decode_record(key, value) == snapshot(4)


def test_count_of_a_brokers_before_4_2_is_unknown() -> None:
    key, value = encode_record(snapshot(-1))
    assert value is not None and value.endswith(BATCHES_BYTES + b"\x00")
    assert decode_record(key, value) == snapshot(-1)


def test_update_has_no_state_epoch() -> None:
    value = ShareUpdateValue(
        snapshot_epoch=3, leader_epoch=1, start_offset=-1, delivery_complete_count=2, state_batches=BATCHES
    )
    key, data = encode_record(UpdateRecord(KEY, value))
    assert key == b"\x00\x01" + KEY_REST
    assert data == (
        b"\x00\x00\x00\x00\x00\x03\x00\x00\x00\x01" + b"\xff" * 8 + BATCHES_BYTES + b"\x01\x00\x04\x00\x00\x00\x02"
    )
    assert decode_record(key, data) == UpdateRecord(KEY, value)


def test_end_is_a_snapshot_without_a_value() -> None:
    assert encode_record(tombstone(KEY)) == (b"\x00\x00" + KEY_REST, None)
    assert decode_record(b"\x00\x00" + KEY_REST, None) == tombstone(KEY)


def test_batch_holds_the_records_and_the_time() -> None:
    batch = encode_records([snapshot(1), tombstone(KEY)], 99)
    ((header, start, end),) = iter_batches(batch)
    assert crc_is_valid(batch, start, end) and header.max_timestamp == 99
    assert [decode_record(each.key, each.value) for each in decode_records(batch)] == [snapshot(1), tombstone(KEY)]


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b""), (b"\x00", b""), (b"\x00\x05" + KEY_REST, b"\x00\x00"), (b"\x00\x01" + KEY_REST, None)],
)
def test_other_records_are_left_alone(key: bytes | None, value: bytes | None) -> None:
    assert decode_record(key, value) is None


@pytest.mark.parametrize("value", [b"", b"\x00\x01", b"\x00\x00\x01"])
def test_values_that_do_not_parse_are_a_violation(value: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode_record(b"\x00\x00" + KEY_REST, value)


def test_loading_makes_all_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    load_codecs()
    monkeypatch.setattr(codecs, "_load", None)
    update = UpdateRecord(
        KEY, ShareUpdateValue(snapshot_epoch=3, leader_epoch=1, start_offset=-1, state_batches=BATCHES)
    )
    for record in (snapshot(4), tombstone(KEY), update):
        assert decode_record(*encode_record(record)) == record


# ---------------------------------------------------------------------- keys


def test_key_and_text_mean_each_other() -> None:
    key = SharePartitionKey("a:b", b"\xfb\xff" + bytes(14), 12)
    assert key.group_id + key.coordinator_key_end() == "a:b:-_8AAAAAAAAAAAAAAAAAAA:12"
    assert parse_coordinator_key(key.group_id + key.coordinator_key_end()) == key


def test_partition_of_the_topic_is_found_as_in_java() -> None:
    # String.hashCode of "group1:AAAAAAAAAAAAAAAAAAAAAA:0", computed by hand from its definition.
    key = SharePartitionKey("group1", bytes(16), 0)
    text = key.group_id + key.coordinator_key_end()
    value = 0
    for character in text:
        value = (31 * value + ord(character)) % 2**32
    assert absolute_string_hash(text) == abs(value - 2**32 if value >= 2**31 else value)
    assert absolute_joined_hash(key.group_id, key.coordinator_key_end()) == absolute_string_hash(text)


@pytest.mark.parametrize("start", ["", "g", "é€", "😀" * 3, "x" * 300])
@pytest.mark.parametrize("end", ["", ":0", "😀"])
def test_texts_are_hashed_apart_as_they_are_together(start: str, end: str) -> None:
    assert absolute_joined_hash(start, end) == absolute_string_hash(start + end)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "group",
        "group:0",
        " :AAAAAAAAAAAAAAAAAAAAAA:0",
        "group:AAAA:0",
        "group:AAAAAAAAAAAAAAAAAAAAA!:0",
        "group:AAAAAAAAAAAAAAAAAAAAAA:x",
        "group:AAAAAAAAAAAAAAAAAAAAAA:4294967296",
    ],
)
def test_text_that_means_no_share_partition(text: str) -> None:
    assert parse_coordinator_key(text) is None


def test_key_is_read_as_generously_as_java_reads_it() -> None:
    key = SharePartitionKey("group", bytes(16), 5)
    assert parse_coordinator_key("group:AAAAAAAAAAAAAAAAAAAAAA==:+5::") == key
