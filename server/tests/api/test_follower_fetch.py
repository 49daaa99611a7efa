"""Fetches of followers: what they get, what the leader learns from them, when they wait and what wakes them."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from ottla.replication.cluster.metadata_cache import (
    BrokerEndpoint,
    BrokerRegistration,
    MetadataCache,
    PartitionState,
    TopicState,
)
from ottla.replication.config import RACK_AWARE, ReplicationConfig
from ottla.replication.fetcher.throttle import Limit, ReplicationThrottle
from ottla.replication.log.tests.logs import NOW_MS, TOPIC_ID, batch, contents, new_log
from ottla.replication.partition.fetch_session import FetchSessionCache
from ottla.replication.partition.partition import Partition
from ottla.server.api.fetch.waiting import WaitingFetch
from ottla.server.api.handlers.fetch import fetch
from ottla.server.config.server_config import ServerConfig
from ottla.server.dispatch.context import RequestContext
from ottla.server.environment import Environment
from ottla.server.network.deadlines import Deadlines
from ottla.server.network.transport import REPLICA_SEND_BUFFER_BYTES, UNCHANGED, widen_for_replica
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from ottla.wire.tests.garbage import nothing_is_left_of

VERSION = 17
EPOCH = 3


class AlterPartitionManager:
    """Notes who fetched."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []

    def on_follower_fetch(self, partition: Partition, broker_id: int) -> None:
        self.told.append((partition.index, broker_id))


class Leader:
    """A broker for the fetch handler: it leads topic t, whose replicas are 1, 2 and 3; 3 is not in sync."""

    node_id = 1
    authorizer = None

    def __init__(self, partitions: int = 2) -> None:
        self.cluster = MetadataCache()
        state = PartitionState(replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=EPOCH)
        self.cluster.put_topic(TopicState("t", TOPIC_ID, (state,) * partitions))
        self.replicas = SimpleNamespace(partition=self.partition)
        self.alter_partition_manager = AlterPartitionManager()
        self.is_in_cluster = True
        self.member: Any = SimpleNamespace(alter_partition_manager=self.alter_partition_manager, is_fenced=False)
        self.config = SimpleNamespace(replication=ReplicationConfig(), server=ServerConfig())
        self.socket: Any = None  # of the connection that asks
        self.fetch_sessions = FetchSessionCache(10, lambda: 77)
        self.deadlines = Deadlines()
        self.environment = Environment()
        self.time_ms = NOW_MS
        self.rate = 1 << 62
        self.throttled: tuple[str, ...] = ()
        leader = ReplicationThrottle(
            1, limit=lambda: Limit(self.rate, 11, 1), throttled_replicas=lambda _: self.throttled
        )
        self.throttles = SimpleNamespace(leader=leader)
        self.partitions = [self.led(index) for index in range(partitions)]

    def led(self, index: int) -> Partition:
        partition = Partition("t", index, new_log(), local_id=1)
        partition.make_leader(
            leader_epoch=EPOCH, partition_epoch=0, replicas=(1, 2, 3), isr=(1, 2), now_ms=self.time_ms
        )
        return partition

    def now_ms(self) -> int:
        return self.time_ms

    def partition(self, topic: str, index: int) -> Partition:
        return self.partitions[index]

    def append(self, index: int = 0) -> bytes:
        records = batch()
        self.partitions[index].append_as_leader(records, required_acks=1, now_ms=self.time_ms)
        return bytes(records)

    def ask(
        self,
        offsets: dict[int, int],
        *,
        broker: int = 2,
        version: int = VERSION,
        max_wait_ms: int = 500,
        leader_epoch: int = EPOCH,
        last_fetched_epoch: int = -1,
        session: tuple[int, int] = (0, -1),
        rack: str = "",
        partition_max_bytes: int = 1 << 20,
    ) -> Any:
        wishes = [
            FetchPartition(
                partition=index,
                current_leader_epoch=leader_epoch,
                fetch_offset=offset,
                last_fetched_epoch=last_fetched_epoch,
                log_start_offset=0,
                partition_max_bytes=partition_max_bytes,
            )
            for index, offset in offsets.items()
        ]
        request = FetchRequest(
            replica_id=broker if version < 15 else -1,
            replica_state=ReplicaState(replica_id=broker, replica_epoch=40 + broker),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            session_id=session[0],
            rack_id=rack,
            session_epoch=session[1],
            topics=[FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=wishes)] if wishes else [],
        )
        context = RequestContext(cast(Any, self), api_version=version, now_ms=self.time_ms, socket=self.socket)
        return fetch(request, context)


def told(response: FetchResponse) -> dict[int, PartitionData]:
    assert isinstance(response, FetchResponse)
    assert not response.error_code
    return {each.partition_index: each for topic in response.responses for each in topic.partitions}


def waiting(answer: Any) -> WaitingFetch:
    assert isinstance(answer, WaitingFetch)
    assert not answer.is_ready
    return answer


@pytest.fixture
async def leader() -> Leader:
    return Leader()


class Options:
    """A socket that notes its options."""

    def __init__(self) -> None:
        self.set: list[tuple[int, int, int]] = []

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self.set.append((level, option, value))


WIDENED = [(socket.SOL_SOCKET, socket.SO_SNDBUF, REPLICA_SEND_BUFFER_BYTES)]


async def test_long_answers_to_a_follower_have_room_in_its_socket(leader: Leader) -> None:
    leader.append()
    leader.socket = sock = Options()
    told(leader.ask({0: 0, 1: 0}, session=(0, 0)))
    assert sock.set == WIDENED
    leader.ask({0: 1}, session=(77, 1))  # the session goes on, and nothing is left to be done
    assert sock.set == WIDENED


async def test_who_is_no_follower_gets_no_more_room(leader: Leader) -> None:
    leader.append()
    leader.socket = sock = Options()
    told(leader.ask({0: 0}, broker=-1, session=(0, 0), max_wait_ms=0))
    assert told(leader.ask({0: 0}, broker=9, session=(77, 0)))[0].error_code  # it is none of the replicas
    leader.config.server = ServerConfig(socket_send_buffer_bytes=200_000)  # somebody has chosen
    told(leader.ask({0: 0}, session=(77, 0)))
    assert sock.set == []


def test_a_connection_that_has_ended_needs_no_room() -> None:
    ended = socket.socket()
    ended.close()
    widen_for_replica(ended, UNCHANGED)


@pytest.mark.parametrize("version", [10, 12, 14, 17])
async def test_a_follower_reads_to_the_log_end_and_tells_how_far_it_is(leader: Leader, version: int) -> None:
    records = leader.append()
    partition = leader.partitions[0]
    answer = told(leader.ask({0: 0}, version=version))[0]
    assert contents(answer.records)[12:] == records[12:]
    assert (answer.error_code, answer.high_watermark, answer.aborted_transactions) == (0, 0, None)
    assert partition.followers is not None
    follower = partition.followers.by_id[2]
    assert (follower.log_end_offset, follower.log_start_offset) == (0, 0)
    assert follower.broker_epoch == (42 if version >= 15 else -1)
    assert leader.alter_partition_manager.told == [(0, 2)]
    answer = told(leader.ask({0: 1}, version=version, max_wait_ms=0))[0]
    assert (answer.high_watermark, partition.high_watermark) == (1, 1), "it hears at once what it made committed"


async def test_only_the_first_read_of_a_request_counts_as_progress(leader: Leader) -> None:
    reading = waiting(leader.ask({0: 0}))
    leader.append()
    assert reading.is_ready
    assert told(reading.response())[0].records
    assert leader.alter_partition_manager.told == [(0, 2)]


@pytest.mark.parametrize("is_answered", [True, False])
async def test_nothing_is_left_of_a_request_that_has_waited(leader: Leader, is_answered: bool) -> None:
    with nothing_is_left_of(WaitingFetch):
        reading = waiting(leader.ask({0: 0}))
        if is_answered:
            leader.append()
            assert told(reading.response())[0].records
        else:
            reading.abandon()
        del reading


async def test_what_has_left_our_log_does_not_count(leader: Leader) -> None:
    leader.append()
    answer = told(leader.ask({0: 5}, last_fetched_epoch=EPOCH))[0]
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (EPOCH, 1)
    partition = leader.partitions[0]
    assert partition.followers is not None
    assert partition.followers.by_id[2].log_end_offset == -1
    assert leader.alter_partition_manager.told == []


@pytest.mark.parametrize(
    ("version", "broker", "leader_epoch", "code"),
    [
        (VERSION, 4, EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (VERSION, 4, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (8, 4, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (VERSION, 2, EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (VERSION, 2, EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_who_does_not_follow_is_refused(
    leader: Leader, version: int, broker: int, leader_epoch: int, code: ErrorCode
) -> None:
    answer = told(leader.ask({0: 0}, broker=broker, version=version, leader_epoch=leader_epoch))[0]
    assert (answer.error_code, answer.high_watermark) == (code, -1)
    assert leader.alter_partition_manager.told == []


async def test_a_broker_that_is_alone_has_no_followers(leader: Leader) -> None:
    leader.is_in_cluster = False
    assert told(leader.ask({0: 0}))[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_another_broker_leads_by_now(leader: Leader) -> None:
    reading = waiting(leader.ask({0: 0}))
    leader.partitions[0].make_follower(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(1, 2, 3))
    assert reading.is_ready
    assert told(reading.response())[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert told(leader.ask({0: 0}, leader_epoch=4))[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_follower_wakes_for_records_and_not_for_commits(leader: Leader) -> None:
    leader.append()
    reading = waiting(leader.ask({0: 1, 1: 0}, broker=3))
    leader.ask({0: 1}, broker=2)
    assert leader.partitions[0].high_watermark == 1
    assert not reading.is_ready
    records = leader.append(1)
    assert reading.is_ready
    answer = told(reading.response())
    assert contents(answer[1].records)[12:] == records[12:]
    assert answer[0].high_watermark == 1, "it is told on the way"
    assert not leader.partitions[1].watchers


async def test_a_consumer_wakes_for_commits(leader: Leader) -> None:
    reading = waiting(leader.ask({0: 0}, broker=-1))
    leader.append()
    assert not reading.is_ready
    leader.ask({0: 1}, broker=2, max_wait_ms=0)
    assert reading.is_ready
    assert told(reading.response())[0].records


@pytest.mark.parametrize(
    ("leader_epoch", "code"), [(4, ErrorCode.NOT_LEADER_OR_FOLLOWER), (3, ErrorCode.FENCED_LEADER_EPOCH)]
)
async def test_who_asks_a_former_leader_hears_who_leads(leader: Leader, leader_epoch: int, code: ErrorCode) -> None:
    endpoint = BrokerEndpoint(2, "host-2", 9092, "b")
    leader.cluster.put_broker(BrokerRegistration(2, {"PLAINTEXT": endpoint}))
    leader.partitions[0].make_follower(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(1, 2, 3))
    response = leader.ask({0: 0}, broker=3, leader_epoch=leader_epoch)
    answer = told(response)[0]
    assert (answer.error_code, answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (code, 2, 4)
    if code == ErrorCode.FENCED_LEADER_EPOCH:
        response = leader.ask({0: 0}, broker=-1, leader_epoch=leader_epoch)
        assert [(each.node_id, each.host, each.rack) for each in response.node_endpoints] == [(2, "host-2", "b")]


async def test_the_wait_ends_with_its_time(leader: Leader, nursery: trio.Nursery) -> None:
    nursery.start_soon(leader.deadlines.run)
    ready = trio.Event()
    reading = waiting(leader.ask({0: 0, 1: 0}, max_wait_ms=1))
    reading.on_ready = ready.set
    await ready.wait()
    assert [each.error_code for each in told(reading.response()).values()] == [0, 0]
    assert not any(partition.watchers for partition in leader.partitions)


async def test_a_session_tells_only_news(leader: Leader) -> None:
    leader.append()
    first = leader.ask({0: 0, 1: 0}, session=(0, 0))
    assert sorted(told(first)) == [0, 1]
    assert first.session_id == 77
    reading = waiting(leader.ask({0: 1}, session=(77, 1)))
    leader.append(1)
    answer = told(reading.response())
    assert sorted(answer) == [0, 1], "of the first, the high watermark"
    assert (answer[0].high_watermark, bool(answer[0].records)) == (1, False)
    assert told(leader.ask({1: 1}, session=(77, 2), max_wait_ms=0)).keys() == {1}


async def test_an_out_of_sync_follower_is_throttled(leader: Leader) -> None:
    leader.throttled, leader.rate = ("0:1",), 50
    for index in (0, 1):
        leader.append(index)
    assert told(leader.ask({0: 0}, broker=3))[0].records, "nothing was moved before"
    reading = waiting(leader.ask({0: 0}, broker=3))
    leader.append()
    assert not reading.is_ready
    leader.append(1)
    assert told(leader.ask({0: 0, 1: 0}, broker=3)).keys() == {0, 1}
    answer = told(leader.ask({0: 0, 1: 0}, broker=3))
    assert (bool(answer[0].records), bool(answer[1].records)) == (False, True)
    assert told(leader.ask({0: 0}, broker=2))[0].records, "who is in sync is not throttled"
    leader.time_ms += 60_000
    assert told(leader.ask({0: 0}, broker=3))[0].records


# ---------------------------------------------------------------------- consumers at followers (KIP-392)


def in_racks(leader: Leader, **racks: str) -> None:
    """Put broker-1 and so on into racks, and let leaders choose by them."""
    for name, rack in racks.items():
        broker = int(name.removeprefix("broker"))
        leader.cluster.put_broker(
            BrokerRegistration(broker, {"PLAINTEXT": BrokerEndpoint(broker, "host", 9092, rack)}, rack)
        )
    leader.config.replication = ReplicationConfig(replica_selector_class=RACK_AWARE)


@pytest.mark.parametrize(
    ("rack", "version", "preferred"),
    [("b", 11, 2), ("b", 17, 2), ("b", 10, -1), ("a", 17, -1), ("", 17, -1), ("d", 17, -1)],
)
async def test_a_consumer_is_sent_to_the_follower_in_its_rack(
    leader: Leader, rack: str, version: int, preferred: int
) -> None:
    in_racks(leader, broker1="a", broker2="b", broker3="c")
    leader.append()
    leader.ask({0: 1}, broker=2, max_wait_ms=0)
    answer = told(leader.ask({0: 0}, broker=-1, rack=rack, version=version))[0]
    assert answer.preferred_read_replica == preferred
    assert bool(answer.records) == (preferred == -1)
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (1, 1, 0)


async def test_followers_without_the_offset_or_out_of_sync_are_not_preferred(leader: Leader) -> None:
    in_racks(leader, broker1="a", broker2="b", broker3="b")
    leader.append()
    leader.ask({0: 1}, broker=3, max_wait_ms=0)
    leader.ask({0: 0}, broker=2, max_wait_ms=0)
    waiting(leader.ask({0: 1}, broker=-1, rack="b"))
    assert told(leader.ask({0: 0}, broker=-1, rack="b"))[0].preferred_read_replica == 2


async def test_without_a_selector_the_leader_serves(leader: Leader) -> None:
    in_racks(leader, broker1="a", broker2="b")
    leader.config.replication = ReplicationConfig()
    leader.append()
    leader.ask({0: 1}, broker=2, max_wait_ms=0)
    assert told(leader.ask({0: 0}, broker=-1, rack="b"))[0].records


async def test_the_choice_is_fenced_like_a_read(leader: Leader) -> None:
    in_racks(leader, broker1="a", broker2="b")
    leader.ask({0: 0}, broker=2)
    assert told(leader.ask({0: 0}, broker=-1, rack="b", leader_epoch=2))[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(("version", "code"), [(10, ErrorCode.NOT_LEADER_OR_FOLLOWER), (11, 0), (17, 0)])
async def test_a_follower_serves_consumers_up_to_the_high_watermark_it_knows(
    leader: Leader, version: int, code: int
) -> None:
    partition = leader.partitions[0]
    partition.make_follower(leader_id=2, leader_epoch=EPOCH + 1, partition_epoch=1, replicas=(1, 2))
    for offset in (0, 1):
        records = bytearray(batch(leader_epoch=EPOCH + 1))
        records[:8] = offset.to_bytes(8, "big")
        partition.append_as_follower(
            memoryview(records), leader_high_watermark=offset, leader_log_start_offset=0, now_ms=NOW_MS
        )
    answer = told(leader.ask({0: 0}, broker=-1, version=version, leader_epoch=EPOCH + 1))[0]
    assert answer.error_code == code
    if not code:
        assert answer.high_watermark == 1
        assert len(contents(answer.records)) == len(records)
        reading = waiting(leader.ask({0: 1}, broker=-1, version=version, leader_epoch=EPOCH + 1))
        records[:8] = (2).to_bytes(8, "big")
        partition.append_as_follower(
            memoryview(records), leader_high_watermark=2, leader_log_start_offset=0, now_ms=NOW_MS
        )
        assert reading.is_ready
        fenced = told(leader.ask({0: 0}, broker=-1, version=version, leader_epoch=EPOCH))[0]
        assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
