"""Clients across a restore: members of groups, and connections that are cut or kept."""

from __future__ import annotations

import socket
import struct
from typing import Any, Self

import pytest
import trio

from ottla.server.testing.errors import LabError
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.snapshots import snapshots
from ottla.server.testing.wire_tap.tests.wire_talk import fetch, produce, request
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

FAR_S = 30.0
FETCH_VERSION = 11
PRODUCE_VERSION = 11
API_VERSIONS = 2


@pytest.fixture
def kafka(kafka: Kafka) -> Kafka:
    kafka.topic("orders")
    return kafka


def join(kafka: Kafka, group: str) -> tuple[str, int]:
    """Join a classic group as its only member; return the member's id and the generation."""
    kafka.group(group).commit({("orders", 0): 0})  # which waits until there is a coordinator
    joining = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joining.member_id = kafka.ask(joining).member_id
    joined = kafka.ask(joining)
    assert not joined.error_code
    mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
    synced = kafka.ask(
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[mine],
        )
    )
    assert not synced.error_code
    return joined.member_id, joined.generation_id


def beat(kafka: Kafka, group: str, member_id: str, generation_id: int) -> ErrorCode:
    answer = kafka.ask(HeartbeatRequest(group_id=group, generation_id=generation_id, member_id=member_id))
    return ErrorCode.of(answer.error_code)


def test_a_member_goes_on_after_a_restore(kafka: Kafka) -> None:
    member = join(kafka, "billing")
    snapshot = kafka.snapshot()
    kafka.group("billing").evict(member[0])
    assert beat(kafka, "billing", *member) is ErrorCode.UNKNOWN_MEMBER_ID
    kafka.restore(snapshot)
    assert kafka.group("billing").offsets == {("orders", 0): 0}  # which waits until the group is loaded
    assert beat(kafka, "billing", *member) is ErrorCode.NONE
    assert [each.member_id for each in kafka.group("billing").members] == [member[0]]


def test_groups_of_a_fork_have_no_members(kafka: Kafka) -> None:
    classic = join(kafka, "billing")
    newer = ConsumerGroupHeartbeatRequest(
        group_id="newer",
        member_id="m-1",
        member_epoch=0,
        subscribed_topic_names=["orders"],
        rebalance_timeout_ms=30_000,
        topic_partitions=[],
    )
    kafka.group("newer").commit({("orders", 0): 0})
    assert not kafka.ask(newer).error_code
    with kafka.fork() as fork:
        for group in ("billing", "newer"):
            assert (fork.group(group).state, fork.group(group).members) == ("Empty", [])
            assert fork.group(group).offsets == {("orders", 0): 0}
        assert beat(fork, "billing", *classic) is ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(kafka, "billing", *classic) is ErrorCode.NONE
    assert len(kafka.group("newer").members) == 1


def test_a_fork_whose_members_cannot_be_removed_is_ended(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(made: Kafka) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ottla.server.testing.kafka.dismiss_members", fail)
    worlds = len(kafka.loop.worlds)
    with pytest.raises(KeyboardInterrupt):
        kafka.fork()
    assert len(kafka.loop.worlds) == worlds


class Client:
    """A connection of a client, over which it asks and is answered."""

    def __init__(self, kafka: Kafka) -> None:
        host, _, port = kafka.bootstrap.partition(":")
        self.sock = socket.create_connection((host, int(port)))
        self.sock.settimeout(FAR_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.sock.close()

    def say(self, message: Any, version: int) -> None:
        self.sock.sendall(request(message, version))

    def hear(self) -> bytes:
        """Return the next answer without its length; empty if the broker has hung up."""
        try:
            head = self._exactly(4)
            return self._exactly(struct.unpack(">i", head)[0]) if head else b""
        except ConnectionResetError:
            return b""

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (piece := self.sock.recv(size - len(data))):
            data += piece
        return data

    def is_served(self) -> bool:
        """Ask for the versions of requests; return True if there is an answer."""
        try:
            self.say(ApiVersionsRequest(), API_VERSIONS)
        except OSError:
            return False
        return len(self.hear()) > 100


def test_an_idle_connection_is_kept_if_that_is_asked(kafka: Kafka) -> None:
    snapshot = kafka.snapshot()
    with Client(kafka) as client:
        assert client.is_served()
        for _ in range(3):
            kafka.restore(snapshot, connections="kept")
            assert client.is_served()
        (listener,) = kafka.world.nodes[0].serving().listeners
        assert len(listener.connections) == 1
        kafka.restore(snapshot)
        assert not client.is_served()


def test_a_long_poll_ends_with_a_restore_and_its_connection_goes_on(kafka: Kafka) -> None:
    snapshot = kafka.snapshot()
    polling = fetch(("orders", 0))
    polling.max_wait_ms = 600_000
    with Client(kafka) as client:
        assert client.is_served()
        client.say(polling, FETCH_VERSION)
        while not kafka.loop.call_sync(waits_for_records, kafka):
            kafka.clock.advance(0)
        kafka.restore(snapshot, connections="kept")
        answer = FetchResponse.decode(client.hear(), FETCH_VERSION, start=4)  # behind the correlation id
        assert not answer.error_code and not answer.responses[0].partitions[0].records
        assert client.is_served()
        # The connection reads what the new broker has.
        kafka.produce("orders", "a")
        client.say(polling, FETCH_VERSION)
        assert b"a" in client.hear()


def waits_for_records(kafka: Kafka) -> bool:
    (listener,) = kafka.world.nodes[0].serving().listeners
    # Parked are also those whose codecs are still being loaded, by a thread.
    return any(connection.is_parked and connection._pending for connection in listener.connections)


def test_a_connection_with_half_a_request_is_cut(kafka: Kafka) -> None:
    snapshot = kafka.snapshot()
    with Client(kafka) as client, Client(kafka) as other:
        assert client.is_served() and other.is_served()
        client.sock.sendall(request(ApiVersionsRequest(), API_VERSIONS)[:-3])
        while not kafka.loop.call_sync(has_half_a_request, kafka):
            kafka.clock.advance(0)
        kafka.restore(snapshot, connections="kept")
        assert client.hear() == b""
        assert other.is_served()


def has_half_a_request(kafka: Kafka) -> bool:
    (listener,) = kafka.world.nodes[0].serving().listeners
    return not all(connection._inbox.is_empty for connection in listener.connections)


def held_requests(kafka: Kafka) -> int:
    return sum(not each.is_idle for each in kafka.world.nodes[0].conversations())


def test_a_connection_whose_request_a_rule_holds_back_is_cut(kafka: Kafka) -> None:
    snapshot = kafka.snapshot()
    kafka.on("ApiVersions").delay(FAR_S, before=True)
    with Client(kafka) as client:
        client.say(ApiVersionsRequest(), API_VERSIONS)
        while not kafka.loop.call_sync(held_requests, kafka):
            kafka.clock.advance(0)
        kafka.restore(snapshot, connections="kept")
        assert client.hear() == b""


def test_a_request_that_is_let_through_is_answered(kafka: Kafka) -> None:
    held = kafka.on("ApiVersions").delay(FAR_S, times=None, before=True)
    with Client(kafka) as client:
        client.say(ApiVersionsRequest(), API_VERSIONS)
        client.say(ApiVersionsRequest(), API_VERSIONS)
        while not kafka.loop.call_sync(held_requests, kafka):
            kafka.clock.advance(0)
        held.remove()
        kafka.loop.call_sync(kafka.world.nodes[0].let_through, held)
        assert len(client.hear()) > 100 and len(client.hear()) > 100 and client.is_served()


def test_a_restore_lets_clients_have_the_answers_to_what_they_have_sent(kafka: Kafka) -> None:
    snapshot = kafka.snapshot()
    kafka.on("Produce").delay(0.05)
    with Client(kafka) as client:
        client.say(produce(("orders", 0), records=encode_batch([Record(0, 0, None, b"a", ())])), PRODUCE_VERSION)
        while not kafka.records("orders"):
            kafka.clock.advance(0)
        kafka.restore(snapshot)
        assert client.hear() and client.hear() == b""
        assert not kafka.records("orders")


def test_a_restore_does_not_wait_for_an_answer_that_never_comes(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "ANSWERED_LOOKS", 10**9)
    snapshot = kafka.snapshot()
    kafka.on("Produce").drop(applied=True)
    with Client(kafka) as client:
        client.say(produce(("orders", 0), records=encode_batch([Record(0, 0, None, b"a", ())])), PRODUCE_VERSION)
        while not kafka.records("orders"):
            kafka.clock.advance(0)
        assert kafka.loop.call_sync(held_requests, kafka)
        kafka.restore(snapshot)
        assert client.hear() == b""


def test_a_broker_that_is_paused_serves_after_a_restore(kafka: Kafka) -> None:
    snapshot = kafka.snapshot()
    kafka.broker(0).pause()
    kafka.restore(snapshot)
    with Client(kafka) as client:
        assert client.is_served()


def test_connections_to_a_broker_that_is_down_then_are_closed(kafka: Kafka) -> None:
    kafka.broker(0).kill()
    down = kafka.snapshot()
    kafka.broker(0).start()
    with Client(kafka) as client:
        assert client.is_served()
        kafka.restore(down, connections="kept")
        assert not client.is_served()


def test_another_word_for_connections_is_refused(kafka: Kafka) -> None:
    with pytest.raises(LabError, match=r"^Connections cannot be 'saved' by a restore; say 'cut' or 'kept'\.$"):
        kafka.restore(kafka.snapshot(), connections="saved")
    assert kafka.topics() == {"orders": 1}


def test_a_history_begins_with_the_first_request_after_a_restore(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    def come_back() -> None:
        with Client(kafka) as client:
            assert client.is_served()

    async def until_settled() -> None:
        await trio.to_thread.run_sync(come_back)

    come_back()
    snapshot = kafka.snapshot()
    monkeypatch.setattr(kafka.world, "until_settled", until_settled)
    kafka.restore(snapshot)
    assert len(kafka.wire.requests()) == 2
    assert kafka.wire.requests(since=kafka.history._since) == kafka.wire.requests()[1:]
