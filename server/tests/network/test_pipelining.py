"""Produce requests on one connection: appended in order at once, answered in order as their records are committed."""

from __future__ import annotations

import gc
import random
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from ottla.replication.cluster.metadata_cache import (
    BrokerEndpoint,
    BrokerRegistration,
    MetadataCache,
    PartitionState,
    TopicState,
)
from ottla.replication.log.tests.logs import TOPIC_ID, batch, contents, idempotent, new_log
from ottla.replication.partition.delayed_produce import ProducePurgatory
from ottla.replication.partition.partition import UNKNOWN_PATIENCE_MS, Partition
from ottla.replication.partition.retry_window import PATIENCE_S, RetryWindow
from ottla.server.api.handlers import produce as produce_handler
from ottla.server.api.produce import appending, fast_path, request_checks
from ottla.server.dispatch.context import RequestContext
from ottla.server.environment import Environment
from ottla.server.network import inbox
from ottla.server.network.calls import Calls
from ottla.server.network.connection import PENDING_MAX, Connection
from ottla.server.network.deadlines import Deadlines
from ottla.server.network.pending import PendingAnswers
from ottla.server.network.readiness import Readiness
from ottla.server.network.transport import PlainTransport
from ottla.server.tests.routes import IN_THE_TASK, INSIDE_THE_WAIT, listener_of, readiness_of, route_of
from ottla.server.tests.settling import settled
from ottla.wire.answers import PendingAnswer
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.classic_group import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.record_decoding import decode_records
from ottla.wire.schema import Struct
from ottla.wire.tests.garbage import nothing_is_left_of

VERSION = 10
PARTITIONS = 4
FOLLOWER = 2
PARKED = 8
BOTH_WAYS = 2  # a request that is refused asks for its partition by the short way, then by the one that says why


class Leader:
    """What the produce handler needs of a broker: it leads topic t, which broker 2 follows and is in sync with."""

    authorizer = None
    is_in_cluster = True

    def __init__(self) -> None:
        self.authorizer = None
        self.cluster = MetadataCache()
        state = PartitionState(replicas=(1, FOLLOWER), isr=(1, FOLLOWER), leader=1, leader_epoch=3)
        self.cluster.put_topic(TopicState("t", TOPIC_ID, (state,) * PARTITIONS))
        for broker in (1, FOLLOWER):
            endpoint = BrokerEndpoint(broker, f"host-{broker}", 9092, None)
            self.cluster.put_broker(BrokerRegistration(broker, {"PLAINTEXT": endpoint}, None))
        self.replicas = SimpleNamespace(
            produce_purgatory=ProducePurgatory(),
            retry_window=RetryWindow(),
            partition=lambda topic, index: self.partitions[index] if topic == "t" else None,
        )
        self.deadlines = Deadlines()
        self.environment = Environment()
        self.partitions = [self._led(index) for index in range(PARTITIONS)]
        self.fences = 0  # how often it is fenced when it is asked for a partition

    def _led(self, index: int) -> Partition:
        partition = Partition("t", index, new_log(), local_id=1)
        partition.make_leader(leader_epoch=3, partition_epoch=0, replicas=(1, FOLLOWER), isr=(1, FOLLOWER))
        return partition

    def partition(self, topic: str, index: int) -> Partition:
        if topic != "t":
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        found = self.partitions[index]
        if self.may_be_replaced_at(found):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return found

    def may_be_replaced_at(self, _: Partition) -> bool:
        is_fenced = self.fences > 0
        self.fences -= is_fenced
        return is_fenced

    def commit(self, index: int, offset: int) -> None:
        self.partitions[index].on_follower_fetch(FOLLOWER, offset, 0, now_ms=0)


class Producer:
    """The client's end of a connection."""

    def __init__(self, sock: socket.socket, *, is_inside_the_wait: bool) -> None:
        self.is_inside_the_wait = is_inside_the_wait
        self._socket = sock
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        self._received = b""
        self.sent = 0

    async def send(self, *frames: bytes) -> None:
        await self._stream.send_all(b"".join(frames))

    def produce(self, index: int, *, acks: int = -1, timeout_ms: int = 60_000, count: int = 1) -> bytes:
        data = PartitionProduceData(index=index, records=batch(*[1] * count))
        topic = TopicProduceData(name="t", partition_data=[data])
        return self._frame(ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic]), VERSION, b"\0")

    def number(self, index: int, sequence: int, *, topic: str = "t", **options: Any) -> bytes:
        """One record of an idempotent producer."""
        data = PartitionProduceData(index=index, records=idempotent(sequence, **options))
        topics = [TopicProduceData(name=topic, partition_data=[data])]
        return self._frame(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics), VERSION, b"\0")

    def produce_all(self, *wishes: tuple[int, int]) -> bytes:
        """Acks from all for a number of records in each of several partitions."""
        data = [PartitionProduceData(index=index, records=batch(*[1] * count)) for index, count in wishes]
        topic = TopicProduceData(name="t", partition_data=data)
        return self._frame(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic]), VERSION, b"\0")

    def heartbeat(self, generation_id: int = 7) -> bytes:
        return self._frame(HeartbeatRequest(group_id="g", generation_id=generation_id, member_id="m"), 0, b"")

    def frame(self, request: ProduceRequest) -> bytes:
        return self._frame(request, VERSION, b"\0")

    def _frame(self, request: Any, version: int, tags: bytes) -> bytes:
        self.sent += 1
        header = struct.pack(">hhih", type(request).api_key, version, self.sent, 4) + b"test" + tags
        body: bytes = request.encode(version)
        return struct.pack(">i", len(header) + len(body)) + header + body

    async def answer(self) -> tuple[int, bytes] | None:
        """The next answer's correlation id and body, None at the end of the stream."""
        while len(self._received) < 4 or len(self._received) < 4 + struct.unpack(">i", self._received[:4])[0]:
            data = await self._stream.receive_some(65536)
            if not data:
                return None
            self._received += data
        (size,) = struct.unpack(">i", self._received[:4])
        frame, self._received = self._received[4 : 4 + size], self._received[4 + size :]
        return struct.unpack(">i", frame[:4])[0], frame[4:]

    async def acknowledged(self) -> tuple[int, int, int]:
        """The next answer to a produce request of one partition: correlation id, error code, base offset."""
        answer = await self.answer()
        assert answer is not None
        correlation_id, body = answer
        response = ProduceResponse.decode(body[1:], VERSION)
        (told,) = response.responses[0].partition_responses
        return correlation_id, told.error_code, told.base_offset

    async def hears_nothing(self) -> bool:
        """Whether everything that was sent is dealt with, and nothing more is answered."""
        await settled(0.002)
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def close(self) -> None:
        await self._stream.aclose()


class Parked(PendingAnswer[HeartbeatResponse]):
    """The answer to a heartbeat of generation 8, which waits as a join does."""

    def response(self) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=0)

    def abandon(self) -> None:
        """Nobody knows of it."""


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
def parked() -> list[Parked]:
    return []


@pytest.fixture(params=[INSIDE_THE_WAIT, IN_THE_TASK])
async def producer(
    request: pytest.FixtureRequest, leader: Leader, parked: list[Parked], nursery: trio.Nursery
) -> AsyncIterator[Producer]:
    def heartbeat(request: HeartbeatRequest, _: object) -> HeartbeatResponse | Parked:
        if request.generation_id == PARKED:
            parked.append(Parked())
            return parked[-1]
        return HeartbeatResponse(error_code=0)

    routes = {
        0: route_of(
            ProduceRequest,
            ProduceRequest.versions,
            produce_handler.produce,
            pipelined=True,
            fast_path=fast_path.FAST_PATH,
        ),
        12: route_of(HeartbeatRequest, HeartbeatRequest.versions, heartbeat),
    }
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    readiness = readiness_of(request.param)
    listener = listener_of(Calls(routes), readiness, broker=leader)
    nursery.start_soon(leader.deadlines.run)
    nursery.start_soon(Connection(PlainTransport(ours), "127.0.0.1", listener).run)
    producer = Producer(theirs, is_inside_the_wait=readiness.is_inside_the_wait)
    yield producer
    await producer.close()


async def appended(leader: Leader, *ends: int) -> None:
    """Wait until the logs end at these offsets."""
    while tuple(each.log_end_offset for each in leader.partitions[: len(ends)]) != ends:
        await trio.testing.wait_all_tasks_blocked()


async def test_requests_are_appended_at_once_and_answered_in_order(producer: Producer, leader: Leader) -> None:
    await producer.send(*[producer.produce(index) for index in (0, 1, 0, 2)])
    await appended(leader, 2, 1, 1)
    leader.commit(1, 1)
    leader.commit(2, 1)
    assert await producer.hears_nothing()
    leader.commit(0, 1)
    assert await producer.acknowledged() == (1, 0, 0)
    assert await producer.acknowledged() == (2, 0, 0)
    assert await producer.hears_nothing()
    leader.commit(0, 2)
    assert await producer.acknowledged() == (3, 0, 1)
    assert await producer.acknowledged() == (4, 0, 0)


class Looks(trio.abc.Instrument):
    """Counts how often the event loop looks at its sockets."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


async def test_a_large_request_gives_way_between_its_partitions(
    producer: Producer, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "POOLED_BUFFER_BYTES_MAX", 300_000)
    monkeypatch.setattr(appending, "TURN_S", -1.0)
    looks, looks_at_appends = Looks(), []
    trio.lowlevel.add_instrument(looks)
    find = leader.partition

    def partition(topic: str, index: int) -> Partition:
        looks_at_appends.append(looks.count)
        return find(topic, index)

    monkeypatch.setattr(leader, "partition", partition)
    values = [bytes([65 + index]) * 200_000 for index in range(PARTITIONS)]
    data = [PartitionProduceData(index=index, records=batch(1, value=value)) for index, value in enumerate(values)]
    await producer.send(
        producer.frame(
            ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
        ),
        *[producer.produce(0, acks=1) for _ in range(3)],
    )
    await producer.answer()
    assert [await producer.acknowledged() for _ in range(3)] == [(2, 0, 1), (3, 0, 2), (4, 0, 3)]
    trio.lowlevel.remove_instrument(looks)
    assert len(set(looks_at_appends[:PARTITIONS])) == PARTITIONS
    for each, value in zip(leader.partitions, values, strict=True):
        assert next(decode_records(contents(each.log.read(0, 1 << 20, upper_bound=1).region))).value == value


async def test_short_batches_for_which_there_was_no_time_need_no_threads(
    producer: Producer, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is busy takes the processor away: then each partition of a small request waited for a thread, and for the loop."""
    monkeypatch.setattr(appending, "TURN_S", -1.0)
    looks, looks_at_appends, in_threads = Looks(), [], []
    trio.lowlevel.add_instrument(looks)
    find = leader.partition

    def partition(topic: str, index: int) -> Partition:
        looks_at_appends.append(looks.count)
        return find(topic, index)

    async def in_thread(*_: Any) -> Any:
        in_threads.append(1)

    monkeypatch.setattr(leader, "partition", partition)
    monkeypatch.setattr(appending, "checked_in_thread", in_thread)
    data = [
        PartitionProduceData(index=index, records=batch(1, compression=Compression.GZIP)) for index in range(PARTITIONS)
    ]
    await producer.send(
        producer.frame(
            ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
        ),
        producer.produce(0, acks=1),
    )
    await producer.answer()
    assert await producer.acknowledged() == (2, 0, 1)
    trio.lowlevel.remove_instrument(looks)
    assert [each.log_end_offset for each in leader.partitions[1:]] == [1] * (PARTITIONS - 1)
    assert in_threads == []
    assert len(set(looks_at_appends[PARTITIONS : 2 * PARTITIONS])) == PARTITIONS, "others had their turns in between"


async def test_records_that_stay_in_a_large_buffer_are_not_overwritten(
    producer: Producer, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "POOLED_BUFFER_BYTES_MAX", 300_000)
    monkeypatch.setattr(appending, "is_expensive", lambda records, rules: True)
    monkeypatch.setattr(appending, "check_quickly", lambda *_, **__: None)
    values = [random.Random(index).randbytes(200_000) for index in range(PARTITIONS)]
    data = [
        PartitionProduceData(index=index, records=batch(1, value=value, compression=Compression.GZIP))
        for index, value in enumerate(values)
    ]
    await producer.send(
        producer.frame(
            ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
        ),
        *[producer.produce(index, acks=1, count=9) for index in range(PARTITIONS)],
    )
    await producer.answer()
    assert [await producer.acknowledged() for _ in range(PARTITIONS)] == [
        (2 + index, 0, 1) for index in range(PARTITIONS)
    ]
    for each, value in zip(leader.partitions, values, strict=True):
        assert next(decode_records(contents(each.log.read(0, 1 << 20, upper_bound=1).region))).value == value


async def test_nothing_is_left_of_requests_that_have_waited(producer: Producer, leader: Leader) -> None:
    with nothing_is_left_of(appending.Appending):
        await producer.send(producer.produce(0), producer.produce(0))
        await appended(leader, 2)
        leader.commit(0, 2)
        assert await producer.acknowledged() == (1, 0, 0)
        assert await producer.acknowledged() == (2, 0, 1)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
async def test_a_request_that_waits_holds_none_of_its_records(
    leader: Leader, monkeypatch: pytest.MonkeyPatch, compression: Compression
) -> None:
    """Twenty requests of ten megabytes that wait for a disk or a follower would be 200 MB."""
    if compression:
        monkeypatch.setattr(appending, "is_expensive", lambda records, rules: True)
        monkeypatch.setattr(appending, "check_quickly", lambda *_, **__: None)
    data = PartitionProduceData(index=0, records=batch(1, compression=compression))
    topics = [TopicProduceData(name="t", partition_data=[data])]
    received = bytearray(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics).encode(VERSION))
    context: Any = SimpleNamespace(
        broker=leader, api_version=VERSION, now_ms=1, client_id="c", listener_name="PLAINTEXT", checked_batch=None
    )
    answer: Any = produce_handler.produce(ProduceRequest.decode(received, VERSION), context)
    received.clear()  # BufferError if there is still a view of it
    if compression:
        answer = await answer
    assert not answer.is_ready
    assert not any(isinstance(each, memoryview | bytearray) for each in reachable(answer))
    answer.abandon()


async def test_very_many_refused_records_are_looked_at_in_a_thread_and_listed_in_part(leader: Leader) -> None:
    data = PartitionProduceData(index=0, records=batch(*[10**13] * 3_000))
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[data])])
    context: Any = RequestContext(leader, api_version=VERSION, now_ms=1, client_id="c")
    pending: Any = produce_handler.produce(request, context)
    answer = (await pending).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in answer.record_errors] == list(range(1_000))


def reachable(answer: appending.Appending) -> Iterator[object]:
    """The objects that a waiting request keeps alive."""
    for name in ("_request", "_deferred", "_topics", "_uncommitted"):
        held = [getattr(answer, name)]
        while held:
            each = held.pop()
            yield each
            held += gc.get_referents(each) if isinstance(each, list | tuple | Struct) else ()


@pytest.mark.parametrize("seed", range(5))
async def test_any_order_of_commits(producer: Producer, leader: Leader, nursery: trio.Nursery, seed: int) -> None:
    chance = random.Random(seed)
    wishes = [(chance.randrange(PARTITIONS), chance.choice((-1, -1, 1, 0))) for _ in range(60)]
    expected, ends = [], [0] * PARTITIONS
    for number, (index, acks) in enumerate(wishes, 1):
        if acks:
            expected.append((number, index, ends[index], acks))
        ends[index] += 1

    async def send() -> None:
        position = 0
        frames = b"".join([producer.produce(index, acks=acks) for index, acks in wishes])
        while position < len(frames):
            size = chance.randrange(1, 400)
            await producer.send(frames[position : position + size])
            position += size

    async def commit() -> None:
        while any(each.high_watermark < end for each, end in zip(leader.partitions, ends, strict=True)):
            index = chance.randrange(PARTITIONS)
            partition = leader.partitions[index]
            leader.commit(index, chance.randint(partition.high_watermark, partition.log_end_offset))
            await trio.lowlevel.checkpoint()

    nursery.start_soon(send)
    nursery.start_soon(commit)
    for number, index, offset, acks in expected:
        assert await producer.acknowledged() == (number, 0, offset)
        assert acks != -1 or leader.partitions[index].high_watermark > offset


async def test_other_requests_wait_for_those_before_them(producer: Producer, leader: Leader) -> None:
    await producer.send(producer.produce(0), producer.heartbeat(), producer.produce(1))
    await appended(leader, 1, 0)
    assert await producer.hears_nothing()
    assert leader.partitions[1].log_end_offset == 0
    leader.commit(0, 1)
    assert await producer.acknowledged() == (1, 0, 0)
    assert await producer.answer() == (2, struct.pack(">h", 0))
    await appended(leader, 1, 1)
    leader.commit(1, 1)
    assert await producer.acknowledged() == (3, 0, 0)


async def test_records_wait_for_a_request_that_may_wait_for_minutes(
    producer: Producer, leader: Leader, parked: list[Parked]
) -> None:
    """Else the answers of very many would pile up behind it."""
    await producer.send(producer.heartbeat(PARKED), producer.produce(0), producer.produce(0))
    # On a busy machine the bytes may be on their way for longer than `hears_nothing` waits.
    while not parked:
        await trio.testing.wait_all_tasks_blocked()
    assert await producer.hears_nothing()
    assert leader.partitions[0].log_end_offset == 0
    parked[0].become_ready()
    assert await producer.answer() == (1, struct.pack(">h", 0))
    await appended(leader, 2)
    leader.commit(0, 2)
    assert [await producer.acknowledged() for _ in range(2)] == [(2, 0, 0), (3, 0, 1)]


async def test_answers_that_are_ready_together_are_given_in_several_turns(
    producer: Producer, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    await producer.send(*[producer.produce(0) for _ in range(20)])
    await appended(leader, 20)
    monkeypatch.setattr(Readiness, "turn_end", lambda *_: 0.0)  # each turn is over as soon as it begins
    encoded: list[int] = []
    hand_over = PendingAnswers.hand_over_ready

    def count(pending: PendingAnswers, turn_began: float) -> None:
        before = len(pending)
        hand_over(pending, turn_began)
        encoded.append(before - len(pending))

    monkeypatch.setattr(PendingAnswers, "hand_over_ready", count)
    leader.commit(0, 20)
    assert [await producer.acknowledged() for _ in range(20)] == [(number, 0, number - 1) for number in range(1, 21)]
    assert max(encoded) <= 1 or not producer.is_inside_the_wait


async def test_answers_that_wait_for_their_turn_are_not_many_bytes(
    producer: Producer, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these requests has an answer that is there at once, and much longer than itself."""
    monkeypatch.setattr("ottla.server.network.connection.QUEUED_BYTES_MAX", 10_000)
    unknown = [PartitionProduceData(index=PARTITIONS + number, records=batch(1)) for number in range(200)]
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=unknown)])
    refused = [producer.frame(request) for _ in range(5)]
    first = producer.sent + 1
    await producer.send(producer.produce(0), *refused, producer.produce(1))
    await appended(leader, 1, 0)
    assert await producer.hears_nothing()
    assert leader.partitions[1].log_end_offset == 0
    leader.commit(0, 1)
    assert await producer.acknowledged() == (first, 0, 0)
    assert [(await producer.answer() or (0, b""))[0] for _ in refused] == [number + 1 for number in range(len(refused))]
    await appended(leader, 1, 1)
    leader.commit(1, 1)
    assert await producer.acknowledged() == (first + 1, 0, 0)


async def test_what_needs_no_commit_still_waits_for_its_turn(producer: Producer, leader: Leader) -> None:
    await producer.send(producer.produce(0), producer.produce(1, acks=0), producer.produce(1, acks=1))
    await appended(leader, 1, 2)
    assert await producer.hears_nothing()
    leader.commit(0, 1)
    assert await producer.acknowledged() == (1, 0, 0)
    assert await producer.acknowledged() == (3, 0, 1)


async def test_what_is_answered_at_once_waits_for_its_turn_too(producer: Producer, leader: Leader) -> None:
    alone = leader.partitions[3]
    alone.make_leader(leader_epoch=3, partition_epoch=1, replicas=(1,), isr=(1,))
    await producer.send(producer.produce(3), producer.produce(0), producer.produce(3))
    assert await producer.acknowledged() == (1, 0, 0)
    assert await producer.hears_nothing()
    assert alone.log_end_offset == 2
    leader.commit(0, 1)
    assert [await producer.acknowledged() for _ in range(2)] == [(2, 0, 0), (3, 0, 1)]


async def test_not_more_than_so_many_are_pending(producer: Producer, leader: Leader) -> None:
    total = 2 * PENDING_MAX
    await producer.send(*[producer.produce(0) for _ in range(total)])
    await appended(leader, PENDING_MAX)
    assert await producer.hears_nothing()
    assert leader.partitions[0].log_end_offset == PENDING_MAX
    for number in range(1, total + 1):
        await appended_at_least(leader, number)
        leader.commit(0, number)
        assert await producer.acknowledged() == (number, 0, number - 1)


async def appended_at_least(leader: Leader, end: int) -> None:
    while leader.partitions[0].log_end_offset < end:
        await trio.testing.wait_all_tasks_blocked()


async def test_a_request_times_out_in_its_turn(producer: Producer, leader: Leader) -> None:
    await producer.send(producer.produce(0), producer.produce(1, timeout_ms=1), producer.produce(1, timeout_ms=0))
    await appended(leader, 1, 2)
    while len(leader.replicas.produce_purgatory) > 1:
        await trio.sleep(0.001)
    assert await producer.hears_nothing()
    leader.commit(0, 1)
    assert await producer.acknowledged() == (1, 0, 0)
    for number in (2, 3):
        assert await producer.acknowledged() == (number, ErrorCode.REQUEST_TIMED_OUT, number - 2)
    leader.commit(1, 2)
    assert await producer.hears_nothing()


async def test_who_loses_the_leadership_tells_who_leads(producer: Producer, leader: Leader) -> None:
    await producer.send(producer.produce(0), producer.produce(0))
    await appended(leader, 2)
    leader.partitions[0].make_follower(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(1, 2))
    for number in (1, 2):
        answer = await producer.answer()
        assert answer is not None
        response = ProduceResponse.decode(answer[1][1:], VERSION)
        (told,) = response.responses[0].partition_responses
        assert (answer[0], told.error_code) == (number, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (2, 4)
        assert [(each.node_id, each.host) for each in response.node_endpoints] == [(2, "host-2")]


REFUSED = ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_batches_behind_one_that_a_fenced_broker_refused_are_not_taken(
    producer: Producer, leader: Leader
) -> None:
    await producer.send(producer.number(0, 0))
    await appended(leader, 1)
    leader.commit(0, 1)
    assert await producer.acknowledged() == (1, 0, 0)
    leader.fences = BOTH_WAYS
    await producer.send(*[producer.number(0, sequence) for sequence in (1, 2, 3)])
    for number in (2, 3, 4):
        assert await producer.acknowledged() == (number, REFUSED, -1)
    assert leader.fences == 0
    await producer.send(*[producer.number(0, sequence) for sequence in (1, 2, 3)])
    await appended(leader, 4)
    leader.commit(0, 4)
    for number in (5, 6, 7):
        assert await producer.acknowledged() == (number, 0, number - 4)
    assert leader.replicas.retry_window.by_producer == {}


async def test_too_few_replicas_for_an_instant_do_not_look_like_a_gap(producer: Producer, leader: Leader) -> None:
    partition = leader.partitions[0]
    partition.min_isr = 3
    await producer.send(producer.number(0, 0))
    assert await producer.acknowledged() == (1, ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    partition.min_isr = 1
    await producer.send(producer.number(0, 1), producer.number(0, 2))
    assert await producer.acknowledged() == (2, ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert await producer.acknowledged() == (3, ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert partition.log_end_offset == 0
    traffic = partition.traffic
    assert (traffic.produce_requests, traffic.failed_produce_requests, traffic.messages_in) == (3, 3, 0)


async def test_a_disk_that_fails_right_after_an_append_is_told_and_remembered(
    producer: Producer, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Partition, "acknowledgement", lambda *_: ErrorCode.KAFKA_STORAGE_ERROR)
    await producer.send(producer.number(0, 0))
    assert await producer.acknowledged() == (1, ErrorCode.KAFKA_STORAGE_ERROR, 0)
    assert leader.replicas.retry_window.count == 1


async def test_a_gap_that_nobody_refused_is_a_gap(producer: Producer, leader: Leader) -> None:
    await producer.send(producer.number(0, 0), producer.number(0, 2), producer.number(0, 1))
    await appended(leader, 2)
    leader.commit(0, 2)
    assert await producer.acknowledged() == (1, 0, 0)
    assert await producer.acknowledged() == (2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await producer.acknowledged() == (3, 0, 1)


@pytest.mark.parametrize("is_checked_in_thread", [False, True])
async def test_a_new_leader_waits_for_what_the_old_one_refused(
    producer: Producer,
    leader: Leader,
    mock_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    is_checked_in_thread: bool,
) -> None:
    if is_checked_in_thread:
        monkeypatch.setattr(appending, "ordinary_header", lambda _: None)
        monkeypatch.setattr(appending, "is_expensive", lambda records, rules: True)
        monkeypatch.setattr(appending, "check_quickly", lambda *_, **__: None)
    partition = leader.partitions[0]
    await producer.send(producer.number(0, 0))
    await appended(leader, 1)
    leader.commit(0, 1)
    assert await producer.acknowledged() == (1, 0, 0)
    partition.make_follower(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(1, 2))
    partition.make_leader(leader_epoch=5, partition_epoch=2, replicas=(1, FOLLOWER), isr=(1, FOLLOWER))
    await producer.send(producer.number(0, 2), producer.number(0, 3))
    assert await producer.acknowledged() == (2, REFUSED, -1)
    assert await producer.acknowledged() == (3, REFUSED, -1)
    mock_clock.jump(PATIENCE_S)
    await producer.send(producer.number(0, 2), producer.number(0, 1), producer.number(0, 2))
    await appended(leader, 3)
    leader.commit(0, 3)
    assert await producer.acknowledged() == (4, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await producer.acknowledged() == (5, 0, 1)
    assert await producer.acknowledged() == (6, 0, 2)


@pytest.mark.parametrize("is_checked_in_thread", [False, True])
async def test_a_new_leader_takes_a_producer_that_it_does_not_know_from_the_start_only(
    producer: Producer, leader: Leader, monkeypatch: pytest.MonkeyPatch, is_checked_in_thread: bool
) -> None:
    if is_checked_in_thread:
        monkeypatch.setattr(appending, "ordinary_header", lambda _: None)
        monkeypatch.setattr(appending, "is_expensive", lambda records, rules: True)
        monkeypatch.setattr(appending, "check_quickly", lambda *_, **__: None)
    partition = leader.partitions[0]
    now_ms = time.time_ns() // 1_000_000
    partition.make_follower(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(1, 2))
    partition.make_leader(leader_epoch=5, partition_epoch=2, replicas=(1, FOLLOWER), isr=(1, FOLLOWER), now_ms=now_ms)
    await producer.send(producer.number(0, 2))
    assert await producer.acknowledged() == (1, REFUSED, -1)
    await producer.send(producer.number(0, 0), producer.number(0, 1), producer.number(0, 2))
    await appended(leader, 3)
    leader.commit(0, 3)
    assert [await producer.acknowledged() for _ in range(3)] == [(2, 0, 0), (3, 0, 1), (4, 0, 2)]


async def test_the_doubt_of_a_new_leader_ends(producer: Producer, leader: Leader) -> None:
    partition = leader.partitions[0]
    long_ago_ms = time.time_ns() // 1_000_000 - UNKNOWN_PATIENCE_MS
    partition.make_follower(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(1, 2))
    partition.make_leader(
        leader_epoch=5, partition_epoch=2, replicas=(1, FOLLOWER), isr=(1, FOLLOWER), now_ms=long_ago_ms
    )
    await producer.send(producer.number(0, 2))
    await appended(leader, 1)
    leader.commit(0, 1)
    assert await producer.acknowledged() == (1, 0, 0)


async def test_a_broker_that_is_alone_had_no_leader_before_it(producer: Producer, leader: Leader) -> None:
    del leader.cluster.brokers[FOLLOWER]
    alone = Partition("t", 0, new_log(), local_id=1)
    leader.partitions[0] = alone
    alone.make_leader(leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,))
    await producer.send(producer.number(0, 0))
    assert await producer.acknowledged() == (1, 0, 0)
    alone.make_leader(leader_epoch=1, partition_epoch=1, replicas=(1,), isr=(1,))
    await producer.send(producer.number(0, 2), producer.number(0, 1))
    assert await producer.acknowledged() == (2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await producer.acknowledged() == (3, 0, 1)


async def test_what_was_refused_once_and_given_up_is_a_gap(producer: Producer, leader: Leader) -> None:
    leader.fences = BOTH_WAYS
    await producer.send(producer.number(0, 0, epoch=1), producer.number(0, 1, epoch=1), producer.number(0, 1, epoch=1))
    assert await producer.acknowledged() == (1, REFUSED, -1)
    assert await producer.acknowledged() == (2, REFUSED, -1)
    await appended(leader, 1)  # of a producer that the log does not know any sequence is taken
    leader.commit(0, 1)
    assert await producer.acknowledged() == (3, 0, 0)


async def test_names_that_are_too_long_for_a_topic_are_not_remembered(producer: Producer, leader: Leader) -> None:
    for number, name in enumerate(("x" * 250, "x" * 30_000), 1):
        await producer.send(producer.number(0, 0, topic=name))
        assert await producer.acknowledged() == (number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert leader.replicas.retry_window.by_producer == {}
    await producer.send(producer.number(0, 0, topic="soon"))  # this broker may hear of it in a moment
    assert await producer.acknowledged() == (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert leader.replicas.retry_window.count == 1


async def test_what_was_appended_lost_and_refused_late_comes_again_first(producer: Producer, leader: Leader) -> None:
    partition = leader.partitions[0]
    await producer.send(producer.number(0, 0), producer.number(0, 1))
    await appended(leader, 2)
    partition.make_follower(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(1, 2))
    for number in (1, 2):
        answer = await producer.answer()
        assert answer is not None
        assert answer[0] == number
    partition.truncate_to(0, now_ms=0)
    partition.make_leader(leader_epoch=5, partition_epoch=2, replicas=(1, FOLLOWER), isr=(1, FOLLOWER))
    await producer.send(producer.number(0, 2))
    assert await producer.acknowledged() == (3, REFUSED, -1)
    await producer.send(*[producer.number(0, sequence) for sequence in range(3)])
    await appended(leader, 3)


@pytest.mark.parametrize("is_refused", [True, False])
async def test_records_checked_in_a_thread_wait_for_what_was_refused_too(
    producer: Producer, leader: Leader, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    monkeypatch.setattr(appending, "ordinary_header", lambda _: None)
    monkeypatch.setattr(appending, "is_expensive", lambda records, rules: True)
    monkeypatch.setattr(appending, "check_quickly", lambda *_, **__: None)
    partition = leader.partitions[0]
    if is_refused:
        partition.min_isr = 3
    await producer.send(producer.number(0, 0))
    if is_refused:
        assert await producer.acknowledged() == (1, ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    else:
        await appended(leader, 1)
        leader.commit(0, 1)
    partition.min_isr = 1
    await producer.send(producer.number(0, 1))
    if is_refused:
        assert await producer.acknowledged() == (2, ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    else:
        await appended(leader, 2)


async def test_a_broker_that_is_fenced_while_a_thread_checks_records_does_not_take_them(
    producer: Producer, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "ordinary_header", lambda _: None)
    monkeypatch.setattr(appending, "is_expensive", lambda records, rules: True)
    monkeypatch.setattr(appending, "check_quickly", lambda *_, **__: None)
    check = request_checks.check_thoroughly

    def check_for_long(*arguments: Any, **options: Any) -> Any:
        leader.fences = 1  # the session is over before the thread is
        return check(*arguments, **options)

    monkeypatch.setattr(request_checks, "check_thoroughly", check_for_long)
    await producer.send(producer.produce(0, acks=1))
    assert await producer.acknowledged() == (1, REFUSED, -1)
    assert leader.partitions[0].log_end_offset == 0


async def test_nothing_waits_for_a_producer_that_was_cut_off(producer: Producer, leader: Leader) -> None:
    await producer.send(producer.produce(0), producer.produce(1))
    await appended(leader, 1, 1)
    bad = struct.pack(">i", -1)
    await producer.send(bad)
    leader.commit(0, 1)
    leader.commit(1, 1)
    assert await producer.acknowledged() == (1, 0, 0)
    assert await producer.acknowledged() == (2, 0, 0)
    assert await producer.answer() is None
    assert not any(each.watchers for each in leader.partitions)


async def test_who_stops_sending_still_gets_the_answers(producer: Producer, leader: Leader) -> None:
    await producer.send(producer.produce(0), producer.produce(1))
    await producer.send_eof()
    await appended(leader, 1, 1)
    leader.commit(0, 1)
    assert await producer.acknowledged() == (1, 0, 0)
    leader.commit(1, 1)
    assert await producer.acknowledged() == (2, 0, 0)
    assert await producer.answer() is None


@pytest.mark.parametrize("is_lost", [True, False])
async def test_what_is_lost_while_other_records_are_checked_is_not_acknowledged(
    producer: Producer, leader: Leader, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    lost, checked = leader.partitions[:2]
    release, check = threading.Event(), type(checked.log).check_thoroughly
    monkeypatch.setattr(appending, "is_expensive", lambda records, rules: len(records) > 200)
    monkeypatch.setattr(appending, "check_quickly", lambda *_, **__: None)

    def check_slowly(log: Any, records: memoryview, **options: Any) -> Any:
        if log is checked.log:
            assert release.wait(60)
        return check(log, records, **options)

    monkeypatch.setattr(type(checked.log), "check_thoroughly", check_slowly)
    await producer.send(producer.produce_all((0, 1), (1, 40)))
    with trio.fail_after(60):
        while lost.log_end_offset != 1:
            await trio.sleep(0.001)
    if is_lost:
        lost.make_follower(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(1, FOLLOWER))
        lost.truncate_to(0, now_ms=0)
    lost.make_leader(leader_epoch=5, partition_epoch=2, replicas=(1, FOLLOWER), isr=(1, FOLLOWER))
    lost.append_as_leader(batch(1), required_acks=1, now_ms=0)
    leader.commit(0, lost.log_end_offset)
    release.set()
    with trio.fail_after(60):
        while checked.log_end_offset != 40:
            await trio.sleep(0.001)
    leader.commit(1, 40)
    answer = await producer.answer()
    assert answer is not None
    told = ProduceResponse.decode(answer[1][1:], VERSION).responses[0].partition_responses
    expected = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_lost else ErrorCode.NONE
    assert [each.error_code for each in told] == [expected, ErrorCode.NONE]


async def test_records_checked_in_a_thread_keep_their_place(
    producer: Producer, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "is_expensive", lambda records, rules: len(records) > 200)
    monkeypatch.setattr(appending, "check_quickly", lambda *_, **__: None)
    counts = [1, 40, 1, 50, 1]
    await producer.send(*[producer.produce(0, count=count) for count in counts])
    await appended(leader, sum(counts))
    leader.commit(0, sum(counts))
    offset = 0
    for number, count in enumerate(counts, 1):
        assert await producer.acknowledged() == (number, 0, offset)
        offset += count


async def test_batches_that_become_large_are_checked_one_at_a_time(
    leader: Leader, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    """Three kilobytes that become a hundred megabytes, eight at once, took 400 MB."""
    monkeypatch.setattr(request_checks, "SMALL_CHECK_BYTES_MAX", 10_000)
    monkeypatch.setattr(appending, "is_expensive", lambda records, rules: True)
    monkeypatch.setattr(appending, "check_quickly", lambda *_, **__: None)
    at_once, most = 0, 0
    lock = threading.Lock()
    check = request_checks.check_thoroughly

    def watched(records: memoryview, rules: Any, **options: Any) -> Any:
        nonlocal at_once, most
        is_large = rules.decompressed_bytes_max > 10_000
        with lock:
            at_once += is_large
            most = max(most, at_once)
        try:
            return check(records, rules, **options)
        finally:
            with lock:
                at_once -= is_large

    monkeypatch.setattr(request_checks, "check_thoroughly", watched)
    context: Any = SimpleNamespace(
        broker=leader, api_version=VERSION, now_ms=1, client_id="c", listener_name="PLAINTEXT", checked_batch=None
    )
    codes = []

    async def produce(index: int) -> None:
        records = batch(1, value=bytes(100_000 if index else 10), compression=Compression.ZSTD)
        topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=index, records=records)])
        answer: Any = produce_handler.produce(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), context)
        codes.append((await answer).responses[0].partition_responses[0].error_code)

    async with trio.open_nursery() as producers:
        for index in range(PARTITIONS):
            producers.start_soon(produce, index)
    assert codes == [0] * PARTITIONS
    assert most == 1
