"""Changes of groups by the console: delete a group, and set what a group without members has committed."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from ottla.server.admin.console import requests
from ottla.server.admin.console.groups_view import offsets_in
from ottla.server.admin.console.requests import body_number, body_text, change, check_error, done, first_of, refusal
from ottla.server.admin.http.routes import PacedTimeSlice, Refused
from ottla.server.coordinator_factory import groups_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.groups import DeleteGroupsRequest
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.server.admin.console.records import Records
    from ottla.server.admin.console.requests import Option
    from ottla.server.admin.http.routes import Pace, Request
    from ottla.server.broker import Broker

COMMIT_VERSION = 9  # names topics
PARTITIONS_MAX = 1_000
SHARE = "share"
EARLIEST, LATEST, OFFSET, TIME = TARGETS = ("earliest", "latest", "offset", "time")
_WITH_MEMBERS = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION)

Partition = tuple[str, int]


class GroupChanges:
    """Handlers of the console's POST requests that change groups. Each answers a sentence and a command."""

    def __init__(self, broker: Broker, records: Records, pace: Pace) -> None:
        self._broker, self._records, self._pace = broker, records, pace

    async def delete(self, request: Request) -> dict[str, Any]:
        """Delete the group `id`, which must have no members, with its committed offsets."""
        group_id = body_text(requests.posted(request), "id")
        [result] = (await change(self._broker, DeleteGroupsRequest(groups_names=[group_id]))).results
        check_error(result.error_code, result.error_message)
        return done(self._broker, f"Group {group_id} is deleted.", "groups delete", [group_id])

    async def reset(self, request: Request) -> dict[str, Any]:
        """Set the committed offsets of the group `id` in one partition, in a topic, or in all that it has committed.

        `type` share: set the start offsets of a share group, of which a topic has to be named.

        `to`: earliest, latest, offset or time, the last two with `value`, a time in ms.
        """
        body = requests.posted(request)
        group_id, places = body_text(body, "id"), self._places(body)
        offsets = await self._offsets(body, places)
        if body.get("type") == SHARE:
            await self._set_starts(group_id, offsets)
        else:
            await self._commit(group_id, offsets)
        starts = first_of([f"{topic} {index} at {offset}" for (topic, index), offset in offsets.items()], "; ")
        options = [_place_option(body), _target_option(body), "--execute"]
        return done(self._broker, f"Group {group_id} goes on from {starts}.", "groups reset", [group_id], options)

    async def _commit(self, group_id: str, offsets: Mapping[Partition, int]) -> None:
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
                    for index, offset in parts
                ],
            )
            for topic, parts in _by_topic(offsets).items()
        ]
        commit = OffsetCommitRequest(group_id=group_id, member_id="", topics=topics)
        for answered in (await change(self._broker, commit, COMMIT_VERSION)).topics:
            for each in answered.partitions:
                if each.error_code in _WITH_MEMBERS:
                    raise Refused(409, f"Group {group_id} has members: only a group without members can be reset.")
                check_error(each.error_code)

    async def _set_starts(self, group_id: str, offsets: Mapping[Partition, int]) -> None:
        """Set the start offsets of a share group. Raises Refused."""
        # Here, because few brokers have share groups.
        from ottla.wire.messages.share_group import (
            AlterShareGroupOffsetsRequest,
            AlterShareGroupOffsetsRequestPartition,
            AlterShareGroupOffsetsRequestTopic,
        )

        topics = [
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in parts
                ],
            )
            for topic, parts in _by_topic(offsets).items()
        ]
        answer = await change(self._broker, AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics))
        check_error(answer.error_code, answer.error_message)
        for answered in answer.responses:
            for each in answered.partitions:
                check_error(each.error_code, each.error_message)

    def _places(self, body: Mapping[str, Any]) -> list[Partition]:
        if body.get("topic") is None:
            committed = offsets_in(groups_of(self._broker).committed(body_text(body, "id")), PARTITIONS_MAX)
            places = [(topic, index) for topic, index, _ in islice(committed, PARTITIONS_MAX + 1)]
        else:
            name, index = body_text(body, "topic"), body_number(body, "partition", -1)
            topic = self._broker.cluster.topics.get(name)
            if topic is None or index >= len(topic.partitions):
                raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            places = [(name, each) for each in (range(len(topic.partitions)) if index < 0 else [index])]
        if not places:
            raise Refused(409, "The group has committed nothing: name a topic.")
        if len(places) > PARTITIONS_MAX:
            raise Refused(
                409, f"The console resets {PARTITIONS_MAX} partitions at most; ottla groups reset takes more."
            )
        return sorted(places)

    async def _offsets(self, body: Mapping[str, Any], places: list[Partition]) -> dict[Partition, int]:
        """Return the new offset of each partition; all of them must be on this broker. Raises Refused."""
        target, time_slice, found = body_text(body, "to"), PacedTimeSlice(self._pace), {}
        if target not in TARGETS:
            raise Refused(400, f"to must be one of {', '.join(TARGETS)}.")
        value = body_number(body, "value", None, 0, requests.LONG_MAX) if target in (OFFSET, TIME) else 0
        if target == TIME:
            _time(value)
        for place in places:
            await time_slice.yield_if_over()
            held = self._broker.replicas.partition(*place)
            if held is None:
                raise Refused(409, f"{place[0]} {place[1]} is on other brokers, which ottla groups reset asks.")
            if target == TIME:
                found[place] = await self._records.at_time(*place, value)
            else:
                wanted = {EARLIEST: held.log_start_offset, LATEST: held.high_watermark, OFFSET: value}[target]
                found[place] = min(max(wanted, held.log_start_offset), held.high_watermark)
        return found


def _by_topic(offsets: Mapping[Partition, int]) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for (topic, index), offset in offsets.items():
        found.setdefault(topic, []).append((index, offset))
    return found


def _place_option(body: Mapping[str, Any]) -> Option:
    if body.get("topic") is None:
        return "--all-topics"
    partition = body.get("partition")
    return "--topic", body["topic"] if partition is None else f"{body['topic']}:{partition}"


def _target_option(body: Mapping[str, Any]) -> Option:
    target, value = body["to"], body.get("value")
    if target == OFFSET:
        return "--to-offset", str(value)
    if target == TIME:
        return "--to-datetime", _time(int(value or 0)).isoformat(timespec="milliseconds")
    return f"--to-{target}"


def _time(milliseconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise Refused(400, "value is no time.") from None
