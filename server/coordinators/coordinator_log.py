"""Logs of the coordinators: adapters of an internal topic and of its partitions to this broker's partitions."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

import trio

from ottla.groupcoord.runtime.coordinator_shard import Appended
from ottla.replication.cluster.metadata_cache import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from ottla.replication.log.batch_checks import AppendOrigin
from ottla.replication.log.storage import NotCached, only_cached
from ottla.replication.partition.partition import Partition
from ottla.server.ports import BrokerParts
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.replication.log.partition_log import PartitionLog
    from ottla.replication.log.storage import FileRegion
    from ottla.replication.log.verification import VerificationGuard

READ_BYTES = 1024 * 1024
ALL_REPLICAS = -1
TRANSACTION_COMMIT_TIMEOUT_MS = 60_000
AT_ONCE_BYTES_MAX = 32 * 1024
"""So many bytes are read by the event loop itself, unless they are on the disk: a thread takes longer to begin."""

_topics_with_codecs: set[str] = set()


class InternalTopicLog:
    """Log of a coordinator, to read and append: the partitions that this broker leads of one internal topic."""

    def __init__(
        self,
        broker: BrokerParts,
        topic: str,
        *,
        partitions_wanted: Callable[[], int],
        commit_timeout_ms: Callable[[], int],
        load_codecs: Callable[[], None],
    ) -> None:
        """Create the log of internal topic `topic`; `load_codecs` is called in a thread before the first read.

        `partitions_wanted`: number of partitions while the topic is missing. `commit_timeout_ms`: limit for
        replication.
        """
        self.topic, self.broker, self._partitions_wanted = topic, broker, partitions_wanted
        self.commit_timeout_ms, self._load_codecs = commit_timeout_ms, load_codecs

    def partition_count(self) -> int:
        topic = self.broker.cluster.topics.get(self.topic)
        return self._partitions_wanted() if topic is None else len(topic.partitions)

    def is_fenced(self) -> bool:
        # Nobody replaces a broker that is alone, as in `Broker.partition`.
        return self.broker.is_in_cluster and self.broker.member.is_fenced

    def partition(self, index: int) -> InternalPartition:
        return InternalPartition(self, self.broker.partition(self.topic, index))

    def delete_records(self, partition: int, offset: int) -> None:
        """Delete a partition's records before `offset`. Raises KafkaError if this is impossible now."""
        self.broker.partition(self.topic, partition).delete_records(offset)

    async def load_codecs(self) -> None:
        """Load the codecs of the topic's records, at the first call in this process."""
        # Before the first load. It reads files or generates code, which would hold the event loop.
        if self.topic not in _topics_with_codecs:
            await self.broker.environment.run_in_thread(self._load_codecs)
            _topics_with_codecs.add(self.topic)


class InternalPartition:
    """One partition of an internal topic, while this broker leads it."""

    def __init__(self, topic_log: InternalTopicLog, partition: Partition) -> None:
        self._topic_log, self._broker, self._partition = topic_log, topic_log.broker, partition

    def append(
        self, batch: bytes, now_ms: int, *, transaction_version: int = 0, guard: object | None = None
    ) -> Appended:
        """Append a batch with acks=all. Raises KafkaError.

        Returns the batch's first offset, and its commit to await; the commit is None if the batch is committed already.
        """
        broker, partition = self._broker, self._partition
        # As in `Broker.partition`: nobody replaces a broker that is alone.
        if broker.is_in_cluster and broker.may_be_replaced_at(partition):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        # A buffer of its own, because the log writes offset and leader epoch into the header in place.
        info = partition.append_as_leader(
            memoryview(bytearray(batch)),
            required_acks=ALL_REPLICAS,
            now_ms=now_ms,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=transaction_version,
            guard=cast("VerificationGuard | None", guard),
        )
        next_offset = info.last_offset + 1
        # Where this broker has the only copy, the append is committed already, and no task has to wait.
        if partition.acknowledgement(next_offset, ALL_REPLICAS) is ErrorCode.NONE:
            return Appended(info.first_offset, None)
        # Its time runs from here on, whenever somebody comes to await it.
        deadline = trio.current_time() + self._topic_log.commit_timeout_ms() / 1000
        return Appended(info.first_offset, self._commit(next_offset, deadline))

    async def _commit(self, next_offset: int, deadline: float) -> None:
        timeout_s = max(0.0, deadline - trio.current_time())
        code = await self._broker.replicas.wait_committed(self._partition, next_offset, timeout_s=timeout_s)
        if code:
            raise KafkaError(code)

    def until_committed(self) -> Coroutine[Any, Any, None] | None:
        next_offset = self._partition.leading_log().log_end_offset
        return None if self._partition.is_held_in_sync(next_offset) else self._until_held(next_offset)

    async def _until_held(self, next_offset: int) -> None:
        """Wait until all in-sync replicas hold the records before `next_offset`.

        The in-sync replicas may be fewer than min.insync.replicas.
        """
        partition = self._partition
        while True:
            changed = trio.Event()
            partition.watchers.add(changed.set)
            try:
                if partition.is_held_in_sync(next_offset):
                    return
                await changed.wait()
            finally:
                partition.watchers.discard(changed.set)

    async def read_batches(self) -> AsyncIterator[bytes]:
        """Yield the batches up to the present end; threads read about 1 MB at a time of a long log. Raises KafkaError."""
        await self._topic_log.load_codecs()
        log = self._partition.log
        position, end_offset = log.log_start_offset, log.log_end_offset
        while position < end_offset:
            read = log.read(position, READ_BYTES, upper_bound=end_offset, at_least_one_batch=True)
            # A leader does not cut off the end of its log, so this broker does not lead the partition any more.
            if log.log_end_offset < end_offset:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{log.name} was cut off while it was read")
            if not read.region:
                return  # compaction has left nothing of the rest
            yield await self._bytes_of(log, read.region)
            # At least one offset further each time, so that this loop ends whatever the log answers.
            position = max(read.end_offset, position + 1)

    async def _bytes_of(self, log: PartitionLog, region: FileRegion | bytes) -> bytes:
        if isinstance(region, bytes):
            return region
        try:
            found = await self._read(region)
        except OSError as error:
            raise log.storage_error(error) from None
        # The file has less than its index says. A load of half of it would silently lose groups.
        if len(found) < region.length:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.name}: the file ends early")
        return found

    async def _read(self, region: FileRegion) -> bytes:
        if region.length <= AT_ONCE_BYTES_MAX:
            with contextlib.suppress(NotCached), only_cached:
                return region.read()
        found: bytes = await self._broker.environment.run_in_thread(region.read)
        return found


def offsets_topic(broker: BrokerParts, load_codecs: Callable[[], None]) -> InternalTopicLog:
    """Return `__consumer_offsets` as the log of the group coordinator."""
    return InternalTopicLog(
        broker,
        GROUP_METADATA_TOPIC,
        partitions_wanted=lambda: broker.config.groups.offsets_topic_num_partitions,
        commit_timeout_ms=lambda: broker.config.groups.offsets_commit_timeout_ms,
        load_codecs=load_codecs,
    )


def share_state_topic(broker: BrokerParts) -> InternalTopicLog:
    """Return `__share_group_state` as the log of the share coordinator."""
    from ottla.groupcoord.share.coordinator.records import (
        load_codecs,  # here, because most brokers have no share groups
    )

    return InternalTopicLog(
        broker,
        SHARE_GROUP_STATE_TOPIC,
        partitions_wanted=lambda: broker.config.share_coordinator.share_coordinator_state_topic_num_partitions,
        commit_timeout_ms=lambda: broker.config.share_coordinator.share_coordinator_write_timeout_ms,
        load_codecs=load_codecs,
    )


def transaction_topic(broker: BrokerParts) -> InternalTopicLog:
    """Return `__transaction_state` as the log of the transaction coordinator."""
    from ottla.groupcoord.transactions.records import load_codecs  # here, because most brokers have no transactions

    return InternalTopicLog(
        broker,
        TRANSACTION_STATE_TOPIC,
        partitions_wanted=lambda: broker.config.transactions.transaction_state_log_num_partitions,
        # Kafka waits as long as the transaction may last, which a producer sets to a minute if it does not care.
        commit_timeout_ms=lambda: TRANSACTION_COMMIT_TIMEOUT_MS,
        load_codecs=load_codecs,
    )
