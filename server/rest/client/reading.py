"""Fetches from the leaders of partitions, and the offsets that groups have committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import trio

from ottla.server.cli.client.cluster import by_topic
from ottla.server.cli.client.connection import ANSWER_TIMEOUT_S
from ottla.server.rest.client.cluster import MOVED, KafkaCluster, Partition, Wait
from ottla.server.rest.errors import Code, KafkaFailure, RestError, check
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import Record, crc_is_valid, iter_batches

FETCH_BYTES, PARTITION_BYTES = 4 << 20, 1 << 20
DECOMPRESSED_BYTES_MAX = 32 << 20
"""Of one batch; Kafka's own limits let a producer write what is larger only on purpose."""

_FETCH_MAX_VERSION, _OFFSETS_MAX_VERSION = 12, 9  # later ones name topics by their ids


class Fetched(NamedTuple):
    """Data fetched from one partition. `records` is a copy. `is_out_of_range`: the requested offset does not exist."""

    place: Partition
    records: bytes
    is_out_of_range: bool = False


async def fetch(
    cluster: KafkaCluster, positions: Mapping[Partition, int], wait_s: float, bytes_max: int
) -> list[Fetched]:
    """Fetch records from the partitions' leaders. Raises RestError.

    A leader without records waits up to `wait_s` seconds. Partitions that have moved to another leader are omitted;
    their leaders are looked up for the next fetch.
    """
    found: list[Fetched] = []
    failures: list[RestError] = []

    async def ask(leader: int, places: Sequence[Partition]) -> None:
        request = _request({each: positions[each] for each in places}, wait_s, bytes_max)
        try:
            parts = await cluster.ask_waiting(
                Wait.READ, leader, request, _take, at_most=_FETCH_MAX_VERSION, timeout_s=wait_s + ANSWER_TIMEOUT_S
            )
            found.extend(_judged(cluster, parts))
        except RestError as error:
            for topic, _ in places:
                cluster.forget_topic(topic)
            failures.append(error)

    leaders = await cluster.leaders(list(positions))
    async with trio.open_nursery() as nursery:
        for leader, places in leaders.items():
            nursery.start_soon(ask, leader, places)
    if failures and not found:
        raise failures[0]
    return found


def _request(positions: Mapping[Partition, int], wait_s: float, bytes_max: int) -> FetchRequest:
    topics = [
        FetchTopic(
            topic=topic,
            partitions=[
                FetchPartition(
                    partition=each,
                    fetch_offset=positions[topic, each],
                    partition_max_bytes=min(PARTITION_BYTES, bytes_max),
                )
                for each in numbers
            ],
        )
        for topic, numbers in by_topic(list(positions)).items()
    ]
    limit = min(FETCH_BYTES, bytes_max)
    return FetchRequest(max_wait_ms=int(wait_s * 1000), min_bytes=1, max_bytes=limit, topics=topics)


def _take(answer: Any) -> list[tuple[Partition, int, bytes]]:
    check(answer.error_code)
    return [
        ((topic.topic, part.partition_index), part.error_code, bytes(part.records or b""))
        for topic in answer.responses
        for part in topic.partitions
    ]


def _judged(cluster: KafkaCluster, parts: Sequence[tuple[Partition, int, bytes]]) -> Iterator[Fetched]:
    for place, code, records in parts:
        error = ErrorCode.of(code)
        if error == ErrorCode.OFFSET_OUT_OF_RANGE:
            yield Fetched(place, b"", is_out_of_range=True)
        elif error in MOVED:
            cluster.forget_topic(place[0])
        elif error:
            raise KafkaFailure(code)
        else:
            yield Fetched(place, records)


class Step(NamedTuple):
    """Step in reading a batch: the next record, or None at the end of the batch, and the offset after it."""

    record: Record | None
    next_offset: int


def records_of(fetched: Fetched, begin: int) -> Iterator[Step]:
    """Yield records from the offset `begin` on. Raises RestError for a batch that is damaged or too large."""
    what = f"{fetched.place[0]}-{fetched.place[1]}"
    try:
        for header, start, end in iter_batches(fetched.records):
            if header.next_offset <= begin:
                continue
            if not crc_is_valid(fetched.records, start, end):
                raise RestError(Code.KAFKA, f"The batch at offset {header.base_offset} of {what} is damaged.")
            if not header.is_control:
                for record in decode_records(fetched.records, start, DECOMPRESSED_BYTES_MAX, header=header):
                    if record.offset >= begin:
                        yield Step(record, record.offset + 1)
            yield Step(None, header.next_offset)
    except KafkaError as error:
        raise RestError(Code.KAFKA, f"Records of {what} cannot be read: {error}") from None


# --- committed offsets


class Committed(NamedTuple):
    """Committed offset with its metadata."""

    offset: int
    metadata: str | None


async def committed_of(
    cluster: KafkaCluster, group: str, partitions: Sequence[Partition] | None
) -> dict[Partition, Committed]:
    """Return the committed offsets of a group. `partitions` None: those of all partitions. Raises RestError."""
    topics = None if partitions is None else by_topic(partitions)
    request = OffsetFetchRequest(
        group_id=group,
        topics=None if topics is None else [OffsetFetchRequestTopic(name=n, partition_indexes=p) for n, p in topics.items()],
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=None
                if topics is None
                else [OffsetFetchRequestTopics(name=n, partition_indexes=p) for n, p in topics.items()],
            )
        ],
    )  # fmt: skip

    def take(answer: Any) -> dict[Partition, Committed]:
        told = answer.groups[0] if answer.groups else answer
        check(told.error_code)
        found = {}
        for topic in told.topics:
            for each in topic.partitions:
                check(each.error_code)
                if each.committed_offset >= 0:
                    found[topic.name, each.partition_index] = Committed(each.committed_offset, each.metadata)
        return found

    return await cluster.ask_coordinator(group, request, take, at_most=_OFFSETS_MAX_VERSION)


async def commit(
    cluster: KafkaCluster,
    group: str,
    offsets: Mapping[Partition, Committed],
    member_id: str = "",
    generation_id: int = -1,
) -> None:
    """Commit offsets as member `member_id`; if the id is empty, for a group without members. Raises RestError."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=each,
                    committed_offset=offsets[topic, each].offset,
                    committed_metadata=offsets[topic, each].metadata,
                )
                for each in numbers
            ],
        )
        for topic, numbers in by_topic(list(offsets)).items()
    ]
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation_id, member_id=member_id, topics=topics
    )

    def take(answer: Any) -> None:
        told = {
            (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
        }
        for place in offsets:
            check(told.get(place, ErrorCode.UNKNOWN_SERVER_ERROR))

    await cluster.ask_coordinator(group, request, take, at_most=_OFFSETS_MAX_VERSION)
