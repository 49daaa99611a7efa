"""The group coordinator (Kafka's GroupCoordinatorService): the services of all group types, over the runtime of their shards.

Each group type has a `service.py`; requests about groups of any type are served here. The methods take the wire request and return
the wire response, or a `PendingAnswer` where others must be waited for: the other members, or a commit. A coroutine works off
a request about very many things, piece by piece. Heartbeats and plain fetches of offsets never wait. Checks that need no
group come there, before the question whether this broker is the coordinator at all, as in Kafka.

Another group type enters in `GROUP_TYPES`, and nowhere else in this folder.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Final

import trio

from ottla.groupcoord.classic.manager import CLASSIC
from ottla.groupcoord.classic.service import ClassicService
from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.consumer.manager import CONSUMER
from ottla.groupcoord.consumer.service import ConsumerService
from ottla.groupcoord.group import AskLastRebalance, Group, LastRebalance
from ottla.groupcoord.group_settings import GroupSettingsSource
from ottla.groupcoord.manager import GroupType
from ottla.groupcoord.offsets.commits import Topics
from ottla.groupcoord.offsets.manager import OFFSETS, AskCommitted, DeleteGroup, ListCommitted
from ottla.groupcoord.offsets.service import OffsetService
from ottla.groupcoord.offsets.table import TopicOffsets
from ottla.groupcoord.offsets.transactional import CommitVerifier, TransactionalOffsetService
from ottla.groupcoord.records import RecordFormats
from ottla.groupcoord.runtime.answers import Caller, finished, gathered
from ottla.groupcoord.runtime.coordinator_runtime import Coordinator, wall_clock_ms
from ottla.groupcoord.runtime.coordinator_shard import CoordinatorLog, ShardKind, TransactionEnd
from ottla.groupcoord.shard import ELEMENTS_PER_SLICE, GroupRuntime, Shard
from ottla.groupcoord.share.manager import SHARE
from ottla.groupcoord.share.offset_service import EndOffsets, SharePersister
from ottla.groupcoord.share.service import ShareService
from ottla.groupcoord.streams.manager import STREAMS
from ottla.groupcoord.streams.service import StreamsService
from ottla.groupcoord.topic_images import TopicImages
from ottla.wire.answers import Given, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.happenings import Note, note_nothing
from ottla.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

GROUPS_PER_SLICE = 4  # their names may be very long

GROUP_TYPES: Final = (OFFSETS, CLASSIC, CONSUMER, SHARE, STREAMS)


class GroupTypes:
    """Record formats and request properties of all group types of a coordinator."""

    def __init__(self, types: Sequence[GroupType] = GROUP_TYPES) -> None:
        self.types = types
        self.formats = RecordFormats(record_format for each in types for record_format in each.formats)
        self.overlapping = frozenset(request for each in types for request in each.overlapping)
        self.gathered = frozenset(request for each in types for request in each.gathered)


class GroupCoordinator(Coordinator[GroupRuntime]):
    """Coordinator of this broker's groups and their committed offsets."""

    def __init__(
        self,
        config: GroupConfig,
        log: CoordinatorLog,
        topics: Topics,
        images: TopicImages,
        verifier: Callable[[], CommitVerifier],
        settings_of: GroupSettingsSource,
        share_ports: Callable[[], tuple[SharePersister, EndOffsets]],
        *,
        make_uuid: Callable[[], str] | None = None,
        wall_clock: Callable[[], int] = wall_clock_ms,
        types: GroupTypes | None = None,
        run_in_thread: Callable[..., Awaitable[Any]] = trio.to_thread.run_sync,
        note: Note = note_nothing,
    ) -> None:
        """`share_ports` returns the share persister and the client for end offsets.

        It is called at its first use, and so is `verifier`.
        """

        known = types or GroupTypes()

        def make() -> Shard:
            uuids = make_uuid or random_uuid
            return Shard(known.types, config, images, settings_of, make_uuid=uuids, note=note)

        self._config = config
        self._topics = topics
        self._images = images
        self._verifier = verifier
        self._share_ports = share_ports
        super().__init__(
            GroupRuntime(shard_kind(known, make), log, wall_clock_ms=wall_clock, run_in_thread=run_in_thread)
        )
        self.offsets = OffsetService(self._runtime, topics)
        self.classic = ClassicService(self._runtime, config)

    # ------------------------------------------------------------------ services that few brokers need

    @cached_property
    def transactional_offsets(self) -> TransactionalOffsetService:
        return TransactionalOffsetService(self._runtime, self._topics, self._verifier())

    @cached_property
    def consumer(self) -> ConsumerService:
        return ConsumerService(self._runtime, self._config)

    @cached_property
    def share(self) -> ShareService:
        return ShareService(self._runtime, self._images, *self._share_ports())

    @cached_property
    def streams(self) -> StreamsService:
        return StreamsService(self._runtime)

    # ------------------------------------------------------------------ life, partitions, deleted topics

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the coordinator until cancelled; before and after, requests get COORDINATOR_NOT_AVAILABLE."""
        await self._runtime.run(task_status)

    def end_transaction(self, partition: int, end: TransactionEnd) -> Given[ErrorCode]:
        """End a transaction with offsets of groups here. They take effect when the marker is committed."""
        return self._runtime.end_transaction(partition, end)

    async def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Forget deleted topics; `topics` maps names to topic ids."""
        await self.offsets.on_topics_deleted(topics)
        await self.share.on_topics_deleted(frozenset(topics.values()))

    # ------------------------------------------------------------------ list and delete groups of any type

    def list_groups(self, request: ListGroupsRequest) -> Worked[ListGroupsResponse]:
        """Return the groups that this broker coordinates; an error while any of their partitions is being loaded."""
        try:
            shards = self._runtime.led_shards()
        except KafkaError as error:
            return ListGroupsResponse(error_code=error.code, groups=[])
        is_wanted = in_listing(request.states_filter, request.types_filter)
        parts = (part for shard in shards for part in shard.list_groups(is_wanted, at_once=ELEMENTS_PER_SLICE))
        if sum([shard.group_count for shard in shards]) > ELEMENTS_PER_SLICE:
            return self._list_in_slices(parts)
        return ListGroupsResponse(error_code=ErrorCode.NONE, groups=list(chain.from_iterable(parts)))

    def last_rebalance(self, group_id: str) -> LastRebalance | None:
        """Return the time and reason of a group's last rebalance; None if this broker knows of none."""
        try:
            found: LastRebalance | None = self._runtime.read(group_id, AskLastRebalance(group_id))
        except KafkaError:
            return None
        return found

    async def _list_in_slices(self, parts: Iterable[list[ListedGroup]]) -> ListGroupsResponse:
        groups: list[ListedGroup] = []
        for part in parts:
            groups += part
            await trio.lowlevel.checkpoint()
        return ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)

    @property
    def group_count(self) -> int:
        """Number of loaded groups of any type that this broker coordinates."""
        return sum([shard.group_count for shard in self._loaded()])

    def all_committed(self) -> Iterator[tuple[str, TopicOffsets]]:
        """Iterate over all groups and their committed offsets, which may change between two steps."""
        for shard in self._loaded():
            yield from shard.read(ListCommitted(), now_ms=self._runtime.now_ms())

    def committed(self, group_id: str) -> TopicOffsets:
        """Return the committed offsets of a group; empty if it has none or this broker does not coordinate it."""
        try:
            found: TopicOffsets = self._runtime.read(group_id, AskCommitted(group_id))
        except KafkaError:
            return {}
        return found

    def _loaded(self) -> list[Shard]:
        now_ms = self._runtime.now_ms()
        led = [each for each in self._runtime.partitions() if each.absent is ErrorCode.NONE]
        return [each.shard(now_ms) for each in led]

    def delete_groups(self, request: DeleteGroupsRequest) -> Worked[Given[DeleteGroupsResponse]]:
        """Delete the named groups; a group that is named repeatedly is deleted once."""
        group_ids = list(dict.fromkeys(request.groups_names))
        if len(group_ids) > GROUPS_PER_SLICE or any(map(self._share_service_of, group_ids)):
            return self._delete_in_slices(group_ids)
        return gathered(
            [self._delete(group_id) for group_id in group_ids], lambda results: DeleteGroupsResponse(results=results)
        )

    async def _delete_in_slices(self, group_ids: list[str]) -> DeleteGroupsResponse:
        results: list[DeletableGroupResult] = []
        for start in range(0, len(group_ids), GROUPS_PER_SLICE):
            answers: list[Given[DeletableGroupResult]] = []
            for group_id in group_ids[start : start + GROUPS_PER_SLICE]:
                share = self._share_service_of(group_id)
                error = ErrorCode.NONE if share is None else await share.prepare_deletion(group_id)
                # All of them are asked before one is awaited, so that their commits are waited for together.
                answers.append(
                    DeletableGroupResult(group_id=group_id, error_code=error) if error else self._delete(group_id)
                )
            results += await finished(gathered(answers, list))
            await trio.lowlevel.checkpoint()
        return DeleteGroupsResponse(results=results)

    def _share_service_of(self, group_id: str) -> ShareService | None:
        """Return the share service if the id is a share group's here, whose state it deletes first; else None."""
        try:
            return self.share if self.share.has(group_id) else None
        except KafkaError:
            return None

    def _delete(self, group_id: str) -> Given[DeletableGroupResult]:
        caller = Caller(lambda error: DeletableGroupResult(group_id=group_id, error_code=error))
        return self._runtime.submit(group_id, DeleteGroup(group_id), caller)


def shard_kind(types: GroupTypes, make: Callable[[], Shard]) -> ShardKind[Shard]:
    """Return the `ShardKind` of shards that hold groups of these types."""
    return ShardKind(
        topic="the offsets topic",
        make=make,
        encode=types.formats.encode_records,
        decode=types.formats.decode_record,
        # All others look at what is in force only at the commit, or end groups.
        may_overlap=lambda request: type(request) in types.overlapping,
        may_share_append=lambda request: type(request) in types.gathered,
        superseding=types.formats.superseding,
    )


def random_uuid() -> str:
    """Return a random UUID (version 4) as text."""
    digits = bytearray(os.urandom(16))
    digits[6] = digits[6] & 0x0F | 0x40
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def in_listing(states: Iterable[str], types: Iterable[str]) -> Callable[[Group], bool]:
    """Return a filter of groups by state and by type, ignoring case. Empty `states` or `types` match all groups."""
    wanted = {state.strip().lower() for state in states}
    wanted_types = {each.lower() for each in types}

    def is_wanted(group: Group) -> bool:
        return (not wanted_types or group.group_type in wanted_types) and (
            not wanted or group.state_name.lower() in wanted
        )

    return is_wanted
