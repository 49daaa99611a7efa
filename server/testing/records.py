"""Topics and records of a lab's Kafka: created, written and read inside the process, as clients would."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.server.testing.errors import LabError, check
from ottla.server.testing.transactions import until_marked
from ottla.wire.checksum import murmur2
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record as EncodedRecord
from ottla.wire.records import iter_batches

if TYPE_CHECKING:
    from ottla.replication.partition.partition import Partition
    from ottla.server.testing.world.world import World

BY_NAME = 12  # the last version of Produce that names topics and not their ids
READ_BYTES = 1 << 20
TIMEOUT_MS = 30_000


class Record(NamedTuple):
    """A record and its place. `timestamp`: in ms since 1970. `headers`: pairs of name and value."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def json(self) -> Any:
        """Parse the value as JSON. Raises LabError if it is none."""
        try:
            return json.loads(self.value or b"")
        except ValueError as error:
            place = f"{self.topic}-{self.partition} at offset {self.offset}"
            raise LabError(f"The value of {place} is no JSON: {error}.") from None


def read(leading: Partition, topic: str, partition: int, read_committed: bool) -> Iterator[Record]:
    """Yield the records of a partition that its leader lets consumers read, from the first one on."""
    offset = leading.leading_log().log_start_offset
    while True:
        found = leading.read(offset, READ_BYTES, read_committed=read_committed, at_least_one_batch=True)
        data = found.records if isinstance(found.records, bytes) else found.records.read()
        aborted = sorted(found.aborted_transactions or (), key=attrgetter("first_offset"))
        left_out: set[int] = set()
        next_offset = offset
        for header, start, end in iter_batches(data):
            next_offset = header.next_offset
            while aborted and aborted[0].first_offset < next_offset:
                left_out.add(aborted.pop(0).producer_id)
            if header.is_control:
                left_out.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in left_out):
                for each in decode_records(data[start:end]):
                    if each.offset >= offset:
                        headers = tuple((name.decode("utf-8", "replace"), value) for name, value in each.headers)
                        yield Record(topic, partition, each.offset, each.timestamp, each.key, each.value, headers)
        if next_offset == offset:
            return
        offset = next_offset


async def create_topic(
    world: World, name: str, partitions: int, replication_factor: int | None, settings: Mapping[str, str]
) -> None:
    """Create a topic, and wait until all brokers know it. `replication_factor`: None for the default. Raises KafkaError."""
    wanted = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1 if replication_factor is None else replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
    )
    answer = await world.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS))
    check(answer.topics[0].error_code, answer.topics[0].error_message)
    await world.until_shown(name)


def partition_counts(world: World) -> dict[str, int]:
    """Return the number of partitions of each topic, without internal topics."""
    known = world.any_node().serving().cluster.topics
    return {name: len(state.partitions) for name, state in sorted(known.items()) if not name.startswith("__")}


async def append(world: World, topic: str, records: Sequence[Record], partition: int | None, acks: int) -> list[Record]:
    """Append records as one batch; return them with their places. `partition`: None to choose it. Raises KafkaError."""
    if not records:
        raise LabError(f"Nothing was given to produce to {topic}; name one value or more.")
    at = _chosen(world, topic, records[0].key) if partition is None else partition
    encoded = [
        EncodedRecord(n, each.timestamp, each.key, each.value, tuple((name.encode(), of) for name, of in each.headers))
        for n, each in enumerate(records)
    ]
    data = PartitionProduceData(index=at, records=memoryview(bytearray(encode_batch(encoded))))
    topic_data = [TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(acks=acks, timeout_ms=TIMEOUT_MS, topic_data=topic_data)
    answer = await world.ask(request, world.leader(topic, at), version=BY_NAME)
    if answer is None:  # acks=0: the broker tells no offset
        return [each._replace(partition=at) for each in records]
    told = answer.responses[0].partition_responses[0]
    check(told.error_code, told.error_message)
    return [each._replace(partition=at, offset=told.base_offset + n) for n, each in enumerate(records)]


def _chosen(world: World, topic: str, key: bytes | None) -> int:
    """Choose a partition as Java's producer does for a key; without one they take turns."""
    count = partition_counts(world).get(topic)
    if count is None:
        raise _unknown(topic)
    if key is not None:
        return (murmur2(key) & 0x7FFFFFFF) % count
    world.produced += 1
    return (world.produced - 1) % count


async def read_all(world: World, topic: str, partition: int | None, read_committed: bool) -> list[Record]:
    """Return the records of a partition, or of all partitions merged by their timestamps. Raises LabError."""
    state = world.any_node().serving().cluster.topics.get(topic)
    if state is None:
        raise _unknown(topic)
    if read_committed:
        await until_marked(world, topic)
    wanted = range(len(state.partitions)) if partition is None else [partition]
    leaders = [(index, world.leader(topic, index).serving().partition(topic, index)) for index in wanted]
    found = [list(read(leader, topic, index, read_committed)) for index, leader in leaders]
    return list(heapq.merge(*found, key=attrgetter("timestamp")))


def _unknown(topic: str) -> LabError:
    return LabError(f"There is no topic {topic}; kafka.topic({topic!r}) makes it.")


def as_bytes(value: bytes | str | None) -> bytes | None:
    """Encode a text as UTF-8; leave bytes and None as they are. Raises LabError for anything else."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise LabError(f"{value!r} is neither bytes nor text; encode it first, for example by json.dumps.")
