"""Frames of clients and brokers, and a tap that listens to them, for tests of the wire tap."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ottla.server.testing.wire_tap.conversation import Conversation
from ottla.server.testing.wire_tap.wire import Wire
from ottla.server.testing.wire_tap.wire_request import WireConnection
from ottla.wire.headers import (
    RequestHeader,
    encode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.fetch import PartitionData as FetchedPartition
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.schema import Message

CLIENT = ("127.0.0.1", 50_001)
BROKER_PORT = 9092


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(message: Message, version: int, correlation_id: int = 1, client_id: str | None = "billing") -> bytes:
    """Return the frame of a request, with its size field."""
    header = RequestHeader(type(message).api_key, version, correlation_id, client_id)
    return framed(
        encode_request_header(header, request_header_version(type(message), version)) + message.encode(version)
    )


def answer(message: Message, version: int, correlation_id: int = 1) -> bytes:
    """Return the frame of an answer, with its size field."""
    header = encode_response_header(correlation_id, response_header_version(type(message), version))
    return framed(header + message.encode(version))


def produce(*places: tuple[str, int], records: bytes = b"r" * 10, acks: int = -1) -> ProduceRequest:
    topics: dict[str, list[PartitionProduceData]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(PartitionProduceData(index=partition, records=memoryview(records)))
    data = [TopicProduceData(name=topic, partition_data=each) for topic, each in topics.items()]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=data)


def produced(*places: tuple[str, int], error: int = 0) -> ProduceResponse:
    topics: dict[str, list[PartitionProduceResponse]] = {}
    for topic, partition in places:
        each = PartitionProduceResponse(index=partition, error_code=error, base_offset=7)
        topics.setdefault(topic, []).append(each)
    return ProduceResponse(
        responses=[TopicProduceResponse(name=topic, partition_responses=each) for topic, each in topics.items()]
    )


def fetch(*places: tuple[str, int], session_id: int = 0, session_epoch: int = -1) -> FetchRequest:
    topics: dict[str, list[FetchPartition]] = {}
    for topic, partition in places:
        each = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
        topics.setdefault(topic, []).append(each)
    return FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=topic, partitions=each) for topic, each in topics.items()],
    )


def fetched(*places: tuple[str, int], records: bytes | None = b"r" * 10, session_id: int = 0) -> FetchResponse:
    topics: dict[str, list[FetchedPartition]] = {}
    for topic, partition in places:
        each = FetchedPartition(partition_index=partition, error_code=0, high_watermark=5, records=records)
        topics.setdefault(topic, []).append(each)
    return FetchResponse(
        session_id=session_id,
        responses=[FetchableTopicResponse(topic=topic, partitions=each) for topic, each in topics.items()],
    )


class Clock:
    """Milliseconds that a test sets."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000.0

    def __call__(self) -> float:
        return self.now_ms


def connection(number: int = 1, node_id: int = 0) -> WireConnection:
    return WireConnection(number, node_id, CLIENT, BROKER_PORT, 1_000_000.0)


class Listening:
    """A tap with one connection whose bytes the test gives it, in pieces of any size."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.wire = Wire(self.clock, **options)
        self.conversation = Conversation(connection(), self.wire)

    def _in_pieces(self, take: Callable[[Any, int], None], data: bytes, cuts: tuple[int, ...]) -> None:
        ends = sorted({min(each, len(data)) for each in cuts} | {len(data)})
        start = 0
        for end in ends:
            if end > start:
                # As in a receive buffer, foreign bytes follow.
                take(bytearray(data[start:end] + b"\xff" * 3), end - start)
            start = end

    def hear(self, data: bytes, *cuts: int) -> None:
        """Let the client say something, cut at the given positions."""
        self._in_pieces(self.conversation.heard, data, cuts)

    def say(self, data: bytes, *cuts: int) -> None:
        """Let the broker say something, cut at the given positions."""
        self._in_pieces(self.conversation.said, data, cuts)
