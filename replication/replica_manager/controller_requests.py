"""Carry out the controller's requests: LeaderAndIsr, StopReplica and UpdateMetadata.

The trio shell between the controller's requests and the replicas. Requests are carried out one after the other, because
making logs has to be waited for, and an older request must not overtake a newer one. Requests wait until this broker is
registered: they may be meant for an earlier incarnation of it, with another metadata cache. What they say of the controller
and of partitions that are new here is verified first (`controller_fencing.py`).

| the request                                      | answer                                                                  |
|--------------------------------------------------|-------------------------------------------------------------------------|
| is for an earlier incarnation of this broker     | STALE_BROKER_EPOCH (77); -1 and newer epochs than ours are taken        |
| comes from an earlier controller, or a false one | STALE_CONTROLLER_EPOCH (11)                                             |
| LeaderAndIsr: the log is on a failed directory   | KAFKA_STORAGE_ERROR (56) for that partition                             |
| ... its name is no topic's or partition's        | INVALID_TOPIC_EXCEPTION (17)                                            |
| ... the tree has no such topic or partition      | UNKNOWN_TOPIC_OR_PARTITION (3)                                          |
| ... its topic has another id here or in the tree | INCONSISTENT_TOPIC_ID (103)                                             |
| ... knows an older leader epoch, or no newer one | STALE_CONTROLLER_EPOCH; NONE if it brings the topic's id                |
| ... this broker is none of the replicas          | UNKNOWN_TOPIC_OR_PARTITION (3)                                          |
| StopReplica: knows an older leader epoch         | FENCED_LEADER_EPOCH (74); -2 (deletion) and -1 (old brokers) are taken  |
| ... is to delete what the tree says stays here   | INVALID_REQUEST (42)                                                    |
| UpdateMetadata: the tree has no such partition   | NONE, but it is passed over                                             |
| ... has no such broker, or at another address    | NONE, but clients get what the tree says                                |
| ... is older than what is known of a partition   | NONE, but it is passed over                                             |

After a new registration a broker does not know which of its leaderships moved to other brokers. It
`must_hear` of each of them, by LeaderAndIsr, before it serves that one again, or coordinates what lives in it.

Kafka's classes ReplicaManager (becomeLeaderOrFollower, stopReplicas) and ZkMetadataCache of 3.9.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from ottla.replication.cluster.metadata_cache import (
    NO_LEADER,
    MetadataCache,
)
from ottla.replication.controller.decisions import EPOCH_DURING_DELETE, TopicPartition
from ottla.replication.log.faults import Fault, classify
from ottla.replication.log.names import is_partition_name
from ottla.replication.replica_manager.controller_fencing import Claim, ControllerFencing
from ottla.replication.replica_manager.loading import HostedPartition
from ottla.replication.replica_manager.metadata_updates import MetadataUpdates
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.controller_requests import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from ottla.wire.schema import ZERO_UUID
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig
    from ottla.replication.partition.partition import Partition
    from ottla.replication.replica_manager.manager import ReplicaManager

logger = logging.getLogger("ottla.replication.controller")

NO_BROKER_EPOCH = -1
NO_LEADER_EPOCH = -1


ControllerRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest


class NewPartition(NamedTuple):
    """A partition that the controller assigns to this broker and that has no log here yet."""

    topic: str
    number: int
    topic_id: bytes
    is_new: bool


class Fetchers(Protocol):
    """The replica fetchers, as far as controller requests use them."""

    def follow(self, partition: Partition) -> None: ...

    def forget(self, partition: Partition) -> None: ...


class NoFetchers:
    """No-op fetchers of a broker without peers, which never follows another broker."""

    def follow(self, partition: Partition) -> None:
        pass

    def forget(self, partition: Partition) -> None:
        pass


class LeadershipListener(Protocol):
    """Interface of the coordinators, which are told when this broker starts and stops leading a partition."""

    def on_election(self, partition: Partition) -> None: ...

    def on_resignation(self, topic: str, index: int) -> None: ...

    def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None: ...

    def on_logs_missing(self) -> None:
        """Make the controller repeat its requests, after a transient failure to create a log or to assume a role."""


class ControllerRequests:
    """Handler of controller requests. They wait until `registered` is set, when this broker has its first epoch."""

    def __init__(
        self,
        replicas: ReplicaManager,
        cluster: MetadataCache,
        fetchers: Fetchers,
        listener: LeadershipListener,
        *,
        topic_config: Callable[[str], LogConfig],
        learn_settings: Callable[[Sequence[str]], Awaitable[None]],
        broker_epoch: Callable[[], int],
        clock_ms: Callable[[], int],
        fencing: ControllerFencing | None = None,
        is_alone: bool = False,
    ) -> None:
        """Create a handler; without `fencing` every sender is accepted as the controller.

        `is_alone`: a log on a failed directory counts as deleted. Kafka's single node does not wait for such a log
        either; when the directory is back, the log is set aside, because no topic claims it.
        """
        self.registered = trio.Event()  # until it is set, all requests wait
        self.controller_epoch = 0
        self.confirmed_epoch = NO_BROKER_EPOCH  # of this broker, as a controller named it last
        self._replicas = replicas
        self._fetchers = fetchers
        self._listener = listener
        self._topic_config = topic_config
        self._learn_settings = learn_settings
        self._broker_epoch = broker_epoch
        self._clock_ms = clock_ms
        self._fencing = fencing
        self._metadata = MetadataUpdates(replicas, cluster, fencing, resign=self._resign)
        self._lost_logs = ErrorCode.NONE if is_alone else ErrorCode.KAFKA_STORAGE_ERROR
        self._lock = trio.Lock()  # held by the request that is being carried out

    def begin_anew(self) -> None:
        """Resign from all partitions after a new registration, because other brokers may lead them now."""
        for partition in self._replicas.partitions():
            if partition.is_leader:
                partition.must_hear = True
                # Requests that wait at the partition have to look at it again.
                partition.notify_watchers()
                # What coordinates on it may be out of date: another broker may have written there. It is reloaded.
                self._listener.on_resignation(partition.topic, partition.index)

    @asynccontextmanager
    async def _admitted(self, request: ControllerRequest) -> AsyncGenerator[ErrorCode]:
        """Hold the lock for a request; yield the error that refuses the whole request, or NONE."""
        # Before any waiting: a look at the tree that begins while this request waits is recent enough for it.
        since = trio.current_time()
        await self.registered.wait()
        async with self._lock:
            yield await self._refusal(request, since)

    async def _refusal(self, request: ControllerRequest, since: float) -> ErrorCode:
        # Is it meant for this life of the broker?
        own = self._broker_epoch()
        if NO_BROKER_EPOCH < request.broker_epoch < own:
            logger.warning(
                "Refused a request of controller %d for broker epoch %d; it is %d now",
                request.controller_id,
                request.broker_epoch,
                own,
            )
            return ErrorCode.STALE_BROKER_EPOCH
        # Has a newer controller spoken before?
        if request.controller_epoch < self.controller_epoch:
            logger.warning(
                "Refused a request of controller %d of epoch %d; the epoch is %d now",
                request.controller_id,
                request.controller_epoch,
                self.controller_epoch,
            )
            return ErrorCode.STALE_CONTROLLER_EPOCH
        # Is the sender the controller at all?
        if self._fencing is not None and not await self._fencing.is_controller(
            request.controller_id, request.controller_epoch, since=since
        ):
            logger.warning(
                "Refused a request of controller %d of epoch %d: the coordination tree has another one",
                request.controller_id,
                request.controller_epoch,
            )
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = request.controller_epoch
        # This may end the fence: a controller knows of this registration. One that names no epoch (-1) does not.
        self.confirmed_epoch = max(self.confirmed_epoch, request.broker_epoch)
        return ErrorCode.NONE

    # --- lead and follow ----------------------------------------------------------------------------------------------

    async def lead_and_follow(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Handle LeaderAndIsr, version 5 or later."""
        async with self._admitted(request) as error:
            if error:
                return _refused(request, error)
            time_slice = TimeSlice()
            broker_epoch = self._broker_epoch()
            # All logs first, together. A role is taken between two waits, so that no task sees half of it.
            unmade = await self._make_missing_logs(request, time_slice)
            topics = []
            for topic in request.topic_states:
                errors = []
                for state in topic.partition_states:
                    if self._broker_epoch() != broker_epoch:  # registered again meanwhile: this was for an earlier life
                        return _refused(request, ErrorCode.STALE_BROKER_EPOCH)
                    partition = (topic.topic_name, state.partition_index)
                    code = unmade.get(partition) or self._apply_or_refuse(partition, topic.topic_id, state)
                    errors.append(LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=code))
                    await time_slice.yield_if_over()
                topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
            return LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=topics)

    async def _make_missing_logs(
        self, request: LeaderAndIsrRequest, time_slice: TimeSlice
    ) -> dict[TopicPartition, ErrorCode]:
        """Create the logs of new partitions with their topics' settings; return an error for each log that failed."""
        unmade: dict[TopicPartition, ErrorCode] = {}
        missing: list[tuple[str, int, bytes]] = []
        for name, index, topic_id, is_new in await self._new_partitions(request, unmade, time_slice):
            # The log may be on the directory that failed. A second, empty one would pass for the replica.
            if self._replicas.is_offline(name, index) and not is_new:
                unmade[name, index] = ErrorCode.KAFKA_STORAGE_ERROR
            else:
                missing.append((name, index, topic_id))
            await time_slice.yield_if_over()
        if missing:
            # LeaderAndIsr comes before the UpdateMetadata that makes `ConfigNotifications` read them.
            await self._learn_settings(list(dict.fromkeys(name for name, _, _ in missing)))
        hosted = []
        for name, index, topic_id in missing:
            hosted.append(HostedPartition(name, index, topic_id, self._topic_config(name)))
            await time_slice.yield_if_over()
        try:
            await self._replicas.create_partitions(hosted)
        except OSError as problem:
            logger.error("Cannot make the logs of new partitions: %s", problem)
            # A broken directory tells the controller by itself (`on_directory_failure`). After a passing failure the
            # controller has to ask again for the logs.
            if classify(problem) is not Fault.BROKEN:
                self._listener.on_logs_missing()
            for each in hosted:
                # Some may have been made before the failure.
                if self._replicas.partition(each.topic, each.index) is None:
                    unmade[each.topic, each.index] = ErrorCode.KAFKA_STORAGE_ERROR
        return unmade

    async def _new_partitions(
        self, request: LeaderAndIsrRequest, refused: dict[TopicPartition, ErrorCode], time_slice: TimeSlice
    ) -> list[NewPartition]:
        """Return the request's partitions that need a log on this broker; put errors of invalid ones into `refused`."""
        found: list[NewPartition] = []
        claims: dict[str, Claim] = {}
        for topic in request.topic_states:
            for state in topic.partition_states:
                name, index = topic.topic_name, state.partition_index
                await time_slice.yield_if_over()
                # `_apply` answers for both.
                if self._replicas.partition(name, index) is not None or self._replicas.node_id not in state.replicas:
                    continue
                # Before the name is part of any path.
                if not is_partition_name(name, index):
                    refused[name, index] = ErrorCode.INVALID_TOPIC_EXCEPTION
                    continue
                # One claim for each topic: the tree has its partitions without gaps, from 0 on.
                highest = max(index, claims[name].highest_index) if name in claims else index
                claims[name] = Claim(topic.topic_id, highest)
                found.append(NewPartition(name, index, topic.topic_id, state.is_new))
        if self._fencing is None or not claims:
            return found
        known = await self._fencing.topics(claims)
        for name, index, topic_id, _ in found:
            if code := known[name].refusal(topic_id, index):
                logger.warning("Refused to make a log of %s-%d, which is not in the coordination tree", name, index)
                refused[name, index] = code
            await time_slice.yield_if_over()
        return [each for each in found if (each.topic, each.number) not in refused]

    def _apply_or_refuse(self, name: TopicPartition, topic_id: bytes, state: LeaderAndIsrPartitionState) -> ErrorCode:
        """Apply the state of a partition; return an error code instead of raising, so that other partitions proceed."""
        try:
            return self._apply(name, topic_id, state)
        except KafkaError as error:
            logger.error("%s-%d cannot carry out the controller's request: %s", *name, error)
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._listener.on_logs_missing()
            return error.code
        except Exception:
            logger.exception("bug: %s-%d cannot carry out the controller's request", *name)
            self._listener.on_logs_missing()
            return ErrorCode.UNKNOWN_SERVER_ERROR

    def _apply(self, name: TopicPartition, topic_id: bytes, state: LeaderAndIsrPartitionState) -> ErrorCode:
        partition = self._replicas.partition(*name)
        # This broker is no replica of it. All others were made or refused before.
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.log.log_directory.failure is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        known_id = partition.topic_id
        # The log may be of an earlier topic with this name. Its records must not appear in the new one.
        if topic_id != ZERO_UUID and known_id not in (None, topic_id):
            logger.error("The controller says another id of topic %s than its log has; the log is left alone", name[0])
            return ErrorCode.INCONSISTENT_TOPIC_ID
        # A topic from before Kafka 2.8 gets its id without a new leader epoch.
        brings_id = known_id is None and topic_id != ZERO_UUID
        if brings_id:
            partition.log.assign_topic_id(topic_id)
        # Only a new epoch gives a role. A new controller, or one that knows of this broker's new registration, repeats
        # the present one.
        if state.leader_epoch <= partition.leader_epoch:
            is_same = state.leader_epoch == partition.leader_epoch
            if is_same:
                self._confirm(partition)
            return ErrorCode.NONE if brings_id and is_same else ErrorCode.STALE_CONTROLLER_EPOCH
        if self._replicas.node_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if state.leader == self._replicas.node_id:
            self._lead(partition, state)
        else:
            self._follow(partition, state)
        return ErrorCode.NONE

    def _confirm(self, partition: Partition) -> None:
        """Resume serving a partition after the controller has confirmed its role since this broker's registration."""
        if partition.must_hear:
            partition.must_hear = False
            if partition.is_leader:
                self._listener.on_election(partition)

    def _lead(self, partition: Partition, state: LeaderAndIsrPartitionState) -> None:
        # From here on its log grows only by what it appends itself.
        self._fetchers.forget(partition)
        is_new = partition.make_leader(
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=tuple(state.replicas),
            isr=tuple(state.isr),
            now_ms=self._clock_ms(),
        )
        # `begin_anew` has ended the coordination of what this broker led, so it begins again even where it leads on.
        if is_new or partition.must_hear:
            self._listener.on_election(partition)
        partition.must_hear = False

    def _follow(self, partition: Partition, state: LeaderAndIsrPartitionState) -> None:
        is_new_epoch = partition.make_follower(
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=tuple(state.replicas),
        )
        if not is_new_epoch:
            return
        partition.must_hear = False
        self._listener.on_resignation(partition.topic, partition.index)
        if state.leader == NO_LEADER:
            self._fetchers.forget(partition)  # until there is a leader to fetch from
        else:
            self._fetchers.follow(partition)

    def _resign(self, partition: Partition) -> None:
        """Stop fetching and coordinating a partition that this broker neither leads nor follows any more."""
        self._fetchers.forget(partition)
        self._listener.on_resignation(partition.topic, partition.index)

    # --- stop ---------------------------------------------------------------------------------------------------------

    async def stop(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Handle StopReplica, version 3 or later."""
        async with self._admitted(request) as error:
            if error:
                return StopReplicaResponse(error_code=error, partition_errors=[])
            codes: dict[TopicPartition, ErrorCode] = {}
            deleted: list[TopicPartition] = []
            deleted_topics: set[str] = set()
            time_slice = TimeSlice()
            # Any peer that names the present controller may have sent this. A replica is deleted only if the tree agrees.
            kept = await self._kept(request)
            for topic in request.topic_states:
                for state in topic.partition_states:
                    name = (topic.topic_name, state.partition_index)
                    if name in kept:
                        codes[name] = ErrorCode.INVALID_REQUEST
                        continue
                    codes[name] = self._stop(name, state.leader_epoch)
                    if state.delete_partition and codes[name] is ErrorCode.NONE:
                        self._listener.on_resignation(*name)
                        deleted.append(name)
                        if state.leader_epoch == EPOCH_DURING_DELETE:
                            deleted_topics.add(topic.topic_name)
                    await time_slice.yield_if_over()
            # All in one call, because it writes the checkpoints of each log directory once.
            await self._replicas.delete_partitions(deleted, deleted_topics=deleted_topics)
            return StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=_stop_errors(codes))

    async def _kept(self, request: StopReplicaRequest) -> set[TopicPartition]:
        """Return the replicas that the request would delete although the tree still assigns them to this broker."""
        named = {
            (topic.topic_name, state.partition_index)
            for topic in request.topic_states
            for state in topic.partition_states
            if state.delete_partition and self._replicas.partition(topic.topic_name, state.partition_index) is not None
        }
        if self._fencing is None or not named:
            return set()
        kept = named - await self._fencing.to_delete(named)
        if kept:
            logger.warning(
                "Refused to delete %d replicas: the coordination tree assigns them to this broker", len(kept)
            )
        return kept

    def _stop(self, name: TopicPartition, leader_epoch: int) -> ErrorCode:
        partition = self._replicas.partition(*name)
        if partition is None:
            # A log on a failed disk cannot be said to be gone. One that is gone already is: a new controller asks
            # again.
            return self._lost_logs if self._replicas.is_offline(*name) else ErrorCode.NONE
        if partition.log.log_directory.failure is not None and self._lost_logs:
            return self._lost_logs
        if leader_epoch not in (EPOCH_DURING_DELETE, NO_LEADER_EPOCH) and leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        # Whether it is deleted or only stopped, it has no leader to follow any more.
        self._fetchers.forget(partition)
        partition.notify_watchers()
        return ErrorCode.NONE

    # --- what is ------------------------------------------------------------------------------------------------------

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """Handle UpdateMetadata, version 7 or later: update the metadata cache."""
        async with self._admitted(request) as error:
            if not error and (deleted := await self._metadata.update(request)):
                self._listener.on_topics_deleted(deleted)
            return UpdateMetadataResponse(error_code=error)


def _refused(request: LeaderAndIsrRequest, error: ErrorCode) -> LeaderAndIsrResponse:
    """Build a response that refuses the request and each of its partitions with `error`, as Kafka's brokers do."""
    topics = [
        LeaderAndIsrTopicError(
            topic_id=topic.topic_id,
            partition_errors=[
                LeaderAndIsrPartitionError(partition_index=each.partition_index, error_code=error)
                for each in topic.partition_states
            ],
        )
        for topic in request.topic_states
    ]
    return LeaderAndIsrResponse(error_code=error, topics=topics)


def _stop_errors(codes: Mapping[TopicPartition, ErrorCode]) -> list[StopReplicaPartitionError]:
    return [
        StopReplicaPartitionError(topic_name=topic, partition_index=index, error_code=code)
        for (topic, index), code in codes.items()
    ]
