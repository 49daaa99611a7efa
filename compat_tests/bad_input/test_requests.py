"""Headers and bodies that do not parse, versions that do not exist, tags without end."""

import struct

import pytest
from compat_tests.bad_input.bystander import (
    API_VERSIONS,
    FETCH,
    INT32_MAX,
    INVALID_REQUEST,
    METADATA,
    PRODUCE,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
    is_served,
)
from compat_tests.support.raw import Peer, frame, header, request, response, string


@pytest.mark.parametrize("api_key", [-1, 4, 52, 95, 999, 32767])
def test_an_unknown_api_key_closes_the_connection(peer, api_key):
    peer.send(frame(header(api_key, 0) + bytes(20)))
    assert peer.is_closed()


@pytest.mark.parametrize(("api_key", "version"), [(METADATA, 99), (METADATA, -1), (FETCH, 19), (PRODUCE, 14), (8, 1)])
def test_an_unsupported_version_closes_the_connection(peer, api_key, version):
    peer.send(frame(header(api_key, version) + bytes(40)))
    assert peer.is_closed()


@pytest.mark.parametrize("version", [6, 99, 32767, -1])
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


def test_the_log_quotes_a_peer_in_short_and_on_one_line(start_broker, wait_until):
    broker = start_broker()  # of its own: the log of the shared one has its fill of complaints for this minute
    client_id = b"x\n2031-01-01 00:00:00,000 CRITICAL ottla: all is lost " + b"x" * 30_000
    with Peer((broker.host, broker.port)) as peer:
        peer.send(frame(struct.pack(">hhi", METADATA, 1, 1) + string(client_id) + b"\0"))
        assert peer.is_closed()
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
