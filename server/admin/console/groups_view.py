"""Groups that this broker coordinates: members with their assignments, offsets with lag, and the reason of the last rebalance.

Lag is the high watermark less the committed offset; it is known where this broker holds the partition. In the list of groups it is
counted in slices and kept for some seconds. Clients make groups and commit what they like: of one group OFFSETS_PER_GROUP_MAX offsets
are counted, of one page OFFSETS_PER_PAGE_MAX.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.server.admin.console import requests
from ottla.server.admin.console.requests import Wanted, ask, check_error, first_page
from ottla.server.admin.http.routes import PacedTimeSlice
from ottla.server.coordinator_factory import groups_of
from ottla.wire.errors import ProtocolViolation
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.wire.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from ottla.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup

if TYPE_CHECKING:
    from ottla.groupcoord.offsets.table import TopicOffsets
    from ottla.server.admin.http.routes import Pace, Request
    from ottla.server.broker import Broker

KEPT_S, GROUPS_KEPT = 5.0, 1_000
OFFSETS_PER_GROUP_MAX, OFFSETS_PER_PAGE_MAX = 2_000, 20_000
AT_ONCE = 100


class Lag(NamedTuple):
    """Lag of a group: number of records not yet consumed."""

    records: int | None
    """None: the group has committed nothing in partitions of this broker."""
    is_whole: bool
    """False: it has too many offsets to count."""


class Lags:
    """Lags of groups, counted in time slices and cached for some seconds."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._kept: OrderedDict[str, tuple[float, Lag]] = OrderedDict()

    async def of(self, group_ids: Iterable[str], time_slice: PacedTimeSlice) -> list[Lag]:
        """Return the lags of the given groups, in the given order."""
        found, left = [], OFFSETS_PER_PAGE_MAX
        for group_id in group_ids:
            kept = self._kept.get(group_id)
            if kept is None or trio.current_time() - kept[0] > KEPT_S:
                limit = min(left, OFFSETS_PER_GROUP_MAX)
                lag, counted = await self._counted(group_id, limit, time_slice)
                left -= counted
                self._keep(group_id, lag)
            else:
                lag = kept[1]
            found.append(lag)
        return found

    def _keep(self, group_id: str, lag: Lag) -> None:
        self._kept[group_id] = trio.current_time(), lag
        self._kept.move_to_end(group_id)
        while len(self._kept) > GROUPS_KEPT:
            self._kept.popitem(last=False)

    async def _counted(self, group_id: str, limit: int, time_slice: PacedTimeSlice) -> tuple[Lag, int]:
        """Count a group's lag, reading at most `limit` committed offsets; return the lag and the number of offsets read."""
        lag, count = None, 0
        for topic, index, offset in islice(self._committed(group_id), limit + 1):
            if count == limit:
                return Lag(lag, is_whole=False), count
            count += 1
            partition = self._broker.replicas.partition(topic, index)
            if partition is not None:
                lag = (lag or 0) + max(0, partition.high_watermark - offset)
            if count % AT_ONCE == 0:
                await time_slice.yield_if_over()
        await time_slice.yield_if_over()
        return Lag(lag, is_whole=True), count

    def _committed(self, group_id: str) -> Iterator[tuple[str, int, int]]:
        return offsets_in(groups_of(self._broker).committed(group_id), OFFSETS_PER_GROUP_MAX)


def offsets_in(committed: TopicOffsets, at_most: int) -> Iterator[tuple[str, int, int]]:
    """Yield (topic, partition, offset) of a group's committed offsets, for a caller that stops behind `at_most` of them.

    Other tasks may change the group meanwhile: copies are read, which are no longer than the caller needs.
    """
    for topic, partitions in list(islice(committed.items(), at_most + 1)):
        for index, each in list(islice(partitions.items(), at_most + 1)):
            yield topic, index, each.offset


GROUPS_PER_PAGE = 100
MEMBERS_SHOWN_MAX, PARTITIONS_SHOWN_MAX, ASSIGNED_SHOWN_MAX = 200, 1_000, 100
ASSIGNED_TEXT_MAX = 256 * 1024  # characters of topics' names, of all members together
ASSIGNMENT_BYTES_MAX = 64 * 1024  # a longer one is not read
TEXT_SHOWN_MAX = 300
CONSUMER = "consumer"
OFFSETS_VERSION = 9  # names topics


class GroupsView:
    """Handlers of the console's requests for consumer groups."""

    def __init__(self, broker: Broker, pace: Pace) -> None:
        self._broker, self._pace = broker, pace
        self._lags = Lags(broker)

    async def groups(self, request: Request) -> dict[str, Any]:
        """Return a page of groups sorted by name. Parameters: as in `ClusterView.topics`."""
        wanted, time_slice = Wanted.by(request), PacedTimeSlice(self._pace)
        listed = await finished(groups_of(self._broker).list_groups(ListGroupsRequest()))
        check_error(listed.error_code)  # while partitions of the offsets topic are loaded
        page, following = await first_page(
            listed.groups, lambda each: each.group_id, wanted, GROUPS_PER_PAGE, time_slice
        )
        lags = await self._lags.of((each.group_id for each in page), time_slice)
        return {
            "groups": [
                {
                    "id": each.group_id,
                    "type": each.group_type,
                    "state": each.group_state,
                    "protocol": each.protocol_type[:TEXT_SHOWN_MAX],
                    "lag": lag.records,
                    "isWhole": lag.is_whole,
                }
                for each, lag in zip(page, lags, strict=True)
            ],
            "next": following,
        }

    async def group(self, request: Request) -> dict[str, Any]:
        """Return the description of one group. `type`: group type as listed, classic by default."""
        group_id, kind = requests.text(request, "id"), requests.text(request, "type", "classic")
        described = await self._described(group_id, kind)
        check_error(described.error_code, described.error_message)
        time_slice, members, text_left = PacedTimeSlice(self._pace), [], ASSIGNED_TEXT_MAX
        for each in described.members[:MEMBERS_SHOWN_MAX]:
            shown = _member(each, text_left, is_classic=kind == "classic" and described.protocol_type == CONSUMER)
            text_left -= sum([len(topic) for topic, _ in shown["assigned"]])
            members.append(shown)
            await time_slice.yield_if_over()
        rebalance = groups_of(self._broker).last_rebalance(group_id)
        return {
            "id": group_id,
            "type": kind,
            "state": described.group_state,
            "protocol": described.protocol_data if kind == "classic" else getattr(described, "assignor_name", ""),
            "epoch": getattr(described, "group_epoch", None),
            "members": members,
            "memberCount": len(described.members),
            "lastRebalance": None
            if rebalance is None
            else {"timestamp": rebalance.timestamp_ms, "after": rebalance.after_generation, "reason": rebalance.reason},
            **await self._offsets(group_id),
        }

    async def _described(self, group_id: str, kind: str) -> Any:
        if kind == "classic":
            return (await ask(self._broker, DescribeGroupsRequest(groups=[group_id]), 6)).groups[0]
        request_class: Any
        # Few brokers have any of them.
        if kind == "share":
            from ottla.wire.messages.share_group import ShareGroupDescribeRequest as request_class
        elif kind == "streams":
            from ottla.wire.messages.streams_group import StreamsGroupDescribeRequest as request_class
        else:
            from ottla.wire.messages.consumer_group import ConsumerGroupDescribeRequest as request_class
        request = request_class(group_ids=[group_id], include_authorized_operations=False)
        return (await ask(self._broker, request, request.versions.last)).groups[0]

    async def _offsets(self, group_id: str) -> dict[str, Any]:
        """Return the committed offsets of a group, sorted by topic and partition, and the group's lag."""
        query = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
        fetched = await finished(groups_of(self._broker).offsets.offset_fetch(query, api_version=OFFSETS_VERSION))
        time_slice, count, lag = PacedTimeSlice(self._pace), 0, 0
        offsets: list[dict[str, Any]] = []
        for topic in fetched.groups[0].topics:
            for each in topic.partitions:
                await time_slice.yield_if_over()
                if each.committed_offset < 0:
                    continue
                count += 1
                held = self._broker.replicas.partition(topic.name, each.partition_index)
                end = None if held is None else held.high_watermark
                behind = None if end is None else max(0, end - each.committed_offset)
                lag += behind or 0
                if len(offsets) < PARTITIONS_SHOWN_MAX:
                    offsets.append(
                        {
                            "topic": topic.name,
                            "partition": each.partition_index,
                            "committed": each.committed_offset,
                            "end": end,
                            "lag": behind,
                        }
                    )
        offsets.sort(key=lambda each: (each["topic"], each["partition"]))
        return {"offsets": offsets, "offsetCount": count, "lag": lag}


def _member(member: Any, text_left: int, *, is_classic: bool) -> dict[str, Any]:
    texts = {"id": member.member_id, "client": member.client_id, "host": member.client_host}
    shown: dict[str, Any] = {name: text[:TEXT_SHOWN_MAX] for name, text in texts.items()}
    if is_classic:
        assigned = _classic_assignment(member.member_assignment)
    else:
        assignment = getattr(member, "assignment", None)
        assigned = [(each.topic_name, each.partitions) for each in getattr(assignment, "topic_partitions", ())]
    shown["assigned"] = _shown(assigned, text_left)
    shown["assignedCount"] = sum([len(partitions) for _, partitions in assigned])
    return shown


def _shown(assigned: Iterable[tuple[str, Sequence[int]]], text_left: int) -> list[list[Any]]:
    """Return the first of the assigned partitions. Topic names are cut, because a member may have invented them."""
    shown: list[list[Any]] = []
    left = ASSIGNED_SHOWN_MAX
    for topic, partitions in assigned:
        name = topic[:TEXT_SHOWN_MAX]
        text_left -= len(name)
        if left <= 0 or text_left < 0 or len(shown) >= ASSIGNED_SHOWN_MAX:
            break
        shown.append([name, sorted(partitions)[:left]])
        left -= len(partitions)
    return shown


def _classic_assignment(blob: bytes) -> list[tuple[str, Sequence[int]]]:
    """Decode the assignment that the group's leader sent for a member; return nothing if it is malformed."""
    if not 2 < len(blob) <= ASSIGNMENT_BYTES_MAX:
        return []
    try:
        # Newer versions only append fields, so version 0 finds the partitions of all of them.
        found = ConsumerProtocolAssignment.decode(blob, 0, start=2)
    except ProtocolViolation:
        return []
    return [(each.topic, each.partitions) for each in found.assigned_partitions]
