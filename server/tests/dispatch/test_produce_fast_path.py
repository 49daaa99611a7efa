"""The fast path of Produce: the same answers and the same logs as by the handler."""

import errno
import random
import struct
import threading
from collections.abc import Iterator
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from ottla.groupcoord.runtime.answers import finished
from ottla.replication.log import batch_checks, validator
from ottla.replication.log.batch_checks import SMALL_BYTES
from ottla.replication.log.tests.failing_calls import FailingCalls, Fault, single_faults
from ottla.replication.log.tests.logs import batch, contents, idempotent
from ottla.replication.log.verification import NOT_REQUIRED
from ottla.server.api.handlers.produce import produce
from ottla.server.api.produce.fast_path import FAST_PATH
from ottla.server.dispatch.context import RequestContext
from ottla.server.network.calls import Call
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.server.tests.api.test_topic_handlers import creatable, create
from ottla.wire import compressed_walk
from ottla.wire.checksum import crc32c
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import encode_batch
from ottla.wire.record_walk import IS_NATIVE
from ottla.wire.records import RECORDS_OFFSET, Record, iter_batches, read_header

PASSING = (errno.EINTR, errno.ENOSPC)
NOW_MS = 2_000_000_000_000
_PART = struct.Struct(">hiqqqhii")  # of a header, from the attributes on
KINDS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup_policy": "compact"},
    "appended": {"message_timestamp_type": "LogAppendTime"},
    "squeezed": {"compression_type": "zstd"},
    "small": {"max_message_bytes": "200"},
    "flushed": {"flush_messages": "1"},
    "rolled": {"segment_ms": "1"},
    "strict": {"message_timestamp_before_max_ms": "1000"},
}


def good(chance: random.Random) -> memoryview:
    return batch(
        *(NOW_MS - chance.randrange(3) for _ in range(chance.randint(1, 4))), value=bytes(chance.choice((5, 90, 300)))
    )


def numbered(chance: random.Random) -> memoryview:
    """Sometimes the next batch of a producer, sometimes one that came before, sometimes one after a gap."""
    return idempotent(chance.randrange(6), producer_id=chance.randrange(3), epoch=chance.choice((0, 0, 0, 1)))


def changed(chance: random.Random) -> memoryview:
    """A batch that is damaged in one byte."""
    records = good(chance)
    records[chance.randrange(len(records))] ^= 1 << chance.randrange(8)
    return records


def transactional(chance: random.Random) -> memoryview:
    return idempotent(0, is_transactional=True)


def squeezed(chance: random.Random) -> memoryview:
    """Compressed, or stored by its codec; sometimes damaged in one byte."""
    value = chance.choice((bytes(500), chance.randbytes(500), chance.randbytes(70_000)))
    records = batch(NOW_MS, NOW_MS, value=value, compression=Compression(chance.randint(1, 4)))
    if not chance.randrange(4):
        records[chance.randrange(len(records))] ^= 1 << chance.randrange(8)
    return records


def squeezed_transactional(chance: random.Random) -> memoryview:
    return idempotent(0, is_transactional=True, compression=Compression(chance.randint(1, 4)))


def doubled(chance: random.Random) -> memoryview:
    return memoryview(bytearray(bytes(good(chance)) * 2))


def ahead(chance: random.Random) -> memoryview:
    return batch(NOW_MS + 10_000_000)


def nothing(chance: random.Random) -> memoryview:
    return memoryview(bytearray(chance.randrange(70)))


BATCHES = [good, good, good, good, numbered, numbered, changed, transactional, doubled, ahead, nothing]
BATCHES += [squeezed, squeezed, squeezed_transactional]


def request(
    broker: AdministeredBroker, topic: str, version: int, records: memoryview, *, index: int = 0, acks: int = -1
) -> ProduceRequest:
    state = broker.cluster.topics.get(topic)
    topic_id = bytes(15) + b"\1" if state is None else state.topic_id
    name, topic_id = (topic, bytes(16)) if version < 13 else ("", topic_id)
    data = PartitionProduceData(index=index, records=memoryview(bytearray(records)))
    topics = [TopicProduceData(name=name, topic_id=topic_id, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=9_999_999, topic_data=topics)


def context_of(broker: AdministeredBroker, version: int) -> RequestContext[Any]:
    context: RequestContext[Any] = broker.context(version)
    context.now_ms = NOW_MS
    return context


def by_fast_path(
    broker: AdministeredBroker, asked: ProduceRequest, version: int, context: RequestContext[Any] | None = None
) -> ProduceResponse | ProduceRequest:
    """The answer by the fast path; if that leaves the request alone, the request as it is decoded after that."""
    encoded = asked.encode(version)
    buffer = bytearray(b"ab" + encoded + b"cd")
    context = context or context_of(broker, version)
    parts = FAST_PATH[version](buffer, 2, len(buffer) - 2, context)
    if parts is not None:
        return ProduceResponse.decode(b"".join(parts), version)
    assert buffer == b"ab" + encoded + b"cd"
    decoded: ProduceRequest = ProduceRequest.decoder(version)(buffer, 2, len(buffer) - 2)
    return decoded


async def step_by_step(
    broker: AdministeredBroker, asked: ProduceRequest, version: int, context: RequestContext[Any] | None = None
) -> ProduceResponse:
    answer: Any = produce(asked, context or context_of(broker, version))
    if isawaitable(answer):
        answer = await answer
    response: ProduceResponse = await finished(answer)
    return response


async def connected(broker: AdministeredBroker, asked: ProduceRequest, version: int) -> tuple[ProduceResponse, bool]:
    """The answer as a connection gives it, with one context, and whether it is the fast path's."""
    context = context_of(broker, version)
    answer = by_fast_path(broker, asked, version, context)
    is_taken = isinstance(answer, ProduceResponse)
    if isinstance(answer, ProduceRequest):
        answer = await step_by_step(broker, answer, version, context)
    assert context.checked_batch is None  # the next request has nothing of it
    return answer, is_taken


def told(response: ProduceResponse) -> list[Any]:
    """All that an answer says, but for the name of the topic."""
    [topic] = response.responses
    [each] = topic.partition_responses
    texts = [(error.batch_index, error.batch_index_error_message) for error in each.record_errors]
    hint = (each.current_leader.leader_id, response.throttle_time_ms, response.node_endpoints)
    offsets = (each.base_offset, each.log_append_time_ms, each.log_start_offset)
    return [each.index, each.error_code, offsets, texts, each.error_message, hint]


def held(broker: AdministeredBroker, topic: str) -> tuple[bytes, list[int]]:
    """What a topic's log has, and what was counted of it."""
    partition = broker.partition(topic, 0)
    log, offset, data = partition.log, 0, b""
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 30, upper_bound=log.log_end_offset)
        data += contents(read.region)
        offset = read.end_offset
    traffic = partition.traffic
    counts = [traffic.messages_in, traffic.bytes_in, traffic.produce_requests, traffic.failed_produce_requests]
    return data, [*counts, log.log_end_offset, partition.high_watermark, len(log.segments)]


@pytest.mark.parametrize("seed", range(3))
async def test_both_ways_answer_alike_and_leave_the_same_logs(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    broker = await opened(tmp_path)
    for kind, settings in KINDS.items():
        made = await create(broker, creatable(f"short-{kind}", **settings), creatable(f"long-{kind}", **settings))
        assert [each.error_code for each in made] == [0, 0]
    taken = 0
    for _ in range(300):
        kind = chance.choice([*KINDS, *["plain"] * 8, "unknown"])
        records, version = chance.choice(BATCHES)(chance), chance.randint(9, 13)
        options = {"index": chance.choice((0, 0, 0, 0, 0, 0, 1, -1)), "acks": chance.choice((-1, -1, 1, 2))}
        asked = request(broker, f"short-{kind}", version, records, **options)
        answer, is_taken = await connected(broker, asked, version)
        taken += is_taken
        twin = request(broker, f"long-{kind}", version, records, **options)
        assert told(answer) == told(await step_by_step(broker, twin, version))
    for kind in KINDS:
        assert held(broker, f"short-{kind}") == held(broker, f"long-{kind}")
    assert taken > 20


async def left_alone(
    broker: AdministeredBroker, topic: str = "t", records: memoryview | None = None, **options: Any
) -> bool:
    """Whether a request that would be good else is left to the other way, with nothing done."""
    before = held(broker, "t")
    asked = request(broker, topic, 12, batch(NOW_MS) if records is None else records, **options)
    is_left = isinstance(by_fast_path(broker, asked, 12), ProduceRequest)
    assert (held(broker, "t") == before) == is_left
    return is_left


async def test_only_what_nobody_has_to_wait_for_is_answered_by_the_fast_path(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await create(broker, creatable("t"))
    partition = broker.partition("t", 0)
    assert not await left_alone(broker)
    assert not await left_alone(broker, acks=1)
    # Without the walk in C a block of zstd may already be too long.
    for codec in Compression if IS_NATIVE else [Compression.NONE]:
        for value in (bytes(1000), random.Random(codec).randbytes(1000)):
            assert not await left_alone(broker, records=batch(NOW_MS, value=value, compression=codec))
    # What becomes long is checked in a thread.
    for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
        assert await left_alone(broker, records=batch(NOW_MS, value=bytes(3 << 20), compression=codec))
    assert await left_alone(broker, acks=0)
    assert await left_alone(broker, acks=3)
    assert await left_alone(broker, index=1)
    assert await left_alone(broker, topic="__consumer_offsets")
    # The first batch of a producer that numbers them, and one that comes again; but none behind a gap.
    for producer_id in (7, 8):
        first = idempotent(0, producer_id=producer_id)
        assert not await left_alone(broker, records=first)
        assert not await left_alone(broker, records=first)
        assert await left_alone(broker, records=idempotent(5, producer_id=producer_id))
    # A batch of some producer was refused and has to come again before those behind it.
    broker.replicas.retry_window.by_producer[7] = {}
    assert await left_alone(broker, records=idempotent(1))
    assert not await left_alone(broker, records=idempotent(1, producer_id=8))
    broker.replicas.retry_window.by_producer.clear()
    # A new leader, to whom the batches before may be unknown.
    partition.doubts_unknown_until_ms = NOW_MS + 1
    assert await left_alone(broker)
    partition.doubts_unknown_until_ms = 0
    # A transaction that is open in the partition: the log would take more of it, but the request names nobody's.
    mine = idempotent(0, producer_id=9, is_transactional=True)
    partition.append_as_leader(mine, required_acks=1, now_ms=NOW_MS, guard=NOT_REQUIRED)
    assert await left_alone(broker, records=idempotent(1, producer_id=9, is_transactional=True))
    squeezed_of_mine = idempotent(1, producer_id=9, is_transactional=True, compression=Compression.LZ4)
    assert await left_alone(broker, records=squeezed_of_mine)
    # Followers are waited for.
    partition.make_leader(leader_epoch=partition.leader_epoch, partition_epoch=9, replicas=(1, 2), isr=(1, 2))
    assert await left_alone(broker)
    partition.make_follower(leader_id=2, leader_epoch=9, partition_epoch=10, replicas=(1, 2))
    assert await left_alone(broker)


@pytest.mark.parametrize("kind", ["plain", "rolled", "numbered"])
async def test_a_call_that_fails_doubles_no_record_and_skips_no_offset(kind: str) -> None:
    """The fast path leaves what it could not write to the other one, which writes it once more."""
    storage = MemoryStorage()
    broker = await opened(Path("/data"), storage=storage)
    expected: dict[str, list[bytes]] = {}

    async def send(topic: str, number: int) -> None:
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number} if kind == "numbered" else {}
        value = bytes([number]) * 50
        asked = request(broker, topic, 12, batch(NOW_MS + 2 * number, value=value, **producer))
        answer, _ = await connected(broker, asked, 12)
        [told] = answer.responses[0].partition_responses
        if told.error_code == 0:
            assert told.base_offset == len(expected[topic])
            expected[topic].append(value)

    async def attempt(*faults: Fault) -> FailingCalls:
        topic, calls = f"t{len(expected)}", FailingCalls(*faults)
        expected[topic] = []
        await create(broker, creatable(topic, **KINDS.get(kind, {})))
        await send(topic, 0)
        storage.fail = lambda operation, path: calls(operation, path) if f"/{topic}-0/" in path else None
        broker.partition(topic, 0).log.segments[-1].log_file.close()  # it is opened when it is next used
        await send(topic, 1)
        storage.fail = None
        # What was refused comes again, as a client does it.
        for number in range(len(expected[topic]), 4):
            await send(topic, number)
        assert len(expected[topic]) == 4
        return calls

    made = (await attempt()).made
    assert any(call.operation == "append" for call in made)
    # A new segment takes many calls, which all are retried alike.
    for fault in list(single_faults(made, PASSING))[:: 5 if kind == "rolled" else 1]:
        await attempt(fault)
        # And the next one: the call that cuts off what the write has left, or that of the other way.
        await attempt(fault, Fault(fault.number + 1, errno.EINTR))
    assert {topic: values(broker, topic) for topic in expected} == expected
    await broker.stop()
    again = await opened(Path("/data"), storage=storage)
    assert {topic: values(again, topic) for topic in expected} == expected


def doubtful(codec: Compression) -> Iterator[tuple[str, memoryview, ErrorCode]]:
    """Batches with an ordinary front, few of which are good as they are: the topic, the batch and its answer."""
    value = bytes(2 * SMALL_BYTES)

    def sent(*timestamps: int, **changes: int) -> memoryview:
        records = batch(*timestamps, value=value, compression=codec)
        _PART.pack_into(records, 21, *read_header(records)._replace(**changes)[5:])
        records[17:21] = crc32c(records[21:]).to_bytes(4, "big")
        return records

    yield "plain", sent(NOW_MS), ErrorCode.NONE
    yield "plain", sent(NOW_MS + 10_000_000), ErrorCode.INVALID_TIMESTAMP
    yield "plain", sent(NOW_MS, max_timestamp=NOW_MS + 1), ErrorCode.NONE
    yield "plain", sent(NOW_MS, NOW_MS, last_offset_delta=2, records_count=3), ErrorCode.INVALID_RECORD
    damaged = sent(NOW_MS)
    damaged[17] ^= 1  # of its checksum
    yield "plain", damaged, ErrorCode.CORRUPT_MESSAGE
    without_key = encode_batch([Record(0, NOW_MS, None, value)], compression=codec)
    yield "compacted", memoryview(bytearray(without_key)), ErrorCode.INVALID_RECORD
    yield "both", memoryview(bytearray(without_key)), ErrorCode.INVALID_RECORD
    yield "plain", idempotent(0, value=value, compression=codec), ErrorCode.NONE
    yield "plain", idempotent(5, value=value, compression=codec), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.skipif(not IS_NATIVE, reason="without the walk in C nearly all goes to a thread at once")
@pytest.mark.parametrize("codec", Compression)
async def test_the_event_loop_reads_through_no_batch_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: Compression
) -> None:
    broker = await opened(tmp_path)
    for kind, settings in {**KINDS, "both": {**KINDS["compacted"], **KINDS["appended"]}}.items():
        await create(broker, creatable(kind, **settings))
    read: list[str] = []

    def count(module: Any, name: str) -> None:
        original = getattr(module, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                read.append(name)
            return original(*arguments, **options)

        monkeypatch.setattr(module, name, counted)

    count(batch_checks, "is_intact")
    count(batch_checks, "walk_compressed")
    count(validator, "walk_compressed")
    count(validator, "check_records")
    for topic, records, code in doubtful(codec):
        answer, _ = await connected(broker, request(broker, topic, 12, records), 12)
        assert (told(answer)[1], len(read)) == (code, 1), (topic, read)
        read.clear()


async def test_a_verdict_is_of_no_use_for_another_batch(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    for topic in ("first", "second"):
        await create(broker, creatable(topic))
    begun, gap, plain = idempotent(0, value=b"begun"), idempotent(5, value=b"gap"), batch(NOW_MS, value=b"plain")
    await connected(broker, request(broker, "first", 12, begun), 12)
    for topic in ("first", "second"):
        context = context_of(broker, 12)
        left = by_fast_path(broker, request(broker, "first", 12, memoryview(bytearray(gap))), 12, context)
        assert isinstance(left, ProduceRequest)  # and never gets to its handler
        looked_for, _, checked = context.checked_batch
        assert (looked_for.topic, checked is not None) == ("first", True)
        asked = request(broker, topic, 12, memoryview(bytearray(plain)))
        assert told(await step_by_step(broker, asked, 12, context))[1] == ErrorCode.NONE
    assert (values(broker, "first"), values(broker, "second")) == ([b"begun", b"plain"], [b"plain"])


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_a_first_look_decompresses_once(monkeypatch: pytest.MonkeyPatch, codec: Compression) -> None:
    """Where libdeflate tells nothing, gzip is not inflated piece by piece as well."""
    made: list[str] = []

    def fail(name: str, *arguments: Any) -> None:
        made.append(name)

    monkeypatch.setattr(compressed_walk, "gunzipped", partial(fail, "whole"))
    monkeypatch.setattr(compressed_walk, "decompress_into", partial(fail, "in pieces"))
    data = batch(NOW_MS, compression=codec)[RECORDS_OFFSET:]
    assert compressed_walk.walk_compressed(codec, data, 1000, 1, is_once=True) is None
    assert len(made) == 1


def values(broker: AdministeredBroker, topic: str) -> list[bytes]:
    """By offset; there is no gap."""
    data, found = held(broker, topic)[0], []
    for _, start, end in iter_batches(data):
        for record in decode_records(data[start:end]):
            assert record.offset == len(found)
            found.append(bytes(record.value or b""))
    return found


async def test_a_client_that_may_not_write_is_refused_by_the_way_that_says_so(tmp_path: Path) -> None:
    broker = await opened(
        tmp_path, {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    )
    await create(broker, creatable("t"))
    asked = request(broker, "t", 12, batch(NOW_MS))
    assert isinstance(by_fast_path(broker, asked, 12), ProduceRequest)
    assert told(await step_by_step(broker, asked, 12))[1] == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_all_flexible_versions_of_produce_have_a_fast_path() -> None:
    from ottla.server.dispatch.dispatch import all_routes

    route = all_routes()[0]
    assert [version for version in range(14) if Call(route, version).fast_path is not None] == [9, 10, 11, 12, 13]
    assert Call(all_routes()[18], 3).fast_path is None
