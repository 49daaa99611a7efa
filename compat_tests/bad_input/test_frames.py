"""Frames that cannot be, come in pieces or never come."""

import struct

import pytest
from compat_tests.bad_input.bystander import INT32_MAX, LARGEST_FRAME, MEGABYTE, is_served
from compat_tests.support.raw import Peer, request, response


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
