"""The reader of one fetch's partitions: it knows the client and its rights, and notes the progress of a follower.

Rights: consumers may read topics for which they have READ, replicas everything if they have CLUSTER_ACTION.

A response holds regions of log files. Each region keeps its file open until the peer has received it, which may take long.
All responses together may hold a number of regions, and one response may take half of those that are left. When it has taken
them, it is full, as if fetch.max.bytes were reached: the other partitions come with the next fetch. If no region is left
at all, one partition is read into memory, so that no response is empty for want of files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ottla.replication.log.storage import FileRegion, NotCached
from ottla.replication.partition.fetch_session import INITIAL_EPOCH
from ottla.replication.partition.followers import UNKNOWN_BROKER_EPOCH
from ottla.replication.partition.partition import NO_LEADER_EPOCH
from ottla.replication.partition.reading import ABORTED_MAX
from ottla.replication.partition.replica_selector import in_same_rack
from ottla.server.api.fetch.partition_answers import PartitionRead, aborted, failed_read, without_records
from ottla.server.dispatch.access import CLUSTER_NAME, AclOperation, ResourceType, may, may_on_cluster
from ottla.server.network.transport import widen_for_replica
from ottla.server.ports import BrokerParts
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.fetch import EpochEndOffset, FetchPartition, FetchRequest, PartitionData
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.replication.log.descriptors import Descriptors
    from ottla.replication.partition.idle_partitions import FetchTarget
    from ottla.replication.partition.partition import Partition
    from ottla.replication.partition.reading import ReadInfo
    from ottla.server.dispatch.access import Authorizer, Guarded
    from ottla.server.dispatch.context import RequestContext

# Few, because these bytes take memory until the peer has received them.
BYTES_WITHOUT_FILES = 64 * 1024
new_tuple = tuple.__new__  # past NamedTuple's keyword handling
READ_COMMITTED = 1
DOWN_CONVERTED_BELOW = 4
READ_FROM_FOLLOWERS_SINCE = 11
REPLICA_STATE_SINCE = 15
NO_FAILURES = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors that are not the broker's failure and not counted as failed fetches (Kafka's ReplicaManager.readFromLog)."""


class FetchRights:
    """Rights of one fetch's client to topics. Each is decided a single time, even if the fetch waits, as in Kafka."""

    __slots__ = ("_context", "_decisions", "_is_follower", "rules")

    def __init__(self, context: RequestContext[Guarded], authorizer: Authorizer, *, is_follower: bool) -> None:
        self._context, self._is_follower = context, is_follower
        self._decisions: dict[str, bool] = {}
        # The client and the version of the rules: with others the decisions may be different.
        self.rules = (context.principal, context.client_host, authorizer.version)

    def refuse(self, topic: str | None) -> bool:
        """True if the client may not read the topic. An unknown topic (None) is never refused to a consumer."""
        name = CLUSTER_NAME if self._is_follower else topic
        if name is None:
            return False
        is_refused = self._decisions.get(name)
        if is_refused is None:
            is_refused = self._decisions[name] = not self._may_read(name)
        return is_refused

    def _may_read(self, name: str) -> bool:
        if self._is_follower:
            return may_on_cluster(self._context, AclOperation.CLUSTER_ACTION)
        return may(self._context, AclOperation.READ, ResourceType.TOPIC, name)


class LimitsRegions:
    """Base class of readers that limits the number of file regions in a response.

    It is a base class because calls to a separate object would be slower.
    """

    __slots__ = ("_descriptors", "_regions_max", "_regions_taken")

    def __init__(self, descriptors: Descriptors) -> None:
        self._descriptors = descriptors
        self._regions_max = self._regions_taken = 0

    def take_share_of_regions(self) -> None:
        # Half, so that concurrent responses get some, too. Rounded up, so that the last region can be taken.
        self._regions_max = (self._descriptors.regions_left + 1) // 2
        # The regions of earlier reads of this request have been dropped by now.
        self._regions_taken = 0

    @property
    def is_short_of_files(self) -> bool:
        """True if this response has as many file regions (parts sent straight from a file) as it may have."""
        return self._regions_taken >= self._regions_max

    def with_files(self, room: int, *, is_first: bool) -> int:
        """Return the number of bytes that may be read from a partition: `room` if a file region is left.

        Otherwise at most BYTES_WITHOUT_FILES for the first partition with records, and 0 for the others.
        """
        if self._regions_taken < self._regions_max:
            return room
        return min(room, BYTES_WITHOUT_FILES) if is_first else 0

    def _kept(self, partition: Partition, read: ReadInfo, *, as_region: bool) -> ReadInfo:
        """Count the file region of a read against the limit; at the limit, copy the records into memory.

        Return the read. `as_region`: wrap copied bytes in a FileRegion. Raises KafkaError if the bytes cannot be read.
        """
        region: Any = read.records
        if self._regions_taken < self._regions_max:
            self._regions_taken += 1
            # The region counts from here until it is no longer referred to, wherever it is by then.
            region.count_in(self._descriptors.regions)
            return read
        try:
            data = region.read()
        except OSError as error:
            raise partition.log.storage_error(error) from error
        # The conversion for old clients reads from a region. For all others bytes go out as any buffer does.
        return read._replace(records=FileRegion(_Copy(data), 0, len(data)) if as_region else data)


class _Copy:
    """In-memory bytes with the interface of an open file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def fileno(self) -> int:
        # It is only converted, and never handed to sendfile.
        raise OSError("a copy in memory has no descriptor")

    def size(self) -> int:
        return len(self._data)

    def read_at(self, position: int, length: int) -> bytes:
        return self._data[position : position + length]

    def append(self, buffer: object) -> None:
        raise OSError("a copy in memory is not written to")

    def truncate(self, size: int) -> None:
        raise OSError("a copy in memory is not written to")

    def sync(self) -> None:
        raise OSError("a copy in memory is not written to")


class PartitionReader(LimitsRegions):
    """Reader of one fetch's partitions. `skips_cold`: omit records not in memory instead of raising NotCached."""

    __slots__ = (
        "_aborted_left",
        "_new_follower",
        "broker",
        "is_committed_only",
        "is_follower",
        "listener_name",
        "notes_progress",
        "now_ms",
        "only_from_leader",
        "rack",
        "replica_epoch",
        "replica_id",
        "rights",
        "skips_cold",
        "version",
    )

    def __init__(self, broker: BrokerParts, request: FetchRequest, context: RequestContext[Any]) -> None:
        super().__init__(broker.environment.descriptors)
        self.broker = broker
        self.version = version = context.api_version
        self.listener_name = context.listener_name
        self.now_ms = context.now_ms
        if version < REPLICA_STATE_SINCE:
            self.replica_id, self.replica_epoch = request.replica_id, UNKNOWN_BROKER_EPOCH
        else:
            self.replica_id, self.replica_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
        self.is_follower = self.replica_id >= 0
        # A follower copies the records of undecided transactions as well.
        self.is_committed_only = request.isolation_level == READ_COMMITTED and not self.is_follower
        # A client that cannot read from followers takes this broker for the leader, and has to get an error if it is not.
        self.only_from_leader = self.is_follower or version < READ_FROM_FOLLOWERS_SINCE
        selector = broker.config.replication.replica_selector_class
        self.rack = request.rack_id if selector is not None and not self.only_from_leader else ""
        self.notes_progress = self.is_follower  # the offset of a follower's fetch is its progress; it counts once
        self.skips_cold = False
        authorizer = broker.authorizer
        self.rights = None if authorizer is None else FetchRights(context, authorizer, is_follower=self.is_follower)
        self._aborted_left = ABORTED_MAX
        # The first fetch of a follower's session: once one partition shows that it is one, its responses may be long.
        is_first = self.is_follower and request.session_epoch == INITIAL_EPOCH
        self._new_follower = context.socket if is_first else None

    def take_share_of_regions(self) -> None:
        super().take_share_of_regions()
        # Aborted transactions that the response may name, of all partitions together.
        self._aborted_left = ABORTED_MAX

    def refusal(self, target: FetchTarget) -> ErrorCode | None:
        """Return the error if the client may not read the partition or it is unknown, else None.

        A fetch goes on waiting for its other partitions despite such an error.
        """
        # First, as the client may not learn that the topic exists. An attribute, as this is a hot path.
        if self.rights is not None and self.rights.refuse(target.topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if target.topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self.broker.cluster.partition(target.topic, target.asked.partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None

    def end_of(self, partition: Partition) -> int:
        """Return the end offset for this client: high watermark, last stable offset, or log end for followers."""
        if self.is_follower:
            return partition.log_end_offset
        return partition.last_stable_offset if self.is_committed_only else partition.high_watermark

    def read(self, target: FetchTarget, room: int, *, at_least_one: bool) -> PartitionRead:
        """Read up to `room` bytes of a partition and return the result. Raises NotCached if they are not in memory.

        `at_least_one`: return the first batch even if it is longer than `room`.
        """
        asked = target.asked
        # Any number below zero means that the reader does not fence.
        leader_epoch = max(asked.current_leader_epoch, NO_LEADER_EPOCH)
        try:
            partition = self._partition(target, leader_epoch)
            # The read follows all the same: a wrong epoch or offset gets its error and not another replica's name.
            preferred = self._preferred_replica(partition, asked.fetch_offset) if self.rack else None
            read = partition.read(
                asked.fetch_offset,
                min(asked.partition_max_bytes, room),  # nothing is given out if another replica is preferred
                read_committed=self.is_committed_only,
                at_least_one_batch=at_least_one,
                is_follower=self.is_follower,
                only_from_leader=self.only_from_leader,
                current_leader_epoch=leader_epoch,
                last_fetched_epoch=asked.last_fetched_epoch,
                aborted_max=self._aborted_left,
            )
            if type(read.records) is FileRegion:
                read = self._kept(partition, read, as_region=self.version < DOWN_CONVERTED_BELOW)
        except KafkaError as error:
            self._count_failure(target, error)
            return PartitionRead(target, failed_read(self.broker, self.version, target, error.code))
        except NotCached:
            # After a wait the response is made in one step that cannot await a thread. The client gets these records
            # with its next fetch.
            if not self.skips_cold:
                raise
            return PartitionRead(target, without_records(target, partition), is_settled=False, partition=partition)
        if preferred is not None:
            return PartitionRead(target, without_records(target, partition, preferred), partition=partition)
        if self.is_follower:
            read = self._as_follower(partition, asked, read)
        if read.aborted_transactions:
            self._aborted_left -= len(read.aborted_transactions)
        data = PartitionData(
            partition_index=asked.partition,
            error_code=0,
            high_watermark=read.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            aborted_transactions=aborted(read.aborted_transactions),
            records=read.records,
        )
        if read.diverging_epoch is not None:
            epoch, end_offset = read.diverging_epoch
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        available = min(read.bytes_available, asked.partition_max_bytes)
        # `is_behind`: the reader is in an older segment. Kafka ends the wait then, however little that segment has
        # left.
        is_settled = read.diverging_epoch is not None or read.is_behind
        layout = partition.log.layout
        return new_tuple(PartitionRead, (target, data, len(read.records), available, is_settled, partition, layout))

    def _count_failure(self, target: FetchTarget, error: KafkaError) -> None:
        if error.code not in NO_FAILURES:
            traffic = self.broker.replicas.traffic.by_topic.get(target.topic or "")
            if traffic is not None:
                traffic.failed_fetch_requests += 1

    def _partition(self, target: FetchTarget, leader_epoch: int) -> Partition:
        assert target.topic is not None
        partition = self.broker.partition(target.topic, target.asked.partition)
        # A topic that was deleted and made again has the same name and another id.
        if target.topic_id != ZERO_UUID and partition.topic_id not in (None, target.topic_id):
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        # The read, which follows at once, checks that this broker is the leader.
        if self.is_follower and not (self.broker.is_in_cluster and partition.is_followed_by(self.replica_id)):
            partition.refuse_follower(leader_epoch)
        return partition

    def _preferred_replica(self, partition: Partition, offset: int) -> int | None:
        def rack_of(broker: int) -> str | None:
            endpoint = self.broker.cluster.endpoint(broker, self.listener_name)
            return None if endpoint is None else endpoint.rack

        return in_same_rack(self.rack, self.broker.node_id, partition.holders(offset), rack_of)

    # ------------------------------------------------------------------ followers

    def _as_follower(self, partition: Partition, asked: FetchPartition, read: ReadInfo) -> ReadInfo:
        """Record the follower's progress; return `read`, without records if replication to it is throttled."""
        broker, follower = self.broker, self.replica_id
        member = broker.member
        if self._new_follower is not None:
            widen_for_replica(self._new_follower, broker.config.server.socket_send_buffer_bytes)
            self._new_follower = None
        # A follower whose log has diverged will truncate it. Its offset does not mean that it has our records.
        if self.notes_progress and read.diverging_epoch is None:
            partition.on_follower_fetch(
                follower,
                asked.fetch_offset,
                asked.log_start_offset,
                broker_epoch=self.replica_epoch,
                now_ms=self.now_ms,
            )
            member.alter_partition_manager.on_follower_fetch(partition, follower)
            # This fetch may have committed records. Otherwise the follower would learn it only with its next fetch.
            if partition.high_watermark > read.high_watermark:
                read = read._replace(high_watermark=partition.high_watermark)
        # A replica in sync is never throttled: the high watermark waits for it, and producers with it.
        # Checked first, because it is nearly always so, and the topic's settings need not be looked up then.
        throttle = broker.throttles.leader
        if (
            follower not in partition.isr
            and throttle.is_throttled(partition.topic, partition.index)
            and throttle.is_exceeded(broker.now_ms())
        ):
            # Without `is_behind`, or the fetch would be answered at once and the follower would fetch again and again.
            return read._replace(records=b"", bytes_available=0, is_behind=False)
        return read

    def is_throttled(self, target: FetchTarget) -> bool:
        """True if the client is a follower and the replication of this partition is throttled."""
        return self.is_follower and self.broker.throttles.leader.is_throttled(
            target.topic or "", target.asked.partition
        )

    def count_throttled(self, reads: Iterable[PartitionRead]) -> None:
        """Count the bytes of throttled partitions that the follower receives, for the leader's replication throttle."""
        size = sum([read.size for read in reads if read.size and self.is_throttled(read.target)])
        if size:
            self.broker.throttles.leader.record(size, self.broker.now_ms())
