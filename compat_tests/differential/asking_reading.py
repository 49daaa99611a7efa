"""Requests that read, for scenarios of Fetch and its neighbours."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any, NamedTuple

from compat_tests.differential.asking import produce
from compat_tests.differential.conversation import Link, Talk, Topic

from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record
from ottla.wire.schema import ZERO_UUID

MAX_BYTES = 1 << 20
BATCH_BYTES = 100  # of a batch that `fill_batches` writes
# A broker that allows little: one for all scenarios that need such limits.
SPARING = {
    "auto.create.topics.enable": "false",
    "fetch.max.bytes": "1024",
    "max.incremental.fetch.session.cache.slots": "0",
    "max.request.partition.size.limit": "2",
}
WAITS_MS = 20_000  # a long poll that the scenario ends, not the clock


class Read(NamedTuple):
    """One partition of a fetch."""

    topic: Topic
    asked: FetchPartition


def read(topic: Topic, offset: int = 0, partition: int = 0, max_bytes: int = MAX_BYTES, **fields: int) -> Read:
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, **fields)
    return Read(topic, asked)


def fetch(*reads: Read, forgotten: Iterable[tuple[Topic, int]] = (), **fields: Any) -> FetchRequest:
    """For any version: neighbours of one topic share an entry. Answers at once and without a session unless told."""
    topics = [
        FetchTopic(topic=topic.name, topic_id=topic.id, partitions=[each.asked for each in group])
        for topic, group in groupby(reads, lambda each: each.topic)
    ]
    gone = [ForgottenTopic(topic=topic.name, topic_id=topic.id, partitions=[index]) for topic, index in forgotten]
    given = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": MAX_BYTES} | fields
    return FetchRequest(topics=topics, forgotten_topics_data=gone, **given)


def nowhere(talk: Talk) -> Topic:
    """A topic that does not exist, neither by its name nor by its id."""
    return Topic(talk.name("nowhere"), bytes([7] * 16))


def stays_waiting(talk: Talk, link: Link) -> None:
    """Writes down that a request just sent is not answered, and makes sure that the broker has taken it up by then."""
    link.stays_quiet(0.03)
    talk.do(MetadataRequest(topics=[]))  # a slow broker has read what was sent before when it answers this


def a_batch(*, timestamp: int = 1000, records: int = 1, **options: Any) -> bytes:
    """Of `BATCH_BYTES` if it is one plain record."""
    value = b"v" * (BATCH_BYTES - 68)
    return encode_batch((Record(offset, timestamp + offset, None, value) for offset in range(records)), **options)


def append(talk: Talk, topic: Topic, *batches: bytes, partition: int = 0) -> None:
    """Writes each batch with a request of its own; not part of the transcript."""
    for batch in batches:
        answer = talk.do(produce(topic, batch, partition))
        assert answer.responses[0].partition_responses[0].error_code == 0, answer


def fill_batches(talk: Talk, topic: Topic, count: int, partition: int = 0) -> None:
    append(talk, topic, *[a_batch()] * count, partition=partition)


def delete_records(talk: Talk, topic: Topic, before: int, partition: int = 0) -> None:
    asked = DeleteRecordsTopic(
        name=topic.name, partitions=[DeleteRecordsPartition(partition_index=partition, offset=before)]
    )
    answer = talk.do(DeleteRecordsRequest(topics=[asked], timeout_ms=30_000))
    assert answer.topics[0].partitions[0].low_watermark == before, answer


def delete_topic(talk: Talk, topic: Topic) -> None:
    """Returns when the topic is gone and its name is free."""
    named = [DeleteTopicState(name=topic.name, topic_id=ZERO_UUID)]
    answer = talk.do(DeleteTopicsRequest(topics=named, topic_names=[topic.name], timeout_ms=30_000))
    assert answer.responses[0].error_code == 0, answer
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=ZERO_UUID, name=topic.name)], allow_auto_topic_creation=False
    )
    talk.until(asked, lambda metadata: metadata.topics[0].error_code != 0)
    new = CreatableTopic(name=topic.name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    again = CreateTopicsRequest(topics=[new], timeout_ms=30_000, validate_only=True)
    talk.until(again, lambda created: created.topics[0].error_code == 0)
