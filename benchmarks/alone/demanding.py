"""One peer asks for as much as one request can; how long does another have to wait?

The bystander sends heartbeats one after the other and notes its longest wait while the peer's request is served: that is
how long the event loop was held, and a little more. Wherever the target is missed by a little, a neighbour may be the cause.
"""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.alone.broker import Broker, running_broker
from benchmarks.alone.figures import Figure, at_most
from benchmarks.wire_client import FETCH_VERSION, PRODUCE_VERSION, Client, batch_of, frame

from ottla.wire.compression import Compression
from ottla.wire.messages.classic_group import HeartbeatRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.groups import DescribeGroupsRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

WAIT_MS_MAX = 50.0
TOPIC = "demanding"
BROKER_RESOURCE = 4
METADATA_VERSION, LIST_OFFSETS_VERSION, DESCRIBE_CONFIGS_VERSION, CREATE_TOPICS_VERSION = 9, 7, 4, 7


def figures(work: Path, quick: bool) -> Iterator[Figure]:
    del work
    rounds = 1 if quick else 3
    with running_broker() as broker:
        with Client(broker.port) as client:
            client.create_topics([TOPIC])
            topic_id = client.topic_id(TOPIC)
        for name, make in demands(topic_id).items():
            request = make()
            waits = [longest_wait_ms(broker, request) for _ in range(rounds)]
            yield at_most(f"wait beside {name}", min(waits), WAIT_MS_MAX, "ms", digits=0)


def demands(topic_id: bytes) -> dict[str, Callable[[], bytes]]:
    """Requests that ask for much, by what they ask."""
    return {
        "Metadata of 100,000 names": lambda: frame(metadata(100_000), METADATA_VERSION),
        "ListOffsets of 50,000 partitions": lambda: frame(list_offsets(50_000), LIST_OFFSETS_VERSION),
        "Fetch of 20,000 partitions": lambda: frame(fetch(topic_id, 20_000), FETCH_VERSION),
        "Produce to 9,900 partitions": lambda: frame(produce(batch_of(1), 9_900), PRODUCE_VERSION),
        "Produce of 60 MB in zstd": lambda: frame(produce(exploding(), 1), PRODUCE_VERSION),
        "DescribeConfigs of 200 brokers": lambda: frame(describe_configs(200), DESCRIBE_CONFIGS_VERSION),
        "DescribeGroups of 50,000 groups": lambda: frame(DescribeGroupsRequest(groups=names(50_000)), 5),
        "CreateTopics of 5,000 topics": lambda: frame(create_topics(5_000), CREATE_TOPICS_VERSION),
    }


def names(count: int) -> list[str]:
    return [f"n{number:06d}" for number in range(count)]


def metadata(count: int) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names(count)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def list_offsets(count: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)])


def fetch(topic_id: bytes, count: int) -> FetchRequest:
    partitions = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(count)]
    topics = [FetchTopic(topic_id=topic_id, partitions=partitions)]
    return FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=0, topics=topics)


def produce(batch: bytes, count: int) -> ProduceRequest:
    partitions = [PartitionProduceData(index=0, records=memoryview(batch)) for _ in range(count)]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=partitions)])


def exploding() -> bytes:
    return encode_batch(
        (Record(offset, 0, None, b"0" * 1000) for offset in range(60_000)), compression=Compression.ZSTD
    )


def describe_configs(count: int) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1", configuration_keys=None)
    return DescribeConfigsRequest(resources=[resource] * count)


def create_topics(count: int) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=f"c{name}", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in names(count)
    ]
    return CreateTopicsRequest(timeout_ms=60_000, topics=topics)


def longest_wait_ms(broker: Broker, request: bytes) -> float:
    heartbeat = frame(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
    served = threading.Event()
    waits: list[float] = []

    def stand_by() -> None:
        with Client(broker.port) as bystander:
            while not served.is_set():
                asked = time.perf_counter()
                bystander.ask_bytes(heartbeat)
                waits.append(time.perf_counter() - asked)

    thread = threading.Thread(target=stand_by)
    thread.start()
    try:
        with Client(broker.port) as client:
            client.ask_bytes(request)
    finally:
        served.set()
        thread.join()
    return max(waits) * 1000
