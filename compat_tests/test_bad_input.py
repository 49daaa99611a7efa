"""Peers that misbehave, against a real broker process: the reaction is Apache Kafka's, and nobody else notices.

All through this file a bystander produces to and reads from a topic of its own on one connection. After every test it
must still be served; at the end its topic must hold exactly what was acknowledged to it. A traceback in the broker's
log fails the run when the shared broker is stopped.
"""

import contextlib
import gzip
import itertools
import os
import random
import resource
import socket
import struct
import threading
import time
import zlib

import pytest

pytest.importorskip("kafka")
from compat_tests.support.raw import (
    Peer,
    batch,
    fetch,
    frame,
    header,
    message_class,
    produce,
    record,
    request,
    response,
    string,
    varint,
)

LARGEST_FRAME = 104857600
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
MEGABYTE = 1 << 20
GOOD = [b"a", b"b"]

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
NONE, CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, OFFSET_OUT_OF_RANGE, UNKNOWN_SERVER_ERROR = 0, 2, 3, 1, -1
INVALID_TOPIC_EXCEPTION, INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, INVALID_REQUIRED_ACKS = 17, 24, 26, 21
INVALID_TIMESTAMP, UNSUPPORTED_VERSION, INVALID_REQUEST, OUT_OF_ORDER_SEQUENCE_NUMBER = 32, 35, 42, 45
POLICY_VIOLATION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR = 44, 37, 38
INVALID_PRODUCER_EPOCH, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD, MESSAGE_TOO_LARGE = 47, 76, 87, 10


class Bystander(threading.Thread):
    """Produces and reads a hundred times a second on one connection, and remembers its longest wait."""

    def __init__(self, address, topic):
        super().__init__(daemon=True)
        self.address, self.topic = address, topic
        self.acknowledged = 0
        self.longest_wait_s = 0.0
        self.failure = None
        self.stopping = threading.Event()

    def run(self):
        try:
            with Peer(self.address) as peer:
                while not self.stopping.wait(0.01):
                    self.turn(peer)
        except (AssertionError, OSError) as failure:
            self.failure = failure

    def turn(self, peer):
        started = time.monotonic()
        peer.send(produce(self.topic, batch([b"bystander"])))
        offset, code = produced(peer.receive())
        assert (offset, code) == (self.acknowledged, NONE)
        self.acknowledged += 1
        peer.send(fetch(self.topic, offset))
        [answer] = response("Fetch", 11, peer.receive()).responses[0].partitions
        assert (answer.error_code, answer.high_watermark) == (NONE, self.acknowledged)
        self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - started)


def produced(payload, version=7):
    """(base offset, error code) of the answer to a Produce request with one partition."""
    assert payload is not None, "the broker closed the connection"
    [partition] = response("Produce", version, payload).responses[0].partition_responses
    return partition.base_offset, partition.error_code


@pytest.fixture(scope="module")
def address(broker):
    return broker.host, broker.port


@pytest.fixture(scope="module", autouse=True)
def bystander(address, broker):
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    topic = f"bystander-{os.urandom(4).hex()}"
    admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    admin.close()
    thread = Bystander(address, topic)
    thread.start()
    yield thread
    thread.stopping.set()
    thread.join()
    assert thread.failure is None
    with Peer(address) as peer:
        peer.send(fetch(topic))
        [answer] = response("Fetch", 11, peer.receive()).responses[0].partitions
    assert answer.high_watermark == thread.acknowledged


@pytest.fixture(autouse=True)
def nobody_else_notices(bystander, wait_until):
    bystander.longest_wait_s = 0.0
    yield
    before = bystander.acknowledged
    wait_until(lambda: bystander.failure or bystander.acknowledged > before + 1, "the bystander is served")
    assert bystander.failure is None
    # Far above what is meant (a turn of the loop is 50 ms at most), so that a busy machine fails nothing.
    assert bystander.longest_wait_s < 3


@pytest.fixture
def peer(address):
    with Peer(address) as peer:
        yield peer


def is_served(peer):
    """Whether the connection still works."""
    return peer.call("ApiVersions", 0).error_code == NONE


# --- frames -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 1, 7, LARGEST_FRAME + 1, INT32_MAX])
def test_a_frame_length_that_cannot_be_closes_the_connection(peer, size):
    peer.send(struct.pack(">i", size) + bytes(min(abs(size), 100)))
    assert peer.is_closed()


@pytest.mark.parametrize(
    "greeting",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /topics HTTP/1.0\r\n\r\n",
        bytes.fromhex("16030100c8010000c40303") + bytes(194),  # a TLS ClientHello
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\xff" * 4096,
    ],
    ids=["http-get", "http-post", "tls", "ssh", "ones"],
)
def test_a_foreign_protocol_closes_the_connection(peer, greeting):
    peer.send(greeting)
    assert peer.is_closed()


def test_a_bad_frame_after_good_ones_is_preceded_by_their_answers(peer):
    peer.send(request("ApiVersions", 0, 7) + request("ApiVersions", 0, 8) + struct.pack(">i", -5))
    assert [struct.unpack(">i", peer.receive()[:4])[0] for _ in range(2)] == [7, 8]
    assert peer.is_closed()


def test_a_request_may_come_byte_by_byte(peer):
    for byte in request("Metadata", 9, topics=[]):
        peer.send(bytes([byte]))
    assert response("Metadata", 9, peer.receive()).brokers


def test_announced_frames_that_never_come_cost_no_memory(address, broker, is_ottla):
    if not is_ottla:
        return  # Apache Kafka sets aside what is announced
    before = broker.resident_bytes
    peers = [Peer(address) for _ in range(50)]
    for peer in peers:
        peer.send(struct.pack(">i", LARGEST_FRAME) + b"x" * 1000)
    with Peer(address) as last:
        assert is_served(last)
    grown = broker.resident_bytes - before
    for peer in peers:
        peer.socket.close()
    assert grown < 20 * MEGABYTE


# --- headers and bodies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api_key", [-1, 4, 52, 95, 999, 32767])
def test_an_unknown_api_key_closes_the_connection(peer, api_key):
    peer.send(frame(header(api_key, 0) + bytes(20)))
    assert peer.is_closed()


@pytest.mark.parametrize(("api_key", "version"), [(METADATA, 99), (METADATA, -1), (FETCH, 19), (PRODUCE, 14), (8, 1)])
def test_an_unsupported_version_closes_the_connection(peer, api_key, version):
    peer.send(frame(header(api_key, version) + bytes(40)))
    assert peer.is_closed()


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_api_versions_of_the_future_is_answered_in_version_0(peer, version):
    peer.send(frame(header(API_VERSIONS, version) + b"\0"))
    answer = peer.receive()
    correlation_id, code, count, key, first, last = struct.unpack(">ihihhh", answer)
    assert (correlation_id, code, count, key, first) == (1, UNSUPPORTED_VERSION, 1, API_VERSIONS, 0)
    assert last >= 4
    assert is_served(peer)


@pytest.mark.parametrize("name", [b"", b"-bad", b"bad name", b"x\0y"])
def test_a_client_name_that_is_none_is_an_invalid_request(peer, name):
    coded = bytes([len(name) + 1]) + name
    peer.send(frame(header(API_VERSIONS, 3) + b"\0" + coded + b"\x02v" + b"\0"))
    assert struct.unpack(">h", peer.receive()[4:6])[0] == INVALID_REQUEST


BODIES = {
    "nothing": b"",
    "half a count": b"\0\0",
    "count without elements": struct.pack(">i", 3),
    "count of two thousand million": struct.pack(">i", INT32_MAX),
    "string beyond the end": struct.pack(">ih", 1, 30000) + b"abc",
    "string of negative length": struct.pack(">ih", 1, -2),
    "null string where none may be": struct.pack(">ih", 1, -1),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_that_does_not_parse_closes_the_connection(peer, body):
    peer.send(frame(header(METADATA, 1) + body))
    assert peer.is_closed()


FLEXIBLE_BODIES = {
    "over-long varint": b"\0" + b"\xff" * 9 + b"\x01",
    "varint without end": b"\0" + b"\xff" * 4,
    "count of four thousand million": b"\0" + b"\xff\xff\xff\xff\x0f",
    "compact string beyond the end": b"\0" + b"\x02" + b"\xff\xff\x03abc",
    "tag size beyond the end": b"\0" + b"\x01\0\0\0" + b"\x01\x05\xff\xff\xff\x07",
    "more tags than there are bytes": b"\0" + b"\x01\0\0\0" + b"\xff\xff\xff\xff\x07",
    "header tags beyond the end": b"\xff\xff\xff\x07",
}


@pytest.mark.parametrize("rest", FLEXIBLE_BODIES.values(), ids=FLEXIBLE_BODIES)
def test_a_flexible_body_that_does_not_parse_closes_the_connection(peer, rest):
    peer.send(frame(header(METADATA, 9) + rest))
    assert peer.is_closed()


def test_the_log_quotes_a_peer_in_short_and_on_one_line(peer, broker, is_ottla, wait_until):
    client_id = b"x\n2031-01-01 00:00:00,000 CRITICAL ottla: all is lost " + b"x" * 30_000
    peer.send(frame(struct.pack(">hhi", METADATA, 1, 1) + string(client_id) + b"\0"))
    assert peer.is_closed()
    if is_ottla:
        wait_until(lambda: f"... ({len(client_id)} characters)" in broker.log, "the connection is in the log")
        assert not any(line.startswith("2031") or "x" * 1_000 in line for line in broker.log.splitlines())


def test_trailing_bytes_are_ignored(peer):
    whole = request("Metadata", 1, topics=[])
    peer.send(frame(whole[4:] + b"trailing"))
    assert response("Metadata", 1, peer.receive()).brokers
    assert is_served(peer)


def test_every_truncation_of_a_request_closes_the_connection(address):
    whole = request("Metadata", 12, topics=None, allow_auto_topic_creation=False)[4:]
    for end in range(len(whole)):
        with Peer(address) as peer:
            peer.send(frame(whole[:end]))
            assert peer.is_closed(), f"after {end} of {len(whole)} bytes"


def test_many_unknown_tagged_fields_are_skipped(peer):
    peer.send(metadata_with_tags(1000))
    assert response("Metadata", 9, peer.receive()).brokers


def test_a_flood_of_unknown_tagged_fields_closes_the_connection(peer):
    peer.send(metadata_with_tags(200_000))
    assert peer.is_closed()


def metadata_with_tags(count):
    tags = b"".join(unsigned(number) + b"\0" for number in range(100, 100 + count))
    return frame(header(METADATA, 9) + b"\0" + b"\x01\0\0\0" + unsigned(count) + tags)


def unsigned(number):
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def test_a_very_long_list_of_unknown_topics_is_answered(peer):
    names = b"".join(string(b"nothing-%d" % i) for i in range(20_000))
    # Version 4, so that none of them is created.
    peer.send(frame(header(METADATA, 4) + struct.pack(">i", 20_000) + names + b"\0"))
    topics = response("Metadata", 4, peer.receive()).topics
    assert {topic.error_code for topic in topics} == {UNKNOWN_TOPIC_OR_PARTITION} and len(topics) == 20_000


# --- records ----------------------------------------------------------------------------------------------------------


NOW = int(time.time() * 1000)
HOUR = 3600_000

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
    "timestamp hours ahead": (
        batch(GOOD, base_timestamp=NOW + 2 * HOUR, max_timestamp=NOW + 2 * HOUR),
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
    with Peer(address, timeout_s=3) as peer:
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


# --- names and numbers ------------------------------------------------------------------------------------------------

BAD_NAMES = ["", ".", "..", "a/b", "a b", "a\0b", "\u00e9", "x" * 250, "a,b", "\ud7ff"]


def test_topic_names_that_cannot_be_are_refused_and_never_made(peer):
    names = message_class("MetadataRequest").MetadataRequestTopic
    topics = [names(version=8, name=name) for name in BAD_NAMES]
    answer = peer.call("Metadata", 8, topics=topics, allow_auto_topic_creation=True)
    assert {topic.name: topic.error_code for topic in answer.topics} == dict.fromkeys(
        BAD_NAMES, INVALID_TOPIC_EXCEPTION
    )
    for name in BAD_NAMES:
        peer.send(produce(name, batch(GOOD)))
        assert produced(peer.receive())[1] == UNKNOWN_TOPIC_OR_PARTITION
    everything = peer.call("Metadata", 8, topics=None)
    assert not {topic.name for topic in everything.topics} & set(BAD_NAMES)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"offset": -5}, OFFSET_OUT_OF_RANGE),
        ({"offset": 3}, OFFSET_OUT_OF_RANGE),
        ({"offset": INT64_MAX}, OFFSET_OUT_OF_RANGE),
        ({"offset": 0, "partition_max_bytes": 0}, NONE),
        ({"offset": 0, "partition_max_bytes": -1}, UNKNOWN_SERVER_ERROR),
        ({"offset": 0, "max_bytes": INT32_MAX, "partition_max_bytes": INT32_MAX}, NONE),
        ({"offset": 0, "max_bytes": -1}, UNKNOWN_SERVER_ERROR),
        ({"offset": 0, "max_wait_ms": -1, "min_bytes": INT32_MAX}, NONE),
        ({"offset": 0, "min_bytes": -1, "max_wait_ms": INT32_MAX}, NONE),
        ({"offset": 0, "partition": -1}, UNKNOWN_TOPIC_OR_PARTITION),
        ({"offset": 0, "partition": INT32_MAX}, UNKNOWN_TOPIC_OR_PARTITION),
        ({"offset": 0, "isolation_level": 7}, UNKNOWN_SERVER_ERROR),
    ],
    ids=str,
)
def test_absurd_fetch_parameters(peer, topic, options, code):
    peer.send(produce(topic, batch(GOOD)))
    assert produced(peer.receive()) == (0, NONE)
    peer.send(fetch(topic, **options))
    payload = peer.receive()
    assert payload is not None
    [answer] = response("Fetch", 11, payload).responses[0].partitions
    assert answer.error_code == code


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, INVALID_GROUP_ID),
        ({"session_timeout_ms": 0}, INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": -1}, INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": INT32_MAX}, INVALID_SESSION_TIMEOUT),
        ({"protocols": []}, 23),
        ({"protocol_type": ""}, 23),
    ],
    ids=str,
)
def test_absurd_join_parameters(peer, unique, wait_until, fields, code):
    def coordinator_is_there():
        return peer.call("FindCoordinator", 1, key=unique("group"), key_type=0).error_code == NONE

    wait_until(coordinator_is_there, "the groups have a coordinator")
    protocol = message_class("JoinGroupRequest").JoinGroupRequestProtocol
    usual = {
        "group_id": unique("group"),
        "session_timeout_ms": 6000,
        "rebalance_timeout_ms": 6000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [protocol(version=2, name="range", metadata=b"")],
    }
    assert peer.call("JoinGroup", 2, **(usual | fields)).error_code == code


@pytest.mark.parametrize(
    ("count", "replicas", "code"),
    [
        (10_001, 1, POLICY_VIOLATION),
        (INT32_MAX, 1, POLICY_VIOLATION),
        (0, 1, INVALID_PARTITIONS),
        (-2, 1, INVALID_PARTITIONS),
        (1, 0, INVALID_REPLICATION_FACTOR),
        (1, 32767, INVALID_REPLICATION_FACTOR),
    ],
)
def test_absurd_topics_are_not_created(peer, unique, count, replicas, code):
    new = {"num_partitions": count, "replication_factor": replicas, "assignments": [], "configs": []}
    topic = message_class("CreateTopicsRequest").CreatableTopic(version=5, name=unique("topic"), **new)
    answer = peer.call("CreateTopics", 5, topics=[topic], timeout_ms=10_000, validate_only=False)
    assert answer.topics[0].error_code == code


# --- slowness, silence and numbers of peers ---------------------------------------------------------------------------


def test_a_thousand_pipelined_requests_are_answered_in_order(peer, topic):
    kinds = itertools.cycle(["Produce", "Fetch", "Metadata", "ApiVersions"])
    expected = list(zip(range(1000), kinds, strict=False))

    def frames():
        for number, kind in expected:
            if kind == "Produce":
                yield renumbered(produce(topic, batch([b"%d" % number])), number)
            elif kind == "Fetch":
                yield renumbered(fetch(topic), number)
            else:
                yield request(kind, 1, number)

    sender = threading.Thread(target=lambda: peer.send(b"".join(frames())))
    sender.start()
    offsets = []
    for number, kind in expected:
        payload = peer.receive()
        assert struct.unpack(">i", payload[:4])[0] == number
        if kind == "Produce":
            offsets.append(produced(payload))
    sender.join()
    assert offsets == [(i, NONE) for i in range(250)]


def renumbered(framed, correlation_id):
    """The same request with another correlation id."""
    return framed[:8] + struct.pack(">i", correlation_id) + framed[12:]


@pytest.fixture
def large_topic(topic, address):
    """A topic with sixteen megabytes."""
    with Peer(address) as peer:
        for _ in range(20):
            peer.send(produce(topic, batch([b"x" * 800_000])))
            assert produced(peer.receive())[1] == NONE
    return topic


def test_peers_that_never_read_hold_nobody_up(address, broker, large_topic):
    before = broker.resident_bytes
    asking = fetch(large_topic, partition_max_bytes=16 * MEGABYTE) * 50
    peers = [Peer(address, receive_buffer=4096) for _ in range(20)]
    for peer in peers:
        peer.socket.settimeout(0.5)
        with contextlib.suppress(TimeoutError):  # the broker stops reading from us, rightly
            peer.socket.sendall(asking)
    with Peer(address) as other:
        for _ in range(20):
            assert is_served(other)
            time.sleep(0.01)
    grown = broker.resident_bytes - before
    for peer in peers:
        peer.reset()
    assert grown < 100 * MEGABYTE


def test_resets_in_the_middle_of_answers_harm_nobody(address, large_topic):
    for turn in range(60):
        peer = Peer(address, receive_buffer=4096)
        peer.send(fetch(large_topic, partition_max_bytes=16 * MEGABYTE) * (1 + turn % 3))
        peer.socket.recv(1 + turn * 100)
        if turn % 2:
            peer.reset()
        else:
            peer.socket.close()


def test_a_peer_that_closes_its_sending_half_still_gets_its_answer_or_is_closed(address, topic):
    with Peer(address) as peer:
        peer.send(request("ApiVersions", 0))
        peer.socket.shutdown(socket.SHUT_WR)
        answers = list(iter(peer.receive, None))
        assert len(answers) <= 1


def test_slow_senders_hold_nobody_up(address):
    whole = request("Metadata", 9, topics=[])
    peers = [Peer(address) for _ in range(100)]
    for byte in whole:
        for peer in peers:
            peer.send(bytes([byte]))
    for peer in peers:
        assert response("Metadata", 9, peer.receive()).brokers
        peer.socket.close()


def test_thousands_of_idle_connections_are_held(address, broker):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 3000
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, wanted + 1000)), hard))
    before = broker.resident_bytes
    peers = []
    try:
        for _ in range(wanted):
            peers.append(Peer(address))
            if (
                len(peers) % 25 == 0
            ):  # the broker's backlog is 50, and what it drops the kernel tries again a second later
                assert is_served(peers[-1])
        assert is_served(peers[0])
        with Peer(address) as late:
            assert is_served(late)
        assert broker.resident_bytes - before < wanted * 30_000
    finally:
        for peer in peers:
            peer.socket.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_frames_with_flipped_bytes_are_answered_or_closed_but_never_break_the_broker(address, topic, unique):
    dice = random.Random(20260)
    originals = [
        request("ApiVersions", 4, client_software_name="x", client_software_version="1"),
        request("Metadata", 12, topics=None, allow_auto_topic_creation=False),
        produce(topic, batch(GOOD)),
        produce(topic, batch(GOOD), version=9),
        fetch(topic),
        request("FindCoordinator", 4, key_type=0, coordinator_keys=[unique("group")]),
        request("Heartbeat", 4, group_id=unique("group"), generation_id=3, member_id="m", group_instance_id=None),
        request("ListGroups", 4, states_filter=["Stable"]),
        request("DescribeGroups", 5, groups=[unique("group")], include_authorized_operations=True),
        request(
            "InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
        ),
        request("DescribeCluster", 0, include_cluster_authorized_operations=True),
    ]
    for turn in range(1500):
        mutated = bytearray(originals[turn % len(originals)])
        for _ in range(dice.choice([1, 1, 2, 5])):
            mutated[dice.randrange(6, len(mutated))] = dice.choice([0, 1, 127, 128, 255, dice.randrange(256)])
        # Some flips make a request wait for long; nothing is asked of those.
        with Peer(address, timeout_s=0.1) as peer, contextlib.suppress(TimeoutError):
            peer.send(bytes(mutated))
            peer.receive()
