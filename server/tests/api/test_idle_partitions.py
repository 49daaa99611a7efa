"""Fetch sessions that leave idle partitions unread answer, and teach the leader, what reading everything would."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import pytest
import trio
from hypothesis import example, given, settings

from ottla.replication.cluster.metadata_cache import TopicState
from ottla.replication.log.tests.logs import TOPIC_ID, batch, contents
from ottla.replication.partition import fetch_session
from ottla.replication.partition.fetch_session import EVICTION_MS, FetchSessionCache
from ottla.replication.partition.partition import Partition
from ottla.server.api.fetch.waiting import WaitingFetch
from ottla.server.api.handlers.fetch import fetch
from ottla.server.tests.api.test_follower_fetch import EPOCH, VERSION, Leader, told
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from ottla.wire.tests.effort import examples

ALWAYS, NEVER = 1, 1 << 30
COUNT = 5
SOCKET = SimpleNamespace(setsockopt=lambda *_: None)
LAG_MS = 30_000
CONSUMER = -1
BATCH_SIZE = len(batch())


class Client:
    """One fetch session: what it wants next, and the answer it waits for."""

    def __init__(self, broker: int) -> None:
        self.broker = broker
        self.session = (0, 0)
        self.offsets = dict.fromkeys(range(COUNT), 0)
        self.changed = set(self.offsets)
        self.forgotten: set[int] = set()
        self.waits_for: WaitingFetch | None = None
        self.isolation = 0


class FencedLeader(Leader):
    """A leader that may be fenced."""

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self.replicas = SimpleNamespace(partition=super().partition)

    def partition(self, topic: str, index: int) -> Partition:
        if self.member.is_fenced:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return super().partition(topic, index)


class AskedToJoin:
    """Notes which followers fetched that may want to be in sync."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []

    def on_follower_fetch(self, partition: Partition, broker_id: int) -> None:
        if broker_id not in partition.isr:
            self.told.append((partition.index, broker_id))


class World:
    """A leader and its clients. Everything that happens here gives values that can be compared."""

    def __init__(self, idle_from: int) -> None:
        self.leader = FencedLeader(COUNT)
        self.leader.member.alter_partition_manager = self.asked_to_join = AskedToJoin()
        self.leader.fetch_sessions = FetchSessionCache(10, itertools.count(1).__next__)
        self.clients = [Client(2), Client(3), Client(CONSUMER)]
        self.epochs = [EPOCH] * COUNT
        self._idle_from = idle_from

    def everybody_has_everything(self) -> None:
        for index in range(COUNT):
            self.append(index)
        for _ in range(4):
            for number, _ in enumerate(self.clients):
                self.do("fetch", number, 0, 1 << 20)
            for index in range(COUNT):
                self.in_sync(index, (1, 2, 3))

    def do(self, what: str, *arguments: Any) -> object:
        with patch.object(fetch_session, "IDLE_FROM", self._idle_from):
            return getattr(self, what)(*arguments)

    # --- clients

    def fetch(self, number: int, max_wait_ms: int, max_bytes: int) -> object:
        client = self.clients[number]
        if client.waits_for is not None:
            return self.answer(number)
        answer: Any = fetch(self._request(client, max_wait_ms, max_bytes), self._context())
        client.changed.clear()
        client.forgotten.clear()
        if isinstance(answer, WaitingFetch):
            client.waits_for = answer
            return answer.is_ready
        return self._take(client, answer)

    def answer(self, number: int) -> object:
        client = self.clients[number]
        waited, client.waits_for = client.waits_for, None
        return None if waited is None else (waited.is_ready, self._take(client, waited.response()))

    def _context(self) -> Any:
        return SimpleNamespace(
            broker=self.leader,
            api_version=VERSION,
            now_ms=self.leader.time_ms,
            listener_name="L",
            charge=None,
            socket=SOCKET,
            principal="User:broker",
        )

    def _request(self, client: Client, max_wait_ms: int, max_bytes: int) -> FetchRequest:
        indexes = client.offsets if client.session[1] == 0 else sorted(client.changed & client.offsets.keys())
        epoch = -1 if client.broker == CONSUMER else EPOCH
        partitions = [
            FetchPartition(
                partition=index,
                fetch_offset=client.offsets[index],
                current_leader_epoch=epoch if epoch < 0 else self.epochs[index],
                last_fetched_epoch=-1,
                log_start_offset=0,
                partition_max_bytes=1 << 20,
            )
            for index in indexes
        ]
        return FetchRequest(
            replica_state=ReplicaState(replica_id=client.broker, replica_epoch=7),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=client.isolation,
            session_id=client.session[0],
            session_epoch=client.session[1],
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=TOPIC_ID, partitions=sorted(client.forgotten))]
            if client.forgotten and client.session[1]
            else [],
        )

    def _take(self, client: Client, response: Any) -> object:
        answers = [each for topic in response.responses for each in topic.partitions]
        if response.error_code or not response.session_id:
            client.session = (0, 0)
        else:
            client.session = (response.session_id, client.session[1] + 1)
        for each in answers:
            index = each.partition_index
            if index in client.offsets and each.records:
                client.offsets[index] += len(contents(each.records)) // BATCH_SIZE
                client.changed.add(index)
            elif index in client.offsets and each.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                client.offsets[index] = self.leader.partitions[index].log_start_offset
                client.changed.add(index)
        return (
            response.error_code,
            response.session_id,
            [
                (each.partition_index, each.error_code, each.high_watermark, each.log_start_offset)
                + (each.last_stable_offset, contents(each.records))
                for each in answers
            ],
        )

    def forget(self, number: int, index: int) -> None:
        client = self.clients[number]
        if client.waits_for is None and len(client.offsets) > 1 and index in client.offsets:
            del client.offsets[index]
            client.forgotten.add(index)

    def want(self, number: int, index: int) -> None:
        client = self.clients[number]
        if client.waits_for is None and index not in client.forgotten:
            client.offsets[index] = 0  # once more, if it had some
            client.changed.add(index)

    def begin_anew(self, number: int) -> None:
        client = self.clients[number]
        if client.waits_for is None:
            client.session = (client.session[0], 0)
            client.forgotten.clear()

    def hang_up(self, number: int) -> None:
        client = self.clients[number]
        waited, client.waits_for = client.waits_for, None
        if waited is not None:
            waited.abandon()
            client.session = (0, 0)

    def isolate(self, number: int) -> None:
        if self.clients[number].broker == CONSUMER:
            self.clients[number].isolation ^= 1

    # --- the leader

    def append(self, index: int) -> None:
        if self.leader.partitions[index].is_leader:
            self.leader.append(index)

    def delete(self, index: int) -> None:
        partition = self.leader.partitions[index]
        if partition.is_leader:
            partition.delete_records(-1)

    def elect(self, index: int, isr: tuple[int, ...]) -> None:
        self.epochs[index] += 1
        self._lead(self.leader.partitions[index], self.epochs[index], isr)

    def _lead(self, partition: Partition, epoch: int, isr: tuple[int, ...]) -> None:
        partition.make_leader(
            leader_epoch=epoch, partition_epoch=0, replicas=(1, 2, 3), isr=isr, now_ms=self.leader.time_ms
        )

    def in_sync(self, index: int, isr: tuple[int, ...]) -> None:
        self.leader.partitions[index].settle_isr(isr, leader_epoch=self.epochs[index], partition_epoch=0)

    def resign(self, index: int) -> None:
        self.epochs[index] += 1
        self.leader.partitions[index].make_follower(
            leader_id=2, leader_epoch=self.epochs[index], partition_epoch=0, replicas=(1, 2, 3)
        )

    def recreate(self, index: int) -> None:
        old, self.leader.partitions[index] = self.leader.partitions[index], self.leader.led(index)
        self._lead(self.leader.partitions[index], self.epochs[index], (1, 2))
        old.mark_deleted()

    def resize_topic(self, count: int) -> None:
        state = self.leader.cluster.topics["t"].partitions[0]
        self.leader.cluster.put_topic(TopicState("t", TOPIC_ID, (state,) * count))

    def fence(self) -> None:
        self.leader.member.is_fenced = not self.leader.member.is_fenced

    def throttle(self) -> None:
        self.leader.throttled, self.leader.rate = ((), 1 << 62) if self.leader.throttled else (("*",), 50)

    def wait(self, time_ms: int) -> None:
        self.leader.time_ms += time_ms

    # --- what is known

    def known(self) -> object:
        leader = self.leader
        return self.asked_to_join.told, [
            [
                (each.high_watermark, each.log_end_offset),
                [
                    (broker, follower.log_end_offset, follower.caught_up_ms, follower.log_start_offset)
                    for broker, follower in (each.followers.by_id.items() if each.followers else ())
                ],
                each.shrunk_isr(leader.time_ms),
            ]
            for each in leader.partitions
        ]


CLIENTS = st.integers(0, 2)
INDEXES = st.integers(0, COUNT - 1)
ISRS = st.sampled_from([(1, 2), (1, 3), (1, 2, 3), (1,)])
WAITS = st.tuples(st.just("fetch"), CLIENTS, st.just(500), st.just(1 << 20))
NOW = st.tuples(st.just("fetch"), CLIENTS, st.just(0), st.sampled_from([1 << 20, 150, 0]))
APPENDS = st.tuples(st.just("append"), INDEXES)
PASSES = st.tuples(st.just("wait"), st.sampled_from([1, 100, LAG_MS // 2, LAG_MS + 1]))
ANSWERS = st.tuples(st.just("answer"), CLIENTS)
RARE = st.one_of(
    st.tuples(st.sampled_from(["delete", "resign", "recreate"]), INDEXES),
    st.tuples(st.sampled_from(["forget", "want"]), CLIENTS, INDEXES),
    st.tuples(st.sampled_from(["begin_anew", "hang_up", "isolate"]), CLIENTS),
    st.tuples(st.sampled_from(["elect", "in_sync"]), INDEXES, ISRS),
    st.tuples(st.just("resize_topic"), st.integers(1, COUNT)),
    st.sampled_from([("fence",), ("throttle",)]),
)
HAPPENINGS = st.one_of(WAITS, NOW, NOW, APPENDS, PASSES, ANSWERS, ANSWERS, RARE)


TOPIC_SHRINKS_DURING_A_WAIT = [
    *[("fetch", 0, 500, 1 << 20)] * 23,
    ("append", 0),
    ("append", 1),
    ("resize_topic", 1),
    ("answer", 0),
]


@settings(max_examples=examples(30), deadline=None)
@example(TOPIC_SHRINKS_DURING_A_WAIT)
@given(st.lists(HAPPENINGS, min_size=30, max_size=80))
def test_idle_partitions_make_no_difference(happenings: list[tuple[Any, ...]]) -> None:
    async def compare() -> None:
        lazy, diligent = World(ALWAYS), World(NEVER)
        for world in (lazy, diligent):
            world.everybody_has_everything()
        assert lazy.known() == diligent.known()
        for happening in happenings:
            assert lazy.do(*happening) == diligent.do(*happening), happening
            assert lazy.known() == diligent.known(), happening

    trio.run(compare)


@pytest.fixture
async def leader() -> Leader:
    leader = Leader(1_200)
    for partition in leader.partitions:
        partition.settle_isr((1, 2), leader_epoch=EPOCH, partition_epoch=0)
    return leader


async def test_a_large_session_reads_what_has_changed(leader: Leader) -> None:
    first = leader.ask(dict.fromkeys(range(1_200), 0), session=(0, 0), max_wait_ms=0)
    assert len(told(await first)) == 1_200
    reads = []
    with patch.object(
        Partition, "read", lambda self, *_, _read=Partition.read, **how: reads.append(self) or _read(self, *_, **how)
    ):
        waiting = leader.ask({}, session=(77, 1))
        assert not reads
        leader.append(7)
        assert waiting.is_ready
        assert told(waiting.response()).keys() == {7}
        assert told(leader.ask({7: 1, 8: 0}, session=(77, 2), max_wait_ms=0)).keys() == {7}
    assert {each.index for each in reads} == {7, 8}
    leader.partitions[9].make_follower(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(1, 2, 3))
    assert told(leader.ask({}, session=(77, 3), max_wait_ms=0))[9].error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_a_large_session_is_not_read_whole_at_the_end_of_a_wait(leader: Leader) -> None:
    """It may have 50,000 partitions, and whatever changes in the cluster would have all of them read at once."""
    await leader.ask(dict.fromkeys(range(1_200), 0), session=(0, 0), max_wait_ms=0)
    waiting = leader.ask({}, session=(77, 1))
    leader.cluster.put_topic(TopicState("other", b"o" * 16, leader.cluster.topics["t"].partitions[:1]))
    for index in (7, 8):
        leader.append(index)
    reads = []
    with patch.object(
        Partition, "read", lambda self, *_, _read=Partition.read, **how: reads.append(self) or _read(self, *_, **how)
    ):
        assert told(waiting.response()).keys() == {7, 8}
    assert {each.index for each in reads} == {7, 8}


@pytest.mark.parametrize("end", ["forgotten", "closed", "evicted", "replaced"])
async def test_nothing_is_left_of_a_session_that_has_ended(leader: Leader, end: str) -> None:
    leader.fetch_sessions = FetchSessionCache(1, itertools.count(1).__next__)
    everything = dict.fromkeys(range(10), 0)
    leader.ask(everything, session=(0, 0), max_wait_ms=0)
    assert sum(len(each.watchers) for each in leader.partitions) == 10
    if end == "closed":
        leader.ask({}, session=(1, -1), max_wait_ms=0)
    elif end == "forgotten":
        forgotten = [ForgottenTopic(topic="t", topic_id=TOPIC_ID, partitions=list(everything))]
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=2, replica_epoch=42),
            max_wait_ms=0,
            min_bytes=1,
            session_id=1,
            session_epoch=1,
            topics=[],
            forgotten_topics_data=forgotten,
        )
        context: Any = SimpleNamespace(
            broker=leader,
            api_version=VERSION,
            now_ms=leader.time_ms,
            listener_name="L",
            charge=None,
            socket=SOCKET,
            principal="User:ANONYMOUS",
        )
        fetch(request, context)
    else:
        leader.time_ms += EVICTION_MS + 1
        leader.ask({20: 0}, session=(1 if end == "replaced" else 0, 0), max_wait_ms=0)
    assert not any(each.watchers for each in leader.partitions)
