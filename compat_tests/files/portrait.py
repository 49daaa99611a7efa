"""Everything a broker tells of its partitions and groups, so that two brokers of one data directory can be compared.

The questions are the same, in the same versions, for Ottla and for Apache Kafka 3.9 and 4. Left out of the answers is
what is no part of the data:

- throttle times, addresses and the order of topics;
- the present leader's epoch, which rises with every start. In force at an offset that no record has yet, it is all that an
  answer can give there;
- the front of a batch that does not fit into an answer, which Kafka may send and every client skips;
- aborted transactions that begin behind what was sent. Kafka lists those too, up to the next entry of its index.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from compat_tests.support.wire_client import WireClient

from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_transactions import DescribeProducersRequest
from ottla.wire.messages.describe_transactions import TopicRequest as ProducersOfTopic
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.groups import DescribeGroupsRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.log_dirs import DescribeLogDirsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.messages.offsets import OffsetFetchRequest
from ottla.wire.records import iter_batches
from ottla.wire.schema import ZERO_UUID, Message, Struct

VERSIONS = {
    "ProduceRequest": 8,
    "FetchRequest": 11,
    "ListOffsetsRequest": 7,
    "MetadataRequest": 12,
    "OffsetFetchRequest": 7,
    "DescribeGroupsRequest": 5,
    "DescribeLogDirsRequest": 4,
    "DescribeConfigsRequest": 4,
    "DescribeProducersRequest": 0,
    "OffsetForLeaderEpochRequest": 4,
    "InitProducerIdRequest": 4,
    "DeleteRecordsRequest": 2,
    "OffsetCommitRequest": 7,
}
UNCOMMITTED, COMMITTED = 0, 1
READ_BYTES = 300_000
DYNAMIC_TOPIC_CONFIG = 1
SHOWN = ("base_offset", "next_offset", "max_timestamp", "records_count", "partition_leader_epoch")


class Asker(WireClient):
    """One connection, on which one question is answered after the other, in the versions that are portrayed."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, client_id="portrait")

    def ask(self, request: Message, version: int | None = None) -> Any:
        return super().ask(request, VERSIONS[type(request).__name__] if version is None else version)


def plain(data: Any, leave_out: Iterable[str] = ()) -> Any:
    """An answer as dicts and lists, without some of its fields."""
    without = {"throttle_time_ms", *leave_out}
    if isinstance(data, Struct):
        return {name: plain(getattr(data, name), without) for name in data.wire_fields if name not in without}
    if isinstance(data, list):
        return [plain(each, without) for each in data]
    return bytes(data) if isinstance(data, bytearray | memoryview) else data


def portrait(
    address: tuple[str, int], topics: Mapping[str, int], groups: Iterable[str], new_groups: Iterable[str] = ()
) -> dict[str, Any]:
    """The answers, each under the name of its question; `topics` has their numbers of partitions.

    Of `new_groups`, those of KIP-848, only the offsets are asked.
    """
    answers: dict[str, Any] = {}
    with Asker(address) as asker:
        answers["topics"] = _topics(asker, topics)
        answers["sizes"] = _sizes(asker, topics)
        for topic, count in topics.items():
            answers[f"settings of {topic}"] = _settings(asker, topic)
            for partition in range(count):
                answers |= _partition(asker, topic, partition)
        for group in (*groups, *new_groups):
            answers[f"offsets of {group}"] = _offsets(asker, group)
        for group in groups:
            described = asker.ask(DescribeGroupsRequest(groups=[group]))
            answers[f"group {group}"] = plain(described, ["authorized_operations"])
    return answers


def _topics(asker: Asker, topics: Iterable[str]) -> Any:
    asked = [MetadataRequestTopic(topic_id=ZERO_UUID, name=name) for name in topics]
    answer = asker.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
    found = plain(answer, ["host", "port", "leader_epoch", "controller_id"])
    found["topics"].sort(key=lambda each: each["name"])
    return found


def _sizes(asker: Asker, topics: Iterable[str]) -> dict[str, int]:
    answer = asker.ask(DescribeLogDirsRequest(topics=None))
    return {
        f"{topic.name}-{partition.partition_index}": partition.partition_size
        for directory in answer.results
        for topic in directory.topics
        for partition in topic.partitions
        if topic.name in topics
    }


def _settings(asker: Asker, topic: str) -> dict[str, str | None]:
    """Those that the topic has of its own."""
    asked = DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=None)
    (found,) = asker.ask(DescribeConfigsRequest(resources=[asked])).results
    return {each.name: each.value for each in found.configs if each.config_source == DYNAMIC_TOPIC_CONFIG}


def _partition(asker: Asker, topic: str, partition: int) -> dict[str, Any]:
    name = f"{topic}-{partition}"
    reads = list(_reads(asker, topic, partition, UNCOMMITTED))
    batches = [batch for read in reads for batch in read["records"]]
    answers = {
        f"fetch of {name}": reads,
        f"committed fetch of {name}": list(_reads(asker, topic, partition, COMMITTED)),
        f"producers of {name}": _producers(asker, topic, partition),
    }
    stamps = sorted({batch["max_timestamp"] for batch in batches})
    for timestamp in (-1, -2, -3, *(stamp + delta for stamp in stamps[:: len(stamps) // 8 + 1] for delta in (0, 1))):
        for isolation in (UNCOMMITTED, COMMITTED):
            asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            of_topic = ListOffsetsTopic(name=topic, partitions=[asked])
            answer = asker.ask(ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[of_topic]))
            left_out = ["leader_epoch"] if timestamp == -1 or not batches else []
            answers[f"offset of {name} at {timestamp}, isolation {isolation}"] = plain(answer.topics, left_out)
    for epoch in {batch["partition_leader_epoch"] for batch in batches}:
        asked_epoch = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)
        of_topic_epoch = OffsetForLeaderTopic(topic=topic, partitions=[asked_epoch])
        answer = asker.ask(OffsetForLeaderEpochRequest(topics=[of_topic_epoch]))
        answers[f"end of epoch {epoch} of {name}"] = plain(answer)
    return answers


def _reads(asker: Asker, topic: str, partition: int, isolation: int) -> Iterator[dict[str, Any]]:
    """The same reads from the log's start to where it ends for this isolation level."""
    offset = _offset(asker, topic, partition, -2, isolation)
    end = _offset(asker, topic, partition, -1, isolation)
    while True:
        asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=READ_BYTES)
        of_topic = FetchTopic(topic=topic, partitions=[asked])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=isolation, topics=[of_topic])
        (found,) = asker.ask(request).responses[0].partitions
        answer = plain(found)
        answer["records"] = _batches(found.records)
        answer["asked for"] = offset
        offset = answer["records"][-1]["next_offset"] if answer["records"] else end
        if answer["aborted_transactions"] is not None:
            touching = [each for each in answer["aborted_transactions"] if each["first_offset"] < offset]
            answer["aborted_transactions"] = sorted(touching, key=lambda each: each["first_offset"])
        yield answer
        if offset >= end:
            return


def _offset(asker: Asker, topic: str, partition: int, timestamp: int, isolation: int) -> int:
    asked = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=timestamp)]
    )
    answer = asker.ask(ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[asked]))
    (found,) = answer.topics[0].partitions
    assert found.error_code == 0, f"{topic}-{partition}: {found}"
    return int(found.offset)


def _batches(records: Any) -> list[dict[str, Any]]:
    """Every whole batch: where it stands, and a digest of its bytes."""
    data = bytes(records or b"")
    return [
        {name: getattr(header, name) for name in SHOWN} | {"sha256": hashlib.sha256(data[start:end]).hexdigest()}
        for header, start, end in iter_batches(data)
    ]


def _producers(asker: Asker, topic: str, partition: int) -> Any:
    answer = asker.ask(DescribeProducersRequest(topics=[ProducersOfTopic(name=topic, partition_indexes=[partition])]))
    found = plain(answer.topics[0].partitions[0])
    found["active_producers"].sort(key=lambda each: each["producer_id"])
    return found


def _offsets(asker: Asker, group: str) -> Any:
    answer = plain(asker.ask(OffsetFetchRequest(group_id=group, topics=None)))
    for topic in answer["topics"]:
        topic["partitions"].sort(key=lambda each: each["partition_index"])
    answer["topics"].sort(key=lambda each: each["name"])
    return answer
