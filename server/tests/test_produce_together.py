"""Requests that come in one read: the same answers, logs and counts as if each had come alone."""

import errno
import itertools
import random
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ottla.replication.log.tests.logs import batch, idempotent
from ottla.replication.partition.appending_together import append_together
from ottla.server.gate import dispatch
from ottla.server.net import connection as connections
from ottla.server.net import together
from ottla.server.net.calls import Calls
from ottla.server.net.connection import Connection
from ottla.server.net.inbox import ReceiveBuffers
from ottla.server.net.listener_context import Complaints
from ottla.server.net.sliced_work import WorkQueue
from ottla.server.net.transport import PlainTransport
from ottla.server.produce import appending, at_once
from ottla.server.produce.at_once import AT_ONCE
from ottla.server.quotas.client_quotas import ClientQuotas
from ottla.server.testing.memory_storage import MemoryStorage, ShortWrite
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.server.tests.routes import route_of
from ottla.server.tests.test_produce_at_once import NOW_MS, doubled, good, held, numbered
from ottla.server.tests.test_topic_handlers import creatable, create
from ottla.wire.errors import ProtocolViolation
from ottla.wire.headers import RequestHeader, encode_request_header
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import RECORDS_OFFSET

PRODUCE = 0
VERSIONS = (12, 13)
SMALL = {"segment_bytes": 3000, "segment_index_bytes": 100, "index_interval_bytes": 0}
Frame = tuple[str, int, int, int, bytes]
"""Topic, partition, version, acks and records."""


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: NOW_MS * 1_000_000)
    # However busy the machine is, nothing goes to a thread for want of time.
    monkeypatch.setattr(appending, "TURN_S", 1000.0)


class OneConnection:
    """A connection of a broker whose step is called by hand, and its peer."""

    def __init__(self, broker: AdministeredBroker, calls: Calls) -> None:
        self.broker = broker
        self.peer, ours = socket.socketpair()
        ours.setblocking(False)
        # Turns that are as long as they need to be: a busy machine must not end one.
        self.readiness = SimpleNamespace(
            is_inside_the_wait=True,
            turn_end=lambda now: now + 1000,
            work=WorkQueue(),
        )
        listener: Any = SimpleNamespace(
            name="PLAINTEXT", broker=broker, calls=calls, buffers=ReceiveBuffers(), readiness=self.readiness,
            frame_bytes_max=1 << 23, complaints=Complaints("PLAINTEXT"), security_protocol="PLAINTEXT", sasl=None,
            quotas=ClientQuotas(),
        )  # fmt: skip
        self.connection = Connection(PlainTransport(ours), "127.0.0.1", listener)
        self.written = 0
        self.route = calls.find(PRODUCE, 12).route  # type: ignore[union-attr]

    def send(self, data: bytes) -> None:
        """Have it handled all that is whole of it."""
        self.peer.sendall(data)
        assert self.connection._step() is connections.WAIT_READABLE

    def answers(self, size: int) -> bytes:
        self.peer.settimeout(60)
        data = b""
        while len(data) < size:
            data += self.peer.recv(1 << 20)
        return data

    def counted(self) -> list[float]:
        route = self.route
        return [route.request_count, route.request_bytes, route.response_bytes, sum(route.times)]

    def close(self) -> None:
        self.peer.close()
        self.connection._transport.close()


async def calls_of_produce() -> Calls:
    routes = {PRODUCE: route_of(ProduceRequest, *_served())}
    calls = Calls(routes)
    for version in VERSIONS:
        await calls.make(PRODUCE, version)
    return calls


def _served() -> tuple[Any, ...]:
    """A route with counts of its own."""
    route = dispatch.all_routes()[PRODUCE]
    return route.versions, route.handler, route.code.at_once


def encoded(broker: AdministeredBroker, frames: Sequence[Frame]) -> list[bytes]:
    made = []
    for number, (topic, index, version, acks, records) in enumerate(frames):
        data = PartitionProduceData(index=index, records=memoryview(bytearray(records)))
        topic_id = broker.cluster.topics[topic].topic_id
        named = TopicProduceData(partition_data=[data])
        if version < 13:
            named.name = topic
        else:
            named.topic_id = topic_id
        body = ProduceRequest(acks=acks, timeout_ms=9_999, topic_data=[named]).encode(version)
        header = encode_request_header(RequestHeader(PRODUCE, version, number, "client"), 2)
        made.append(struct.pack(">i", len(header) + len(body)) + header + body)
    return made


def damaged(chance: random.Random) -> memoryview:
    """In a record, so that it is refused at once."""
    records = good(chance)
    records[chance.randrange(RECORDS_OFFSET, len(records))] ^= 1 << chance.randrange(8)
    return records


@st.composite
def frames(draw: st.DrawFn) -> list[Frame]:
    """Series of requests that are alike, with others in between."""
    chance = random.Random(draw(st.integers(0, 1 << 30)))
    made: list[Frame] = []
    sequence = 0
    for _ in range(draw(st.integers(1, 4))):
        topic, version = draw(st.sampled_from(("plain", "plain", "small", "stamped"))), draw(st.sampled_from(VERSIONS))
        index, acks = draw(st.sampled_from((0, 0, 0, 1))), draw(st.sampled_from((-1, 1, 2)))
        kind = draw(st.sampled_from((good, good, numbered, None)))
        for _ in range(draw(st.integers(1, 12))):
            if draw(st.integers(0, 9)) == 0:
                records = draw(st.sampled_from((damaged, doubled, numbered)))(chance)
            elif kind is None:
                records = idempotent(sequence, 2, producer_id=9)
                sequence += 2
            else:
                records = kind(chance)
            made.append((topic, index, version, acks, bytes(records)))
    return made


def chunks(data: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return (data[start:end] for start, end in itertools.pairwise(places) if start < end)


async def both(tmp_path: Path) -> tuple[AdministeredBroker, AdministeredBroker]:
    brokers = []
    for name in ("together", "alone"):
        (tmp_path / name).mkdir()
        broker = await opened(tmp_path / name)
        topics = [creatable("plain"), creatable("small"), creatable("stamped", message_timestamp_type="LogAppendTime")]
        assert [each.error_code for each in await create(broker, *topics)] == [0, 0, 0]
        small = broker.partition("small", 0)
        small.set_config(replace(small.log.config, **SMALL))  # type: ignore[arg-type]
        brokers.append(broker)
    return brokers[0], brokers[1]


def without_ids(broker: AdministeredBroker, answers: bytes) -> bytes:
    for name, topic in broker.cluster.topics.items():
        answers = answers.replace(topic.topic_id, name.encode().ljust(16))
    return answers


async def test_what_comes_together_is_answered_and_kept_as_what_comes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = await both(tmp_path)
    ways = [OneConnection(broker, await calls_of_produce()) for broker in brokers]
    at_a_time, alone = ways
    carried = []
    carry_out_all = type(AT_ONCE[12]).carry_out_all

    def counted(self: Any, prepared: Any, context: Any) -> Any:
        answers = carry_out_all(self, prepared, context)
        carried.append((len(prepared), answers is None))
        return answers

    monkeypatch.setattr(type(AT_ONCE[12]), "carry_out_all", counted)

    # What is sent goes on with what was sent before, so that a smaller example would be another one.
    @settings(
        max_examples=30, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(frames(), st.lists(st.integers(0, 1 << 20), max_size=3))
    def compare(made: list[Frame], cuts: list[int]) -> None:
        for each in encoded(alone.broker, made):
            alone.send(each)
        size = alone.route.response_bytes - alone.written + 4 * len(made)
        alone.written = alone.route.response_bytes
        expected = without_ids(alone.broker, alone.answers(int(size)))
        for chunk in chunks(b"".join(encoded(at_a_time.broker, made)), cuts):
            at_a_time.send(chunk)
        assert without_ids(at_a_time.broker, at_a_time.answers(len(expected))) == expected
        for topic in ("plain", "small", "stamped"):
            (data, counts), (same_data, same_counts) = held(at_a_time.broker, topic), held(alone.broker, topic)
            assert counts == same_counts
            is_same = data == same_data
            assert is_same
            logs = [way.broker.partition(topic, 0).log for way in ways]
            assert len({str([each.base_offset for each in log.segments]) for log in logs}) == 1
            assert len({str([(each.epoch, each.batches) for each in log.producers.values()]) for log in logs}) == 1
        assert at_a_time.counted() == alone.counted()

    compare()
    # Whatever was drawn: a segment that ends, and one that goes on.
    for topic, count in (("small", 30), ("plain", 5), ("plain", 5)):
        compare.hypothesis.inner_test([(topic, 0, 12, 1, bytes(batch(NOW_MS, value=bytes(300))))] * count, [])  # type: ignore[attr-defined]
    assert any(count > 2 and not failed for count, failed in carried)
    assert any(failed for _, failed in carried), "where a segment ends they go one by one"
    for way in ways:
        way.close()


def series(count: int, size: int = 100) -> list[Frame]:
    return [("t", 0, 12, -1, bytes(batch(NOW_MS, value=b"%04d" % number * size))) for number in range(count)]


async def connected(tmp_path: Path, storage: MemoryStorage | None = None) -> OneConnection:
    broker = await opened(tmp_path, storage=storage)
    await create(broker, creatable("t"))
    way = OneConnection(broker, await calls_of_produce())
    way.send(b"".join(encoded(broker, series(1))))
    way.answers(1)
    return way


async def test_a_full_disk_takes_what_fits_as_if_each_had_come_alone(tmp_path: Path) -> None:
    storage = MemoryStorage()
    storage.make_directory("/d")
    way = await connected(Path("/d"), storage)
    log = way.broker.partition("t", 0).log
    made = encoded(way.broker, series(5))
    each_bytes = len(series(1)[0][4])
    storage.space_left = 2 * each_bytes + each_bytes // 2
    before, end = log.segments[-1].size, log.log_end_offset
    way.send(b"".join(made))
    assert way.answers(1)
    # A write that fails is cut off, and what was written of it gives no room back here: so the second one finds less.
    written = log.log_end_offset - end
    assert log.segments[-1].size == before + written * each_bytes
    storage.space_left = None
    way.send(b"".join(made))
    assert log.log_end_offset == end + written + 5
    data, _ = held(way.broker, "t")
    assert len(data) == log.segments[-1].size
    way.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EINTR])
@pytest.mark.parametrize("share", [0.0, 0.5])
async def test_a_write_that_fails_once_costs_nobody_a_record(tmp_path: Path, number: int, share: float) -> None:
    storage = MemoryStorage()
    storage.make_directory("/d")
    way = await connected(Path("/d"), storage)
    log = way.broker.partition("t", 0).log
    failed: list[str] = []

    def fail_once(operation: str, path: str) -> OSError | None:
        if operation != "append" or not path.endswith(".log") or failed:
            return None
        failed.append(path)
        return ShortWrite(number, "failed", share) if share else OSError(number, "failed")

    end = log.log_end_offset
    storage.fail = fail_once
    way.send(b"".join(encoded(way.broker, series(6))))
    storage.fail = None
    assert failed
    is_online = log.log_directory.failure is None
    assert log.log_end_offset == (end + 6 if is_online else end)
    way.close()


async def test_what_is_no_frame_ends_the_connection_after_the_answers_before_it(tmp_path: Path) -> None:
    way = await connected(tmp_path)
    log = way.broker.partition("t", 0).log
    end = log.log_end_offset
    way.peer.sendall(b"".join(encoded(way.broker, series(4))) + b"\xff\xff\xff\xff")
    with pytest.raises(ProtocolViolation):
        way.connection._step()
    assert log.log_end_offset == end + 4
    assert way.connection._outbox.parts
    way.close()


async def test_a_turn_that_is_over_leaves_the_rest_for_the_next_one(tmp_path: Path) -> None:
    """As when the processor was away: then others have waited already."""
    way = await connected(tmp_path)
    log = way.broker.partition("t", 0).log
    end = log.log_end_offset
    way.readiness.turn_end = lambda now: now - 1
    way.peer.sendall(b"".join(encoded(way.broker, series(4))))
    assert way.connection._step() is connections.END_OF_TURN
    assert log.log_end_offset == end + 1
    way.readiness.turn_end = lambda now: now + 1000
    way.connection._note_time()
    assert way.connection._answer_frames() is None
    assert log.log_end_offset == end + 4
    way.close()


async def test_a_client_that_may_write_no_more_is_refused_from_then_on(tmp_path: Path) -> None:
    way = await connected(tmp_path)
    log = way.broker.partition("t", 0).log
    end, asked = log.log_end_offset, []

    class Forgetful:
        version = 1

        def allows(self, *_: object) -> bool:
            asked.append(1)
            return len(asked) <= 2

    way.broker.authorizer = Forgetful()  # type: ignore[assignment]
    way.send(b"".join(encoded(way.broker, series(4))))
    assert log.log_end_offset == end + 2
    way.close()


async def test_requests_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    way = await connected(tmp_path)
    counts: list[int] = []

    def noted(partition: Any, checked: Any, **options: Any) -> Any:
        counts.append(len(checked))
        return append_together(partition, checked, **options)

    monkeypatch.setattr(at_once, "append_together", noted)
    way.send(b"".join(encoded(way.broker, series(70, 10))))
    assert counts == [together.TOGETHER_MAX, together.TOGETHER_MAX, 70 - 2 * together.TOGETHER_MAX]
    counts.clear()
    monkeypatch.setattr(together, "TOGETHER_BYTES_MAX", 1000)
    way.send(b"".join(encoded(way.broker, series(8, 100))))
    assert counts
    assert max(counts) <= 3
    way.close()


async def test_what_is_refused_is_not_looked_at_with_all_behind_it_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = await connected(tmp_path)
    partition = way.broker.partition("t", 0)
    partition.min_isr = 2
    checks: list[int] = []
    check = at_once.check_ordinary

    def noted(*arguments: Any, **options: Any) -> Any:
        checks.append(1)
        return check(*arguments, **options)

    monkeypatch.setattr(at_once, "check_ordinary", noted)
    end = partition.log.log_end_offset
    way.send(b"".join(encoded(way.broker, series(30, 10))))
    assert partition.log.log_end_offset == end
    assert len(checks) <= 2 * 30
    # What is read next may go together.
    partition.min_isr = 1
    checks.clear()
    way.send(b"".join(encoded(way.broker, series(30, 10))))
    assert partition.log.log_end_offset == end + 30
    assert len(checks) == 30
    way.close()


async def test_nothing_is_kept_of_what_was_looked_at(tmp_path: Path) -> None:
    """The buffer of a large frame grows where it is only while nobody looks at it."""
    way = await connected(tmp_path)
    way.send(b"".join(encoded(way.broker, series(8))))
    way.connection._inbox.buffer.extend(b"x")  # BufferError if a view is left
    way.close()
