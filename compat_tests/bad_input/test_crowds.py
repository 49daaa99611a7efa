"""Peers that are slow, silent, half gone or very many; and frames with flipped bytes."""

import contextlib
import itertools
import random
import resource
import socket
import struct
import threading
import time

import pytest
from compat_tests.bad_input.bystander import GOOD, MEGABYTE, NONE, is_served, produced
from compat_tests.support.raw import Peer, batch, fetch, produce, request, response


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
        with Peer(address) as peer, contextlib.suppress(TimeoutError):
            peer.send(bytes(mutated))
            peer.socket.settimeout(0.1)
            peer.receive()
