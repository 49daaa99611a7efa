"""What a thread does for the event loop: connections that go away and come back, in their order, and what can go wrong."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from ottla.replication.log.tests.logs import contents, new_log
from ottla.replication.partition.partition import Partition
from ottla.replication.system import IS_LINUX
from ottla.server.handlers import produce as produce_handler
from ottla.server.net import errands as errands_module
from ottla.server.net.ahead import Ahead
from ottla.server.net.calls import Calls
from ottla.server.net.connection import Connection
from ottla.server.net.errands import PENDING_MAX, Errands, HandedOver
from ottla.server.net.inbox import ReceiveBuffers
from ottla.server.net.readiness import AWAY, WAIT_READABLE, Readiness
from ottla.server.net.reports import Complaints
from ottla.server.net.transport import PlainTransport
from ottla.server.produce import at_once
from ottla.server.quotas.client_quotas import ClientQuotas
from ottla.server.tests.routes import route_of
from ottla.server.tests.test_pipelining import Leader
from ottla.wire.compressed_walk import Background
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.records import Record, decode_records, encode_batch

if Background is None or not hasattr(os, "eventfd") or not IS_LINUX:
    pytest.skip("the thread cannot be had here", allow_module_level=True)

PATIENCE_S = 60
VERSION = 10
CONNECTIONS, REQUESTS = 4, 4
RECORDS = 20
dice = random.Random(8)
WORDS = [dice.randbytes(dice.randint(4, 12)) for _ in range(3_000)]


def value(number: int) -> bytes:
    """Some thirty kilobytes of which lz4 takes a third away."""
    dice = random.Random(number)
    return number.to_bytes(4, "big") + b" ".join(dice.choices(WORDS, k=3_500))


def batch(number: int) -> bytearray:
    records = [Record(index, 1_000, None, value(number * RECORDS + index)) for index in range(RECORDS)]
    return bytearray(encode_batch(records, compression=Compression.LZ4))


def frame(number: int, records: bytes | bytearray, partition: int) -> bytes:
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=partition, records=records)])
    body = ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[topic]).encode(VERSION)
    header = struct.pack(">hhih", 0, VERSION, number, 4) + b"test\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


class Alone(Leader):
    """A broker without others, whose appends are committed at once."""

    def _led(self, index: int) -> Partition:
        partition = Partition("t", index, new_log(), local_id=1)
        partition.make_leader(leader_epoch=3, partition_epoch=0, replicas=(1,), isr=(1,))
        return partition


class Client:
    """A client's end of a connection."""

    def __init__(self, sock: socket.socket, connection: Connection) -> None:
        self.connection = connection
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))

    async def send(self, data: bytes) -> None:
        with trio.fail_after(PATIENCE_S):
            await self._stream.send_all(data)

    async def answers(self, count: int) -> list[tuple[int, int, int]]:
        """The correlation ids, error codes and offsets of so many answers."""
        received, found = b"", []
        with trio.fail_after(PATIENCE_S):
            while len(found) < count:
                data = await self._stream.receive_some(65536)
                assert data, "the broker has closed the connection"
                received += data
                while len(received) >= 4 and len(received) >= 4 + (size := struct.unpack(">i", received[:4])[0]):
                    answer, received = received[4 : 4 + size], received[4 + size :]
                    told = ProduceResponse.decode(answer[5:], VERSION).responses[0].partition_responses[0]
                    found.append((struct.unpack(">i", answer[:4])[0], told.error_code, told.base_offset))
        return found

    async def is_known(self) -> None:
        """The first request of a kind has its codecs loaded, and is answered by the task."""
        await self.send(frame(0, encode_batch([Record(0, 1_000, None, b"first")]), 0))
        assert await self.answers(1) == [(0, 0, 0)]

    async def send_and_leave(self, data: bytes) -> None:
        await self.send(data)
        await self._stream.aclose()

    async def close(self) -> None:
        await self._stream.aclose()


class Counted:
    """How many errands of each kind were handed over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.receipts = self.walks = 0
        receive, walk = Errands.receive, Errands.walk

        def counted(method: Callable[..., None], name: str) -> Callable[..., None]:
            def call(*arguments: Any) -> None:
                try:
                    method(*arguments)
                except HandedOver:
                    setattr(self, name, getattr(self, name) + 1)
                    raise

            return call

        monkeypatch.setattr(Errands, "receive", counted(receive, "receipts"))
        monkeypatch.setattr(Errands, "walk", counted(walk, "walks"))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop always has something else to do, as it seems to it."""

    def is_wanted(self: Errands) -> bool:
        return self.is_open and self.pending < PENDING_MAX and (self._native is not None or self._start())

    monkeypatch.setattr(Errands, "is_wanted", property(is_wanted))


@pytest.fixture
def leader() -> Alone:
    return Alone()


@pytest.fixture
def readiness() -> Iterator[list[Readiness]]:
    """That of the test's loop, once there is one."""
    made: list[Readiness] = []
    # Other tests leave loops behind that were never closed, and with them their threads.
    threads, descriptors = set(threading.enumerate()), eventfds()
    yield made
    for each in made:
        each.errands.close()
    assert not [each for each in threading.enumerate() if each.name == "errands" and each not in threads]
    assert eventfds() <= descriptors


def eventfds() -> int:
    """How many of them are open; trio has none."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the folder itself
            found += "eventfd" in os.readlink(f"/proc/self/fd/{number}")
    return found


def connect(nursery: trio.Nursery, leader: Leader, readiness: Readiness) -> Client:
    route = route_of(
        ProduceRequest, ProduceRequest.versions, produce_handler.produce, pipelined=True, at_once=at_once.AT_ONCE
    )
    listener: Any = SimpleNamespace(
        name="PLAINTEXT",
        broker=leader,
        calls=Calls({0: route}),
        buffers=ReceiveBuffers(),
        readiness=readiness,
        frame_bytes_max=1 << 23,
        complaints=Complaints("PLAINTEXT"),
        security_protocol="PLAINTEXT",
        sasl=None,
        quotas=ClientQuotas(),
    )
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    connection = Connection(PlainTransport(ours), "127.0.0.1", listener)
    nursery.start_soon(connection.run)
    return Client(theirs, connection)


def appended(leader: Leader, partition: int) -> list[int]:
    """The checksums of the values in a log."""
    log, sums = leader.partitions[partition].log, []
    for offset in range(0, log.log_end_offset, RECORDS):
        region = log.read(offset, 1, upper_bound=log.log_end_offset, at_least_one_batch=True).region
        sums += [zlib.crc32(each.value or b"") for each in decode_records(contents(region))]
    return sums


@pytest.mark.parametrize("connections", [1, CONNECTIONS])
async def test_large_batches_are_appended_and_answered_in_order(
    always: None, counted: Counted, leader: Alone, readiness: list[Readiness], nursery: trio.Nursery, connections: int
) -> None:
    readiness.append(Readiness())
    clients = [connect(nursery, leader, readiness[0]) for _ in range(connections)]
    answers: dict[int, list[tuple[int, int, int]]] = {}

    async def send(index: int) -> None:
        frames = [frame(number, batch(index * REQUESTS + number), index) for number in range(REQUESTS)]
        await clients[index].send(b"".join(frames))

    async def hear(index: int) -> None:
        answers[index] = await clients[index].answers(REQUESTS)

    async with trio.open_nursery() as both:
        for index in range(connections):
            both.start_soon(send, index)
            both.start_soon(hear, index)
    for index in range(connections):
        assert answers[index] == [(number, 0, number * RECORDS) for number in range(REQUESTS)]
        first = index * REQUESTS * RECORDS
        assert appended(leader, index) == [zlib.crc32(value(first + number)) for number in range(REQUESTS * RECORDS)]
        assert leader.partitions[index].traffic.produce_requests == REQUESTS
    # The buffer of a first frame grows as its bytes come, which only the loop can do. Not all are complete when it looks.
    assert counted.walks >= connections and counted.receipts >= 1
    for client in clients:
        await client.close()


async def test_one_request_is_counted_once(
    always: None, counted: Counted, leader: Alone, readiness: list[Readiness], nursery: trio.Nursery
) -> None:
    readiness.append(Readiness())
    client = connect(nursery, leader, readiness[0])
    await client.is_known()
    route = client.connection._route
    before = route.request_count, route.request_bytes
    request = frame(1, batch(1), 0)
    await client.send(request)
    assert await client.answers(1) == [(1, 0, 1)]
    assert counted.walks == 1
    assert (route.request_count, route.request_bytes) == (before[0] + 1, before[1] + len(request) - 4)
    await client.close()


async def test_what_is_wrong_is_refused_as_ever(
    always: None, counted: Counted, leader: Alone, readiness: list[Readiness], nursery: trio.Nursery
) -> None:
    """A bad batch between good ones: its verdict is of no other batch."""
    from ottla.wire.checksum import crc32c

    bad = batch(2)
    bad[61 + 40_000 : 61 + 40_100] = b"\xff" * 100
    bad[17:21] = crc32c(memoryview(bad)[21:]).to_bytes(4, "big")
    wrong_sum = batch(3)
    wrong_sum[-30] ^= 1
    readiness.append(Readiness())
    client = connect(nursery, leader, readiness[0])
    requests = [batch(1), bad, batch(4), wrong_sum, batch(5)]
    nursery.start_soon(client.send, b"".join(frame(number, each, 0) for number, each in enumerate(requests)))
    codes = [0, ErrorCode.UNKNOWN_SERVER_ERROR, 0, ErrorCode.CORRUPT_MESSAGE, 0]
    offsets = [0, -1, RECORDS, -1, 2 * RECORDS]
    assert await client.answers(5) == [(number, codes[number], offsets[number]) for number in range(5)]
    assert counted.walks >= 4
    await client.close()


async def test_a_peer_that_leaves_within_a_frame(
    always: None, counted: Counted, leader: Alone, readiness: list[Readiness], nursery: trio.Nursery
) -> None:
    readiness.append(Readiness())
    memory = []
    for _ in range(3):
        client = connect(nursery, leader, readiness[0])
        memory.append(client.connection._inbox.memory)
        request = frame(1, batch(1), 0)
        nursery.start_soon(client.send_and_leave, request + request[:-1000])
    with trio.fail_after(PATIENCE_S):
        while leader.partitions[0].log_end_offset < 3 * RECORDS or any(each.used for each in memory):
            await trio.sleep(0.001)
    assert leader.partitions[0].log_end_offset == 3 * RECORDS


@pytest.mark.parametrize("what_fails", ["thread", "eventfd", "memory"])
async def test_without_the_thread_the_loop_does_it(
    always: None,
    counted: Counted,
    leader: Alone,
    readiness: list[Readiness],
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    what_fails: str,
) -> None:
    def fails(*_: object) -> Any:
        raise {"thread": RuntimeError("no thread"), "eventfd": OSError(24, "EMFILE"), "memory": MemoryError()}[
            what_fails
        ]

    descriptors = eventfds()
    with monkeypatch.context() as patched:
        if what_fails == "thread":
            patched.setattr(errands_module.threading.Thread, "start", fails)
        else:
            patched.setattr(errands_module, "event_descriptor" if what_fails == "eventfd" else "Background", fails)
        readiness.append(Readiness())
        client = connect(nursery, leader, readiness[0])
        nursery.start_soon(client.send, frame(1, batch(1), 0) + frame(2, batch(2), 0))
        assert await client.answers(2) == [(1, 0, 0), (2, 0, RECORDS)]
        assert counted.walks == counted.receipts == 0
    assert eventfds() <= descriptors
    monkeypatch.setattr(readiness[0].errands, "_not_before", 0.0)  # after a while
    nursery.start_soon(client.send, frame(3, batch(3), 0))
    assert await client.answers(1) == [(3, 0, 2 * RECORDS)]
    assert counted.walks == 1
    await client.close()


class Slow:
    """A thread that has not got on yet."""

    def __init__(self, readiness: Readiness) -> None:
        self.keys: list[Any] = []
        self.is_done = False
        self.told_by = os.eventfd(0, os.EFD_NONBLOCK)
        errands = readiness.errands
        errands._native, errands.told_by = self, self.told_by
        errands._watch(self.told_by)

    def receive_into(self, key: Any, *_: object) -> bool:
        self.keys.append(key)
        return True

    def take(self) -> Any:
        return (self.keys.pop(0), "arrived") if self.is_done and self.keys else None

    def has_news(self) -> bool:
        return self.is_done and bool(self.keys)

    def finish(self) -> None:
        self.is_done = True
        os.eventfd_write(self.told_by, 1)


@pytest.mark.parametrize("is_asked", [True, False])
def test_what_is_known_of_a_frame_is_known_of_no_other(is_asked: bool) -> None:
    """Also where nobody asks for it any more, as of a topic that has other settings by the time."""
    found, bad = (0, 0, 0, True, True), b"bad"
    errands = Errands(lambda descriptor: None)
    errands.is_open, errands.others = True, 1
    errands._native = SimpleNamespace(walk_records=lambda *_: True, take=lambda: ((3, ahead._deliver), found))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ahead = Ahead(errands, ours)
        good = encode_batch([Record(0, 1_000, None, bytes(200_000))], compression=Compression.LZ4)[61:]
        told: list[Any] = []

        def prepare(buffer: bytes, position: int, end: int, context: Any, walk: Callable[..., Any]) -> Any:
            told.append(
                walk(Compression.LZ4, buffer[position:end], 2 << 20, 1) if is_asked or position else "not asked"
            )

        inbox: Any = SimpleNamespace(has_own_buffer=True, buffer=good + bad, put_back=lambda start: None)
        call: Any = SimpleNamespace(route=SimpleNamespace(request_count=1, request_bytes=len(good)))
        with pytest.raises(HandedOver):
            ahead._errands.walk(3, ahead._deliver, Compression.LZ4, good, 1)
        assert errands.take_finished() == [3]
        assert ahead.take()
        at_once: Any = SimpleNamespace(prepare=prepare)
        ahead.prepare(call, at_once, inbox, 0, 0, len(good), None)
        ahead.prepare(call, at_once, inbox, len(good), len(good), len(good) + len(bad), None)
        assert told == [found if is_asked else "not asked", None]


def test_errands_are_few(always: None) -> None:
    errands = Errands(lambda descriptor: None)
    errands.is_open = True
    errands._native = SimpleNamespace(receive_into=lambda *_: True)
    for _ in range(PENDING_MAX):
        with pytest.raises(HandedOver):
            errands.receive(3, lambda arrived: None, bytearray(9), 0, 9)
    errands.receive(3, lambda arrived: None, bytearray(9), 0, 9)  # the loop does it itself


def test_a_loop_that_has_nothing_else_to_do_hands_nothing_over() -> None:
    errands = Errands(lambda descriptor: None)
    errands._native = SimpleNamespace()
    for is_open, others, pending, expected in (
        (True, 0, 0, False), (True, 1, 0, True), (True, 0, 1, True), (False, 3, 1, False), (True, 3, PENDING_MAX, False),
    ):  # fmt: skip
        errands.is_open, errands.others, errands.pending = is_open, others, pending
        assert errands.is_wanted is expected


async def test_a_task_that_is_cancelled_while_it_is_away_ends_when_it_is_back(
    always: None, nursery: trio.Nursery
) -> None:
    readiness = Readiness()
    slow = Slow(readiness)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    steps: list[Any] = []

    def step() -> Any:
        steps.append("step")
        try:
            readiness.errands.receive(ours.fileno(), steps.append, bytearray(9), 0, 9)
        except HandedOver:
            return AWAY
        return WAIT_READABLE

    ended = trio.Event()
    scope = trio.CancelScope()

    async def serve() -> None:
        with scope:
            await readiness.serve(ours, step)
        assert scope.cancelled_caught
        ended.set()

    nursery.start_soon(serve)
    theirs.send(b"x")
    with trio.fail_after(PATIENCE_S):
        while not slow.keys:
            await trio.sleep(0.001)
    readiness.poke(ours)  # for nothing: it is not called while it is away
    theirs.close()
    scope.cancel()
    for _ in range(5):
        await trio.testing.wait_all_tasks_blocked()
    assert steps == ["step"] and not ended.is_set()
    slow.finish()
    with trio.fail_after(PATIENCE_S):
        await ended.wait()
    assert steps == ["step", "arrived"]
    assert readiness.errands.pending == 0
    with ours:
        readiness.errands._native = None
        os.close(slow.told_by)


async def test_peers_that_leave_and_connections_that_are_ended_disturb_nobody(
    always: None, counted: Counted, leader: Alone, readiness: list[Readiness]
) -> None:
    """Descriptors are used again at once. A thread that received for one that is gone would take a byte of another's frame."""
    readiness.append(Readiness())
    chance = random.Random(4)
    whole = [frame(number, batch(number), 0) for number in range(3)]
    rude = frame(0, batch(5), 1) * 2

    async def be_rude(nursery: trio.Nursery) -> None:
        while True:
            client = connect(nursery, leader, readiness[0])
            try:
                with trio.move_on_after(chance.random() / 50):
                    await client.send(rude[: chance.randrange(len(rude))])
                    await trio.sleep_forever()
                # The connection may be away just now.
                client.connection.cancel_scope.cancel()
            finally:
                await client.close()

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(be_rude, nursery)
        for round_ in range(6):
            client = connect(nursery, leader, readiness[0])
            nursery.start_soon(client.send, b"".join(whole))
            first = round_ * 3 * RECORDS
            assert await client.answers(3) == [(number, 0, first + number * RECORDS) for number in range(3)]
            await client.close()
        nursery.cancel_scope.cancel()
    assert readiness[0].errands.pending == 0
    assert counted.walks > 0
