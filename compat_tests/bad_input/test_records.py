"""Record batches that are wrong in every way."""

import contextlib
import gzip
import time
import zlib

import pytest
from compat_tests.bad_input.bystander import (
    CORRUPT_MESSAGE,
    GOOD,
    INT32_MAX,
    INT64_MAX,
    INVALID_PRODUCER_EPOCH,
    INVALID_RECORD,
    INVALID_REQUIRED_ACKS,
    INVALID_TIMESTAMP,
    MEGABYTE,
    MESSAGE_TOO_LARGE,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
    produced,
)
from compat_tests.support.raw import Peer, batch, fetch, produce, record, response, varint

NOW = int(time.time() * 1000)
DAY = 24 * 3600_000

BATCHES = {
    "nothing": (b"", INVALID_RECORD),
    "less than a header": (b"\0" * 5, INVALID_RECORD),
    "half a batch": (batch(GOOD)[:40], INVALID_RECORD),
    "zeros after the batch": (batch(GOOD) + bytes(100), CORRUPT_MESSAGE),
    "two batches": (batch(GOOD) + batch(GOOD), INVALID_RECORD),
    "wrong checksum": (batch(GOOD, crc=1), CORRUPT_MESSAGE),
    "magic 3": (batch(GOOD, magic=3), CORRUPT_MESSAGE),
    "magic -1": (batch(GOOD, magic=-1), CORRUPT_MESSAGE),
    "old magic": (batch(GOOD, magic=1), INVALID_RECORD),
    "negative length": (batch(GOOD, length=-5), CORRUPT_MESSAGE),
    "length below a header": (batch(GOOD, length=20), CORRUPT_MESSAGE),
    "length beyond the end": (batch(GOOD, length=10_000), INVALID_RECORD),
    "base offset that is not 0": (batch(GOOD, base_offset=77), INVALID_RECORD),
    "one record too many promised": (batch(GOOD, count=3, last_offset_delta=2), INVALID_RECORD),
    "one record too few promised": (batch(GOOD, count=1, last_offset_delta=0), INVALID_RECORD),
    "no records": (batch(b"", count=0, last_offset_delta=-1), INVALID_RECORD),
    "two thousand million records": (batch(GOOD, count=INT32_MAX), INVALID_RECORD),
    "two thousand million, consistently": (
        batch(GOOD, count=INT32_MAX, last_offset_delta=INT32_MAX - 1),
        INVALID_RECORD,
    ),
    "negative count": (batch(GOOD, count=-1), INVALID_RECORD),
    "offset delta that jumps": (batch(GOOD, last_offset_delta=5), INVALID_RECORD),
    "control batch": (batch(GOOD, codec=32), INVALID_RECORD),
    "log append time by the client": (batch(GOOD, codec=8), INVALID_TIMESTAMP),
    "unknown codec": (batch(GOOD, codec=5), UNKNOWN_SERVER_ERROR),
    "record longer than the batch": (batch(varint(100) + b"a" * 10), INVALID_RECORD),
    "record of negative length": (batch(varint(-5) + b"aaaa"), INVALID_RECORD),
    "bytes after the last record": (batch(record(b"x") + b"junk"), INVALID_RECORD),
    "key longer than its record": (batch(varint(9) + b"\0\0\0" + varint(100) + b"aaaaaaa"), INVALID_RECORD),
    "negative header count": (
        batch(varint(7) + b"\0\0\0" + varint(-1) + varint(1) + b"a" + varint(-1)),
        INVALID_RECORD,
    ),
    "two thousand million headers": (
        batch(varint(11) + b"\0\0\0" + varint(-1) + varint(1) + b"a" + varint(INT32_MAX)),
        INVALID_RECORD,
    ),
    "gzip that is none": (batch(GOOD, codec=1), UNKNOWN_SERVER_ERROR),
    "snappy that is none": (batch(b"\xde\xad\xbe\xef" * 10, codec=2), UNKNOWN_SERVER_ERROR),
    "lz4 that is none": (batch(b"\xde\xad\xbe\xef" * 10, codec=3), UNKNOWN_SERVER_ERROR),
    "zstd that is none": (batch(b"\xde\xad\xbe\xef" * 10, codec=4), UNKNOWN_SERVER_ERROR),
    "gzip cut short": (batch(GOOD, codec=1, compress=lambda area: gzip.compress(area)[:-9]), UNKNOWN_SERVER_ERROR),
    "junk inside gzip": (
        batch(GOOD, codec=1, compress=lambda area: gzip.compress(area + b"junk")),
        INVALID_RECORD,
    ),
    "timestamp a day ahead": (
        batch(GOOD, base_timestamp=NOW + DAY, max_timestamp=NOW + DAY),
        INVALID_TIMESTAMP,
    ),
    "last timestamp there is": (batch(GOOD, base_timestamp=INT64_MAX, max_timestamp=INT64_MAX), INVALID_TIMESTAMP),
    "first timestamp there is": (batch(GOOD, base_timestamp=-(2**63), max_timestamp=-(2**63)), INVALID_TIMESTAMP),
    "timestamp delta that overflows": (
        batch(record(b"a", 0, 2**62), base_timestamp=2**62, max_timestamp=NOW),
        INVALID_TIMESTAMP,
    ),
    "too large": (batch([b"x" * 1_100_000]), MESSAGE_TOO_LARGE),
    "sequence without start": (
        batch(GOOD, producer_id=INT64_MAX, producer_epoch=0, base_sequence=-1),
        INVALID_RECORD,
    ),
}


def test_a_batch_that_is_wrong_is_refused_with_kafkas_code_and_never_appended(peer, topic):
    answers = {}
    for name, (records, _) in BATCHES.items():
        peer.send(produce(topic, records))
        answers[name] = produced(peer.receive())
    assert answers == {name: (-1, code) for name, (_, code) in BATCHES.items()}
    peer.send(produce(topic, batch(GOOD)))
    assert produced(peer.receive()) == (0, NONE)
    peer.send(fetch(topic))
    [answer] = response("Fetch", 11, peer.receive()).responses[0].partitions
    assert (answer.high_watermark, len(answer.records)) == (2, len(batch(GOOD)))


def test_a_lying_producer_is_found_out_by_its_sequence(peer, topic):
    def send(sequence, epoch=0):
        peer.send(produce(topic, batch(GOOD, producer_id=987654321, producer_epoch=epoch, base_sequence=sequence)))
        return produced(peer.receive())

    assert send(0) == (0, NONE)
    assert send(0) == (0, NONE)  # a repetition, answered from memory
    assert send(50) == (-1, OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert send(2, epoch=-1) == (-1, INVALID_PRODUCER_EPOCH)
    assert send(0, epoch=3) == (2, NONE)
    assert send(2, epoch=1) == (-1, INVALID_PRODUCER_EPOCH)
    assert send(2, epoch=3) == (4, NONE)


def test_a_null_record_set_harms_nobody(address, topic, is_ottla):
    with Peer(address) as peer:
        peer.send(produce(topic, None))
        if is_ottla:  # Apache Kafka never answers
            assert produced(peer.receive()) == (-1, INVALID_RECORD)


@pytest.mark.parametrize(("mebibytes", "count"), [(64, 16), (1000, 4)])
def test_compressed_data_that_explodes_is_refused_in_bounded_memory(address, topic, broker, mebibytes, count):
    # A gigabyte of zeros is a megabyte of gzip; and the record inside is none.
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(bytes(MEGABYTE)) for _ in range(mebibytes)) + packer.flush()
    bomb = produce(topic, batch(b"", codec=1, compress=lambda _: packed, count=1))
    before = broker.resident_bytes
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(address, timeout_s=60)) for _ in range(count)]
        for peer in peers:
            peer.send(bomb)
        # Apache Kafka reads on to the end; Ottla gives up at a limit of its own.
        assert {produced(peer.receive()) for peer in peers} <= {(-1, INVALID_RECORD), (-1, MESSAGE_TOO_LARGE)}
    assert broker.resident_bytes - before < 400 * MEGABYTE


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"acks": 5}, INVALID_REQUIRED_ACKS),
        ({"acks": -2}, INVALID_REQUIRED_ACKS),
        ({"partition": -1}, UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": INT32_MAX}, UNKNOWN_TOPIC_OR_PARTITION),
        ({"timeout_ms": -1}, NONE),
        ({"timeout_ms": INT32_MAX}, NONE),
    ],
    ids=str,
)
def test_absurd_produce_parameters(peer, topic, options, code):
    peer.send(produce(topic, batch(GOOD), **options))
    assert produced(peer.receive())[1] == code


def test_zstd_is_refused_where_its_version_does_not_know_it(peer, topic):
    peer.send(produce(topic, batch(b"\xde\xad", codec=4), version=3))
    assert produced(peer.receive(), version=3) == (-1, UNSUPPORTED_COMPRESSION_TYPE)
