"""The share coordinator: it keeps the state of share partitions for their leaders and for the group coordinator.

A wire request is about many share partitions. It is split into one internal request for each, which goes to the shard that
its key falls to, and the results make one response. For a share partition that is named twice the second result counts.

A background task deletes redundant records, every share.coordinator.state.topic.prune.interval.ms.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import trio

from ottla.groupcoord.config import ShareCoordinatorConfig
from ottla.groupcoord.java_hashing import absolute_joined_hash
from ottla.groupcoord.runtime.answers import Caller, finished, gathered
from ottla.groupcoord.runtime.coordinator_runtime import Coordinator, Runtime, TopicForgetter, wall_clock_ms
from ottla.groupcoord.runtime.coordinator_shard import CoordinatorLog, ShardKind
from ottla.groupcoord.runtime.partition_runtime import PartitionRuntime
from ottla.groupcoord.share.coordinator.records import SharePartitionKey, decode_record, encode_records
from ottla.groupcoord.share.coordinator.shard import ShareCoordinatorShard, Topics
from ottla.groupcoord.share.coordinator.state import NO_START_OFFSET, in_parts
from ottla.groupcoord.share.coordinator.state_requests import (
    DeleteState,
    ForgetTopics,
    InitializeState,
    ReadState,
    ReadSummary,
    WriteState,
)
from ottla.wire.answers import Given, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateResult,
    ReadStateSummaryResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStatePartition,
    WriteStateResult,
)
from ottla.wire.time_slice import TimeSlice

logger = logging.getLogger("ottla.groupcoord")

ELEMENTS_PER_SLICE = 500
"""Topics, share partitions and batches of a long request that are handled together."""

ELEMENTS_AT_ONCE = 50
"""A request about more topics and share partitions yields in between: each may be an append of its own."""

BATCHES_MAX = 10_000
"""State batches in one write: a share partition has at most so many records in flight
(group.share.max.partition.max.record.locks)."""

BATCHES_PER_WRITE = 500
"""A longer write is split into parts."""

SMALL_WRITE_BATCHES, SMALL_WRITE_NAME = 50, 255
"""Writes up to this size may share an append: as many as share one then fit into a batch of the log."""

SNAPSHOTS_ARE_RARE = 50


class ShareStateLog(CoordinatorLog, Protocol):
    """Interface to the partitions of the share state topic."""

    def delete_records(self, partition: int, offset: int) -> None:
        """Delete the records before `offset`. Raises KafkaError if that is impossible now."""


class Api(NamedTuple):
    """Types and functions for one kind of share state request and its response."""

    verb: str
    internal: Callable[[SharePartitionKey, Any], Any]
    result: Callable[..., Any]
    response: Callable[..., Any]
    empty_topics_allowed: bool = False


INITIALIZE = Api(
    "initialize",
    lambda key, data: InitializeState(key, data.state_epoch, data.start_offset),
    InitializeStateResult,
    InitializeShareGroupStateResponse,
    empty_topics_allowed=True,
)
READ = Api("read", lambda key, data: ReadState(key, data.leader_epoch), ReadStateResult, ReadShareGroupStateResponse)
WRITE = Api("write", WriteState, WriteStateResult, WriteShareGroupStateResponse)
DELETE = Api("delete", lambda key, data: DeleteState(key), DeleteStateResult, DeleteShareGroupStateResponse)
READ_SUMMARY = Api(
    "read", lambda key, data: ReadSummary(key), ReadStateSummaryResult, ReadShareGroupStateSummaryResponse
)


APIS: Mapping[type, Api] = {
    InitializeShareGroupStateRequest: INITIALIZE,
    ReadShareGroupStateRequest: READ,
    WriteShareGroupStateRequest: WRITE,
    DeleteShareGroupStateRequest: DELETE,
    ReadShareGroupStateSummaryRequest: READ_SUMMARY,
}


class ShareCoordinator(Coordinator[Runtime[ShareCoordinatorShard]]):
    """Coordinator of the share partitions in this broker's partitions of `__share_group_state`."""

    def __init__(
        self,
        config: ShareCoordinatorConfig,
        log: ShareStateLog,
        topics: Topics,
        *,
        wall_clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._config = config
        self._log = log
        self._pruned: dict[PartitionRuntime[ShareCoordinatorShard], int] = {}
        kind = ShardKind(
            topic="the share state topic",
            make=partial(ShareCoordinatorShard, config, topics),
            encode=encode_records,
            decode=decode_record,
            may_overlap=self._is_small_write,
            may_share_append=self._is_small_write,
            # A request may name thousands of partitions for one long group.
            key_hash=lambda key: absolute_joined_hash(key.group_id, key.coordinator_key_end()),
        )
        super().__init__(Runtime(kind, log, wall_clock_ms=wall_clock))
        self._forgetting = TopicForgetter(self._runtime, ForgetTopics)

    def _is_small_write(self, request: object) -> bool:
        """Return True for a write whose record is surely short: few state batches, a short group id, rare snapshots."""
        return (
            isinstance(request, WriteState)
            and len(request.written.state_batches) <= SMALL_WRITE_BATCHES
            and len(request.key.group_id) <= SMALL_WRITE_NAME
            # If every write is a snapshot, its record has the whole state.
            and self._config.share_coordinator_snapshot_update_records_per_snapshot >= SNAPSHOTS_ARE_RARE
        )

    def start_in(self, nursery: trio.Nursery) -> None:
        super().start_in(nursery)
        nursery.start_soon(self._prune_regularly)

    # ------------------------------------------------------------------ requests

    def initialize(
        self, request: InitializeShareGroupStateRequest, *, api_version: int
    ) -> Worked[Given[InitializeShareGroupStateResponse]]:
        """Handle InitializeShareGroupState."""
        return self._answer(INITIALIZE, request)

    def read(
        self, request: ReadShareGroupStateRequest, *, api_version: int
    ) -> Worked[Given[ReadShareGroupStateResponse]]:
        """Handle ReadShareGroupState: return the full state of share partitions to their new leaders."""
        return self._answer(READ, request)

    def write(
        self, request: WriteShareGroupStateRequest, *, api_version: int
    ) -> Worked[Given[WriteShareGroupStateResponse]]:
        """Handle WriteShareGroupState: store changes of share partitions."""
        return self._answer(WRITE, request)

    def delete(
        self, request: DeleteShareGroupStateRequest, *, api_version: int
    ) -> Worked[Given[DeleteShareGroupStateResponse]]:
        """Handle DeleteShareGroupState: delete the state of share partitions."""
        return self._answer(DELETE, request)

    def read_summary(
        self, request: ReadShareGroupStateSummaryRequest, *, api_version: int
    ) -> Worked[Given[ReadShareGroupStateSummaryResponse]]:
        """Handle ReadShareGroupStateSummary: return the start offsets of share partitions."""
        return self._answer(READ_SUMMARY, request)

    def refused(self, request: Any, error: ErrorCode) -> Worked[Any]:
        """Return the response to `request`, a share state request, with this error for every share partition."""
        api = APIS[type(request)]
        if _is_long(request.topics):
            return self._refused_in_slices(api, request, error)
        (internal,) = _parts(api, request)
        return _response(api, [(each.key, each.refused(error)) for each in internal])

    async def _refused_in_slices(self, api: Api, request: Any, error: ErrorCode) -> Any:
        refused: list[tuple[SharePartitionKey, Any]] = []
        for part in _parts(api, request):
            refused += [(each.key, each.refused(error)) for each in part]
            await trio.lowlevel.checkpoint()
        return _response(api, refused)

    def _answer(self, api: Api, request: Any) -> Worked[Given[Any]]:
        if not request.group_id:
            return api.response(results=[])
        if _is_long(request.topics):
            return self._answer_in_slices(api, request)
        if not api.empty_topics_allowed and not all(topic.partitions for topic in request.topics):
            return api.response(results=[])
        (internal,) = _parts(api, request)

        def respond(answers: list[Any]) -> Any:
            return _response(api, zip([each.key for each in internal], answers, strict=True))

        return gathered([self._submit(api, each) for each in internal], respond)

    async def _answer_in_slices(self, api: Api, request: Any) -> Any:
        if not api.empty_topics_allowed:
            for start in range(0, len(request.topics), ELEMENTS_PER_SLICE):
                if not all(topic.partitions for topic in request.topics[start : start + ELEMENTS_PER_SLICE]):
                    return api.response(results=[])
                await trio.lowlevel.checkpoint()
        answered: list[tuple[SharePartitionKey, Any]] = []
        time_slice = TimeSlice()
        for part in _parts(api, request):
            # All are submitted before one is awaited, so that their commits are awaited together.
            answers = []
            for each in part:
                is_long = isinstance(each, WriteState) and len(each.written.state_batches) > BATCHES_PER_WRITE
                answers.append(await self._write_in_parts(each) if is_long else self._submit(api, each))
                await time_slice.yield_if_over()
            answered += zip([each.key for each in part], await finished(gathered(answers, list)), strict=True)
            await trio.lowlevel.checkpoint()
        return _response(api, answered)

    async def _write_in_parts(self, write: WriteState) -> Any:
        """Write very many state batches in several parts.

        The result is that of a single write, because the highest delivery count of an offset wins. Only the last part
        changes the start offset and the delivery-complete count, which therefore are never ahead of the batches.
        """
        written = write.written
        if len(written.state_batches) > BATCHES_MAX:
            return write.refused(ErrorCode.INVALID_REQUEST, f"More than {BATCHES_MAX} state batches.")
        *parts, last = in_parts(written.state_batches, BATCHES_PER_WRITE)
        for batches in parts:
            part = WriteStatePartition(
                partition=written.partition,
                state_epoch=written.state_epoch,
                leader_epoch=written.leader_epoch,
                start_offset=NO_START_OFFSET,
                state_batches=batches,
            )
            answer = await finished(self._submit(WRITE, WriteState(write.key, part)))
            if answer.error_code:
                return answer
            await trio.lowlevel.checkpoint()
        written.state_batches = last
        return await finished(self._submit(WRITE, write))

    def _submit(self, api: Api, internal: Any) -> Given[Any]:
        """Submit an internal request to the shard of its share partition. Return the response or a pending answer."""

        def refuse(error: ErrorCode) -> Any:
            return internal.refused(error, f"Unable to {api.verb} share group state: {error.message}")

        return self._runtime.submit(internal.key, internal, Caller(refuse))

    # ------------------------------------------------------------------ deleted topics

    async def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Delete the state of share partitions of deleted topics; `topics` maps names to topic ids."""
        await self._forgetting.forget(frozenset(topics.values()))

    # ------------------------------------------------------------------ pruning

    async def _prune_regularly(self) -> None:
        while True:
            await trio.sleep(self._config.share_coordinator_state_topic_prune_interval_ms / 1000)
            led = self._runtime.partitions()
            self._pruned = {each: offset for each, offset in self._pruned.items() if each in led}
            for partition in led:
                self._prune(partition)
                await trio.lowlevel.checkpoint()

    def _prune(self, partition: PartitionRuntime[ShareCoordinatorShard]) -> None:
        """Delete the redundant records of a partition. If that is not possible now, a later call does it."""
        if partition.absent or self._runtime.is_suspended:
            return
        try:
            offset = partition.shard(self._runtime.now_ms()).redundant_end_offset()
            if offset is not None and offset != self._pruned.get(partition):
                self._log.delete_records(partition.partition, offset)
                self._pruned[partition] = offset
        except KafkaError as error:
            logger.warning("partition %d of the share state topic is not pruned: %s", partition.partition, error)


def _is_long(topics: Iterable[Any]) -> bool:
    """Return True if a request has too many partitions for one step."""
    count = work = 0
    for topic in topics:
        count += 1
        for partition in topic.partitions:
            count += 1
            work += _work_of(partition)
            if work > ELEMENTS_PER_SLICE:
                return True
    return count > ELEMENTS_AT_ONCE


def _work_of(partition: Any) -> int:
    return 1 + len(getattr(partition, "state_batches", ()))


def _parts(api: Api, request: Any) -> Iterator[list[Any]]:
    """Yield lists of internal requests, one for each share partition. A short request yields only one list."""
    part: list[Any] = []
    work = 0
    for topic in request.topics:
        for data in topic.partitions:
            part.append(api.internal(SharePartitionKey(request.group_id, topic.topic_id, data.partition), data))
            work += _work_of(data)
            if work >= ELEMENTS_PER_SLICE:
                yield part
                part, work = [], 0
    yield part


def _response(api: Api, answered: Iterable[tuple[SharePartitionKey, Any]]) -> Any:
    """Build the response from `answered`, a result for each share partition, grouped by topic."""
    topics: dict[bytes, dict[int, Any]] = {}
    for key, result in answered:
        topics.setdefault(key.topic_id, {})[key.partition] = result
    results = [
        api.result(topic_id=topic_id, partitions=list(partitions.values())) for topic_id, partitions in topics.items()
    ]
    return api.response(results=results)
