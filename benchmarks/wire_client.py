"""A blocking client on Ottla's own messages, and the frames that the C programs send over and over."""

import os
import socket
import struct
import time
from typing import Any

from compat_tests.support.raw import receive_frame
from compat_tests.support.wire_client import WireClient, decode_response, encode_frame

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.elect_leaders import ElectLeadersRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import RECORDS_OFFSET, Record
from ottla.wire.schema import ZERO_UUID, Message

# What Java clients of the 3.9 line send, and with them Spark.
PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION = 11, 17, 12
CREATE_TOPICS_VERSION, DELETE_TOPICS_VERSION, API_VERSIONS_VERSION, ELECT_LEADERS_VERSION = 7, 6, 3, 2

CLIENT_ID = "bench"
RECORD_BYTES = 1024
RECORD_OVERHEAD_BYTES = 10  # lengths, deltas and counts around the value of a record
LENGTH_BYTES = 4
NO_LEADER_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def frame(request: Message, version: int, correlation_id: int = 0) -> bytes:
    """A whole request, with its length in front."""
    return encode_frame(request, version, correlation_id, CLIENT_ID)


def read_frame(connection: socket.socket) -> bytes:
    """A whole response, with its length in front."""
    payload = receive_frame(connection)
    if payload is None:
        raise ConnectionError("the broker closed the connection")
    return struct.pack(">i", len(payload)) + payload


def parse(response: bytes, response_class: type[Message], version: int) -> Any:
    return decode_response(response, response_class, version, LENGTH_BYTES)[1]


class Client(WireClient):
    """One connection; every call is one request and its answer."""

    def __init__(self, port: int, timeout_s: float = 60.0) -> None:
        super().__init__(("127.0.0.1", port), client_id=CLIENT_ID, timeout_s=timeout_s)

    def ask_bytes(self, request: bytes) -> bytes:
        self.socket.sendall(request)
        return read_frame(self.socket)

    def api_versions(self) -> Any:
        request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
        return self.ask(request, API_VERSIONS_VERSION)

    def create_topics(self, names: list[str], partitions: int = 1, replicas: int = 1) -> None:
        sizes = {"num_partitions": partitions, "replication_factor": replicas}
        topics = [CreatableTopic(name=name, assignments=[], configs=[], **sizes) for name in names]
        request = CreateTopicsRequest(topics=topics, timeout_ms=60000)
        answer = self.ask(request, CREATE_TOPICS_VERSION)
        _must_be_zero(topic.error_code for topic in answer.topics)

    def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=60000)
        answer = self.ask(request, DELETE_TOPICS_VERSION)
        _must_be_zero(topic.error_code for topic in answer.responses)

    def elect_preferred_leaders(self) -> None:
        """Of all partitions, where there is another."""
        request = ElectLeadersRequest(topic_partitions=None)
        self.ask(request, ELECT_LEADERS_VERSION)

    def metadata(self, topics: list[str] | None = None) -> MetadataResponse:
        """Of these topics, or of everything."""
        answer: MetadataResponse = parse(self.ask_bytes(metadata_frame(topics)), MetadataResponse, METADATA_VERSION)
        return answer

    def topic_id(self, name: str) -> bytes:
        return next(topic.topic_id for topic in self.metadata().topics if topic.name == name)

    def produce(self, request: bytes, patience_s: float = 10.0) -> bytes:
        """Sends a produce request that is ready as bytes; returns the answer's bytes, if it is no error.

        A new topic's leader may not be in office yet: then it is sent again.
        """
        deadline = time.monotonic() + patience_s
        while True:
            response = self.ask_bytes(request)
            answer = parse(response, ProduceResponse, PRODUCE_VERSION)
            codes = [partition.error_code for topic in answer.responses for partition in topic.partition_responses]
            if not any(code in NO_LEADER_YET for code in codes) or time.monotonic() > deadline:
                break
            time.sleep(0.001)
        _must_be_zero(codes)
        return response


def batch_of(size: int) -> bytes:
    """A batch of as many 1 KiB records of random bytes as go into this size, but of one at least."""
    count = max(1, (size - RECORDS_OFFSET) // (RECORD_BYTES + RECORD_OVERHEAD_BYTES))
    now_ms = time.time_ns() // 1_000_000
    return encode_batch(Record(offset, now_ms, None, os.urandom(RECORD_BYTES)) for offset in range(count))


def produce_frame(topic: str, batch: bytes, acks: int = -1, correlation_id: int = 0, index: int = 0) -> bytes:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=memoryview(batch))])
    request = ProduceRequest(acks=acks, timeout_ms=30000, topic_data=[data])
    return frame(request, PRODUCE_VERSION, correlation_id)


def fetch_frame(topic_id: bytes, max_bytes: int, index: int = 0, offset: int = 0) -> bytes:
    partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [FetchTopic(topic_id=topic_id, partitions=[partition])]
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=max_bytes, topics=topics)
    return frame(request, FETCH_VERSION)


def metadata_frame(topics: list[str] | None = None) -> bytes:
    named = None if topics is None else [MetadataRequestTopic(topic_id=ZERO_UUID, name=topic) for topic in topics]
    return frame(MetadataRequest(topics=named, allow_auto_topic_creation=False), METADATA_VERSION)


def _must_be_zero(error_codes: Any) -> None:
    if wrong := [code for code in error_codes if code]:
        raise RuntimeError(f"the broker answered with error code {wrong[0]}")
