"""The records of the offsets topic, against bytes that Apache Kafka 4.3.1 wrote."""

import pytest

from ottla.groupcoord.classic.members import (
    GroupMetadataKey,
    GroupMetadataRecord,
    GroupMetadataValue,
    MemberMetadata,
    group_tombstone,
)
from ottla.groupcoord.offsets.table import OffsetCommitKey, OffsetCommitValue, OffsetRecord, offset_tombstone
from ottla.groupcoord.tests.fakes import FORMATS
from ottla.wire import codecs
from ottla.wire.errors import ProtocolViolation
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import crc_is_valid, iter_batches

TOPIC_ID = b"\x98\x9d\xea\x85:IH\xd5\xa1\t\xaao\x1a\xba\x02*"
MEMBER = "gcc-b51efa07-1457-4d8a-96ca-d4631791600a"
KAFKA_GROUP_KEY = b"\x00\x02\x00\x0bgc-oracle-g"
KAFKA_OFFSET = (
    b"\x00\x01\x00\x0bgc-oracle-g\x00\tgc-oracle\x00\x00\x00\x00",
    b"\x00\x04\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x01\x00\x00\x01\xa1\xfcJ\x19D\x01\x00\x10" + TOPIC_ID,
)
KAFKA_NEW_GROUP = b"\x00\x03\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x01\xa1\xfcJ\x18\xbe\x00\x00\x00\x00"
KAFKA_STABLE_GROUP = (
    b"\x00\x03\x00\x08consumer\x00\x00\x00\x01\x00\x05range\x00(" + MEMBER.encode() + b"\x00\x00\x01\xa1\xfcJ\x18\xc2"
    b"\x00\x00\x00\x01\x00(" + MEMBER.encode() + b"\xff\xff\x00\x03gcc\x00\n/127.0.0.1\x00\x04\x93\xe0\x00\x00\xaf\xc8"
    b"\x00\x00\x00\x15\x00\x00\x00\x00\x00\x01\x00\tgc-oracle\x00\x00\x00\x00"
    b"\x00\x00\x00\n\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
)


def test_offset_record_is_kafkas_to_the_byte() -> None:
    value = OffsetCommitValue(offset=5, leader_epoch=0, metadata="", commit_timestamp=0x1A1FC4A1944, topic_id=TOPIC_ID)
    record = OffsetRecord(OffsetCommitKey(group="gc-oracle-g", topic="gc-oracle", partition=0), value)
    assert FORMATS.encode_record(record) == KAFKA_OFFSET
    assert FORMATS.decode_record(*KAFKA_OFFSET) == record


def test_record_of_a_new_group_is_kafkas_to_the_byte() -> None:
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=0x1A1FC4A18BE, members=[]
    )
    record = GroupMetadataRecord(GroupMetadataKey(group="gc-oracle-g"), value)
    assert FORMATS.encode_record(record) == (KAFKA_GROUP_KEY, KAFKA_NEW_GROUP)
    assert FORMATS.decode_record(KAFKA_GROUP_KEY, KAFKA_NEW_GROUP) == record


def test_record_of_a_stable_group_is_kafkas_to_the_byte() -> None:
    member = MemberMetadata(
        member_id=MEMBER,
        client_id="gcc",
        client_host="/127.0.0.1",
        rebalance_timeout=300_000,
        session_timeout=45_000,
        subscription=b"\x00\x00\x00\x00\x00\x01\x00\tgc-oracle\x00\x00\x00\x00",
        assignment=bytes(10),
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=MEMBER,
        current_state_timestamp=0x1A1FC4A18C2,
        members=[member],
    )
    record = GroupMetadataRecord(GroupMetadataKey(group="gc-oracle-g"), value)
    assert FORMATS.encode_record(record) == (KAFKA_GROUP_KEY, KAFKA_STABLE_GROUP)
    assert FORMATS.decode_record(KAFKA_GROUP_KEY, KAFKA_STABLE_GROUP) == record


def test_offset_with_a_retention_of_its_own_is_written_in_version_1() -> None:
    value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=7, expire_timestamp=99)
    key, encoded = FORMATS.encode_record(OffsetRecord(OffsetCommitKey(group="g", topic="t", partition=2), value))
    assert encoded is not None and encoded[:2] == b"\0\1"
    decoded = FORMATS.decode_record(key, encoded)
    assert isinstance(decoded, OffsetRecord) and decoded.value == value


@pytest.mark.parametrize("version", range(5))
def test_offset_values_of_every_version_are_read(version: int) -> None:
    value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=7)
    key = b"\0\1" + OffsetCommitKey(group="g", topic="t", partition=2).encode(0)
    assert FORMATS.decode_record(key, bytes([0, version]) + value.encode(version)) == OffsetRecord(
        OffsetCommitKey(group="g", topic="t", partition=2), value
    )


@pytest.mark.parametrize("version", range(5))
def test_group_values_of_every_version_are_read(version: int) -> None:
    member = MemberMetadata(
        member_id="m", client_id="c", client_host="h", session_timeout=1, subscription=b"s", assignment=b"a"
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=3, protocol="p", leader="m", members=[member])
    record = FORMATS.decode_record(b"\0\2\0\1g", bytes([0, version]) + value.encode(version))
    assert record == GroupMetadataRecord(GroupMetadataKey(group="g"), value)


def test_legacy_offset_key_names_an_offset() -> None:
    value = b"\0\0" + (17).to_bytes(8, "big") + b"\0\1m" + (3).to_bytes(8, "big")
    record = FORMATS.decode_record(b"\0\0\0\1g\0\1t\0\0\0\4", value)
    assert isinstance(record, OffsetRecord) and record.value is not None
    assert (record.key.topic, record.key.partition, record.value.offset) == ("t", 4, 17)


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\x09\0\1g", b"\1\0\0\1g", b"\x7f\xff", b"\xff\xff"])
def test_other_keys_are_passed_over(key: bytes | None) -> None:
    assert FORMATS.decode_record(key, b"\0\0whatever") is None


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\5", b"\xff\xff", b"\0\4\0\0", b"\0\3" + b"\xff" * 30])
def test_values_that_do_not_parse_are_violations(value: bytes) -> None:
    for key in (KAFKA_GROUP_KEY, KAFKA_OFFSET[0]):
        with pytest.raises(ProtocolViolation):
            FORMATS.decode_record(key, value)


def test_tombstones_have_no_value() -> None:
    assert FORMATS.encode_record(group_tombstone("gc-oracle-g")) == (KAFKA_GROUP_KEY, None)
    assert FORMATS.encode_record(offset_tombstone("gc-oracle-g", "gc-oracle", 0)) == (KAFKA_OFFSET[0], None)
    assert FORMATS.decode_record(KAFKA_GROUP_KEY, None) == group_tombstone("gc-oracle-g")
    assert FORMATS.decode_record(KAFKA_OFFSET[0], None) == offset_tombstone("gc-oracle-g", "gc-oracle", 0)


def test_what_is_written_needs_no_other_codecs_than_those_loaded_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codecs come from files. A thread loads them before the coordinator loads its first partition."""
    key, value = (
        OffsetCommitKey(group="g", topic="t", partition=0),
        {"offset": 1, "metadata": "", "commit_timestamp": 1},
    )
    group = GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None, members=[])
    records = [
        OffsetRecord(key, OffsetCommitValue(**value)),
        OffsetRecord(key, OffsetCommitValue(**value, expire_timestamp=1)),
        GroupMetadataRecord(GroupMetadataKey(group="g"), group),
    ]
    monkeypatch.setattr(codecs, "_codecs", {})
    FORMATS.load_codecs()
    monkeypatch.setattr(codecs, "_load", None)
    assert [FORMATS.decode_record(*FORMATS.encode_record(each)) for each in records] == records


def test_records_share_one_batch() -> None:
    records = [group_tombstone("a"), offset_tombstone("a", "t", 1)]
    batch = FORMATS.encode_records(records, 1234)
    ((header, start, end),) = iter_batches(batch)
    assert crc_is_valid(batch, start, end)
    assert header.records_count == 2 and header.producer_id == -1 and header.max_timestamp == 1234
    assert [FORMATS.decode_record(each.key, each.value) for each in decode_records(batch)] == records
