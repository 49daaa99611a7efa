"""The requests of administrators about groups of every kind: list them, delete them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import trio

from ottla.groupcoord.group import AskLastRebalance, LastRebalance
from ottla.groupcoord.offsets.committed import TopicOffsets
from ottla.groupcoord.offsets.manager import AskCommitted, DeleteGroup, ListCommitted
from ottla.groupcoord.runtime.answers import WaitingCaller, finished, gathered
from ottla.groupcoord.shard import ELEMENTS_PER_SLICE, GroupShards, Shard, in_listing
from ottla.wire.answers import Given, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

if TYPE_CHECKING:
    from ottla.groupcoord.share.service import ShareService

GROUPS_PER_SLICE = 4  # their names may be very long


class GroupAdministration:
    """Requests of administrators about groups of every type."""

    def __init__(self, shards: GroupShards, share: Callable[[], ShareService]) -> None:
        self._shards = shards
        self._share = share

    def list_groups(self, request: ListGroupsRequest) -> Worked[ListGroupsResponse]:
        """The groups of all partitions that this broker coordinates, or an error while some are being loaded."""
        try:
            self._shards.check_running()
            now_ms = self._shards.now_ms()
            # A partition that could not be loaded must not keep the groups of all others from being listed.
            led = [each for each in self._shards.partitions() if each.absent is not ErrorCode.NOT_COORDINATOR]
            shards = [partition.shard(now_ms) for partition in led]
        except KafkaError as error:
            return ListGroupsResponse(error_code=error.code, groups=[])
        is_wanted = in_listing(request.states_filter, request.types_filter)
        parts = (part for shard in shards for part in shard.list_groups(is_wanted, at_once=ELEMENTS_PER_SLICE))
        if sum([shard.group_count for shard in shards]) > ELEMENTS_PER_SLICE:
            return self._list_in_slices(parts)
        return ListGroupsResponse(error_code=ErrorCode.NONE, groups=list(chain.from_iterable(parts)))

    def last_rebalance(self, group_id: str) -> LastRebalance | None:
        """When and why a group rebalanced last; None if that is not known here."""
        try:
            found: LastRebalance | None = self._shards.read(group_id, AskLastRebalance(group_id))
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
        """Iterate over groups with their committed offsets, which may change between two steps."""
        for shard in self._loaded():
            yield from shard.read(ListCommitted(), now_ms=self._shards.now_ms())

    def committed(self, group_id: str) -> TopicOffsets:
        """Committed offsets of one group; none while this broker does not coordinate it."""
        try:
            found: TopicOffsets = self._shards.read(group_id, AskCommitted(group_id))
        except KafkaError:
            return {}
        return found

    def _loaded(self) -> list[Shard]:
        now_ms = self._shards.now_ms()
        led = [each for each in self._shards.partitions() if each.absent is ErrorCode.NONE]
        return [each.shard(now_ms) for each in led]

    def delete_groups(self, request: DeleteGroupsRequest) -> Worked[Given[DeleteGroupsResponse]]:
        """Handle a request that names groups. Each is answered once, however often it is named."""
        group_ids = list(dict.fromkeys(request.groups_names))
        if len(group_ids) > GROUPS_PER_SLICE or any(map(self._share_service_of, group_ids)):
            return self._delete_in_slices(group_ids)
        return gathered([self._delete(group_id) for group_id in group_ids], deletion_response)

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
        return deletion_response(results)

    def _share_service_of(self, group_id: str) -> ShareService | None:
        """The service that has to end the share partitions of a group first. None: it is no share group, or not here."""
        share = self._share()
        try:
            return share if share.has(group_id) else None
        except KafkaError:
            return None

    def _delete(self, group_id: str) -> Given[DeletableGroupResult]:
        caller = WaitingCaller(lambda error: DeletableGroupResult(group_id=group_id, error_code=error))
        return self._shards.submit(group_id, DeleteGroup(group_id), caller)


def deletion_response(results: list[DeletableGroupResult]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=results)
