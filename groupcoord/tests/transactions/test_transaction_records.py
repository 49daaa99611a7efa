"""The records of the transaction topic, against bytes that Apache Kafka 4.3.1 and 3.9.2 wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.groupcoord.transactions.metadata import (
    COMPLETE_COMMIT,
    EMPTY,
    NO_PRODUCER_EPOCH,
    ONGOING,
    PREPARE_COMMIT,
    TransactionMetadata,
    TransactionState,
)
from ottla.groupcoord.transactions.records import (
    TransactionRecord,
    decode_record,
    encode_record,
    encode_records,
    load_codecs,
)
from ottla.wire import codecs
from ottla.wire.errors import ProtocolViolation
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import crc_is_valid, iter_batches

ID = "transaction-r"
PLACES = frozenset({("to-r", 0), ("to-r", 1)})
KAFKA_KEY = b"\x00\x00\x00\rtransaction-r"

PRODUCER = b"\x00\x00\x00\x00\x00\x00\x00\x01"
NEVER = b"\xff" * 8

# What Apache Kafka 4.3.1 wrote for one transaction of a client with an epoch per transaction.
KAFKA_4 = {
    EMPTY: b"\x00\x01" + PRODUCER + b"\x00\x00\x00\x00\xea`\x00\x00\x00\x00\x01\xa2\t[\xbe\x90" + NEVER + b"\x01\x00\x08"
    + PRODUCER,
    ONGOING: b"\x00\x01" + PRODUCER + b"\x00\x00\x00\x00\xea`\x01\x02\x05to-r\x03\x00\x00\x00\x01\x00\x00\x00\x00\x00"
    b"\x00\x00\x01\xa2\t[\xbe\xa9\x00\x00\x01\xa2\t[\xbe\xa9\x01\x00\x08" + PRODUCER,
    PREPARE_COMMIT: b"\x00\x01" + PRODUCER + b"\x00\x01\x00\x00\xea`\x02\x02\x05to-r\x03\x00\x00\x00\x01\x00\x00\x00\x00"
    b"\x00\x00\x00\x01\xa2\t[\xbe\xb9\x00\x00\x01\xa2\t[\xbe\xa9\x02\x00\x08" + PRODUCER + b"\x02\x02\x00\x02",
    COMPLETE_COMMIT: b"\x00\x01" + PRODUCER + b"\x00\x01\x00\x00\xea`\x04\x01\x00\x00\x01\xa2\t[\xbe\xc1\x00\x00\x01\xa2"
    b"\t[\xbe\xa9\x02\x00\x08" + PRODUCER + b"\x02\x02\x00\x02",
}  # fmt: skip
# What Apache Kafka 3.9.2 wrote.
KAFKA_3 = {
    EMPTY: b"\x00\x00" + PRODUCER + b"\x00\x00\x00\x00\xea`\x00\xff\xff\xff\xff\x00\x00\x01\xa2\t[\xe0\x01" + NEVER,
    ONGOING: b"\x00\x00" + PRODUCER + b"\x00\x00\x00\x00\xea`\x01\x00\x00\x00\x01\x00\x04to-r\x00\x00\x00\x02\x00\x00\x00"
    b"\x01\x00\x00\x00\x00\x00\x00\x01\xa2\t[\xe0\x12\x00\x00\x01\xa2\t[\xe0\x12",
    COMPLETE_COMMIT: b"\x00\x00" + PRODUCER + b"\x00\x00\x00\x00\xea`\x04\x00\x00\x00\x00\x00\x00\x01\xa2\t[\xe0%\x00\x00"
    b"\x01\xa2\t[\xe0\x12",
}  # fmt: skip


def metadata(state: TransactionState, epoch: int, updated: int, started: int, **details: object) -> TransactionMetadata:
    given: dict[str, object] = {"partitions": PLACES if state in (ONGOING, PREPARE_COMMIT) else frozenset()}
    return TransactionMetadata(
        producer_id=1,
        producer_epoch=epoch,
        timeout_ms=60_000,
        state=state,
        start_timestamp_ms=started,
        last_update_timestamp_ms=updated,
        **(given | details),  # type: ignore[arg-type]
    )


STARTED_4, STARTED_3 = 0x1A2095BBEA9, 0x1A2095BE012
MEANT_4 = {
    EMPTY: metadata(EMPTY, 0, 0x1A2095BBE90, -1, previous_producer_id=1),
    ONGOING: metadata(ONGOING, 0, STARTED_4, STARTED_4, previous_producer_id=1),
    PREPARE_COMMIT: metadata(
        PREPARE_COMMIT, 1, 0x1A2095BBEB9, STARTED_4, previous_producer_id=1, client_transaction_version=2
    ),
    COMPLETE_COMMIT: metadata(
        COMPLETE_COMMIT, 1, 0x1A2095BBEC1, STARTED_4, previous_producer_id=1, client_transaction_version=2
    ),
}
MEANT_3 = {
    EMPTY: metadata(EMPTY, 0, 0x1A2095BE001, -1),
    ONGOING: metadata(ONGOING, 0, STARTED_3, STARTED_3),
    COMPLETE_COMMIT: metadata(COMPLETE_COMMIT, 0, 0x1A2095BE025, STARTED_3),
}


@pytest.mark.parametrize("state", KAFKA_4)
def test_kafkas_records_are_read(state: TransactionState) -> None:
    assert decode_record(KAFKA_KEY, KAFKA_4[state]) == TransactionRecord(ID, MEANT_4[state], 1)


@pytest.mark.parametrize("state", KAFKA_3)
def test_older_records_are_read(state: TransactionState) -> None:
    assert decode_record(KAFKA_KEY, KAFKA_3[state]) == TransactionRecord(ID, MEANT_3[state], 0)


@pytest.mark.parametrize(("version", "meant", "kafka"), [(1, MEANT_4, KAFKA_4), (0, MEANT_3, KAFKA_3)])
def test_records_are_kafkas_to_the_byte(
    version: int, meant: dict[TransactionState, TransactionMetadata], kafka: dict[TransactionState, bytes]
) -> None:
    for state, each in meant.items():
        key, value = encode_record(TransactionRecord(ID, each, version))
        expected = kafka[state]
        if each.partitions:
            # Kafka writes partitions in the order of a hash table: 1 before 0.
            expected = expected.replace(b"\0\0\0\x01\0\0\0\0\0\0", b"\0\0\0\0\0\0\0\x01\0\0")
            assert expected != kafka[state]
        assert key == KAFKA_KEY and value == expected


def test_an_id_that_is_forgotten_has_no_value() -> None:
    assert encode_record(TransactionRecord(ID, None)) == (KAFKA_KEY, None)
    assert decode_record(KAFKA_KEY, None) == TransactionRecord(ID, None)


metadatas = st.builds(
    TransactionMetadata,
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from(TransactionState),
    partitions=st.frozensets(st.tuples(st.sampled_from("abc"), st.integers(0, 9))),
    start_timestamp_ms=st.integers(-1, 2**62),
    last_update_timestamp_ms=st.integers(0, 2**62),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    client_transaction_version=st.integers(0, 2),
    last_producer_epoch=st.just(NO_PRODUCER_EPOCH),
)


@given(transactional_id=st.text(max_size=20), metadata=metadatas)
def test_what_is_written_is_read_back(transactional_id: str, metadata: TransactionMetadata) -> None:
    if metadata.state is EMPTY:
        metadata = metadata._replace(partitions=frozenset())
    record = TransactionRecord(transactional_id, metadata)
    assert decode_record(*encode_record(record)) == record


@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\x00\x01\x00\x00", b"\xff\xff"])
def test_other_keys_are_left_alone(key: bytes | None) -> None:
    assert decode_record(key, KAFKA_4[EMPTY]) is None


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x00",
        b"\x00\x02" + KAFKA_4[EMPTY][2:],
        b"\xff\xff" + KAFKA_4[EMPTY][2:],
        KAFKA_4[EMPTY][:-1],
        KAFKA_4[EMPTY].replace(b"\xea`\x00", b"\xea`\x08"),
        KAFKA_3[ONGOING][:30],
    ],
)
def test_a_value_that_does_not_parse_is_a_violation(value: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode_record(KAFKA_KEY, value)


def test_a_batch_of_records() -> None:
    batch = encode_records([TransactionRecord(ID, MEANT_4[EMPTY]), TransactionRecord(ID, None)], 7)
    ((header, start, end),) = iter_batches(batch)
    assert crc_is_valid(batch, start, end) and not header.is_compressed and header.max_timestamp == 7
    assert [(each.key, each.value) for each in decode_records(batch)] == [
        (KAFKA_KEY, KAFKA_4[EMPTY]),
        (KAFKA_KEY, None),
    ]


def test_codecs_are_loaded_before_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [TransactionRecord(ID, MEANT_4[ONGOING], 1), TransactionRecord(ID, MEANT_3[ONGOING], 0)]
    monkeypatch.setattr(codecs, "_codecs", {})
    load_codecs()
    monkeypatch.setattr(codecs, "_load", None)
    assert [decode_record(*encode_record(each)) for each in records] == records
