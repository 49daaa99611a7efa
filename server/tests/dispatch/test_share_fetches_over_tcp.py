"""Share groups from the socket to the disk and back: a broker with its share coordinator, which is stopped and started."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from ottla.replication.log.tests.logs import batch
from ottla.server.broker import Broker
from ottla.server.config.broker_config import load_config
from ottla.server.dispatch.dispatch import response_class_of
from ottla.server.serving import serve
from ottla.server.serving_state import Stop
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from ottla.wire.messages import share_fetch as fetching
from ottla.wire.messages import share_group_state as initializing
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.share_fetch import ShareFetchRequest
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import iter_batches
from ottla.wire.schema import Message

ACCEPT = 1
FINAL_EPOCH = -1


class Client:
    """One connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream

    async def ask(self, request: Message, version: int) -> Any:
        header = RequestHeader(request.api_key, version, 1, "test")
        body = encode_request_header(header, request_header_version(type(request), version)) + request.encode(version)
        await self.stream.send_all(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", await self._receive(4))
        answer = await self._receive(size)
        answer_class = response_class_of(type(request))
        header_version = response_header_version(answer_class, version)
        _, start = decode_response_header(answer, 0, len(answer), header_version)
        return answer_class.decode(answer, version, start, len(answer))

    async def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += await self.stream.receive_some(size - len(data))
        return data


@asynccontextmanager
async def broker_on(directory: Path) -> AsyncIterator[tuple[Broker, Client]]:
    config = load_config(
        {
            "log.dirs": str(directory),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "share.coordinator.state.topic.num.partitions": "2",
        }
    )
    stop, ready, brokers = Stop(), trio.Event(), []

    def on_ready(broker: Broker) -> None:
        brokers.append(broker)
        ready.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve, config, stop=stop, on_ready=on_ready))
        await ready.wait()
        async with await trio.open_tcp_stream("127.0.0.1", brokers[0].listeners[0].port) as stream:
            yield brokers[0], Client(stream)
        stop.requested.set()


async def initialize(broker: Broker, topic_id: bytes) -> None:
    """Initialize share partitions, as the group coordinator does when members have subscribed."""
    await broker.ensure_internal_topic("__share_group_state")
    partition = initializing.InitializeStatePartition(partition=0, state_epoch=0, start_offset=0)
    request = initializing.InitializeShareGroupStateRequest(
        group_id="g", topics=[initializing.InitializeStateData(topic_id=topic_id, partitions=[partition])]
    )
    for _ in range(100):
        answer: Any = broker.share_coordinator.initialize(request, api_version=0)
        error = answer.results[0].partitions[0].error_code
        if error not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            break
        await trio.testing.wait_all_tasks_blocked(0.001)
    assert error == ErrorCode.NONE


def request_of(topic_id: bytes, epoch: int, *said: tuple[int, int], member: str = "member") -> ShareFetchRequest:
    batches = [
        fetching.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[ACCEPT])
        for first, last in said
    ]
    partition = fetching.FetchPartition(partition_index=0, acknowledgement_batches=batches)
    return ShareFetchRequest(
        group_id="g",
        member_id=member,
        share_session_epoch=epoch,
        max_wait_ms=10_000,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=4,
        batch_size=10,
        topics=[fetching.FetchTopic(topic_id=topic_id, partitions=[partition])],
        forgotten_topics_data=[],
    )


async def fetch(client: Client, topic_id: bytes, epoch: int, *said: tuple[int, int], member: str = "member") -> Any:
    answer = await client.ask(request_of(topic_id, epoch, *said, member=member), 2)
    assert answer.error_code == ErrorCode.NONE
    (topic,) = answer.responses
    (data,) = topic.partitions
    assert (data.error_code, data.acknowledge_error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    return data


def offsets(records: Any) -> list[int]:
    data = bytes(records)
    return [record.offset for _, start, end in iter_batches(data) for record in decode_records(data[start:end])]


async def make_topic(client: Client) -> bytes:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    created = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    return bytes(created.topics[0].topic_id)


async def produce(client: Client, count: int) -> None:
    data = PartitionProduceData(index=0, records=bytes(batch(*[1] * count)))
    produced = TopicProduceData(name="t", partition_data=[data])
    await client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[produced]), 9)


async def test_records_are_free_again_when_the_connection_of_their_holder_ends(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as (broker, client):
        topic_id = await make_topic(client)
        await initialize(broker, topic_id)
        await produce(client, 5)
        async with await trio.open_tcp_stream("127.0.0.1", broker.listeners[0].port) as stream:
            assert offsets((await fetch(Client(stream), topic_id, 0)).records) == [0, 1, 2, 3, 4]
        data = await fetch(client, topic_id, 0, member="other")
        assert [(each.first_offset, each.last_offset, each.delivery_count) for each in data.acquired_records] == [
            (0, 4, 2)
        ]


async def test_a_group_goes_on_where_it_was_after_a_restart(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as (broker, client):
        topic_id = await make_topic(client)
        await initialize(broker, topic_id)
        for _ in range(3):
            await produce(client, 5)
        data = await fetch(client, topic_id, 0)
        assert [(each.first_offset, each.last_offset) for each in data.acquired_records] == [(0, 4)]
        assert offsets(data.records) == [0, 1, 2, 3, 4]
        data = await fetch(client, topic_id, 1, (0, 2))
        assert offsets(data.records) == [5, 6, 7, 8, 9]
        assert (await client.ask(request_of(topic_id, FINAL_EPOCH), 2)).error_code == ErrorCode.NONE
    async with broker_on(tmp_path) as (_, client):
        data = await fetch(client, topic_id, 0)
        acquired = [(each.first_offset, each.last_offset, each.delivery_count) for each in data.acquired_records]
        # What was held when the session ended was given back, and that was stored.
        assert acquired == [(3, 9, 2)]
        assert offsets(data.records) == list(range(10))
