"""Groups of a lab's Kafka: state, members, offsets, and what a test does to them.

All of it is done by Kafka's own requests, served inside the process, so that it holds for groups of every type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import trio
import trio.testing

from ottla.replication.cluster.metadata_cache import GROUP_METADATA_TOPIC
from ottla.server.testing.errors import LabError, check
from ottla.server.testing.transactions import until_marked
from ottla.server.testing.world.clock import pause
from ottla.server.testing.world.world import LOADING, PAUSE_S, SHOWN_LOOKS
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.classic_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
)
from ottla.wire.messages.consumer_group import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from ottla.wire.messages.share_group import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from ottla.wire.messages.streams_group import StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest

if TYPE_CHECKING:
    from ottla.server.testing.world.lab import Lab
    from ottla.server.testing.world.world import World

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
STABLE = "Stable"
WITH_MEMBERS = [STABLE, "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"]
LEAVING = -1  # member epoch of a heartbeat
STRANGER = "ottla-testing"
OFFSETS_BY_NAME = 9  # the last version of OffsetCommit and OffsetFetch that names topics and not their ids
SESSION_MS = 30_000

DESCRIBE = {
    CONSUMER: ConsumerGroupDescribeRequest,
    SHARE: ShareGroupDescribeRequest,
    STREAMS: StreamsGroupDescribeRequest,
}
"""Requests for a description, by type of group."""

Partition = tuple[str, int]


class GroupMember(NamedTuple):
    """A member of a group. `partitions`: those assigned to it, as (topic, partition)."""

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    partitions: list[Partition]


async def list_groups(world: World) -> list[str]:
    """Return the names of all groups."""
    answers = await world.ask_coordinators(GROUP_METADATA_TOPIC, ListGroupsRequest(states_filter=[], types_filter=[]))
    return sorted({each.group_id for _, answer in answers for each in answer.groups})


async def dismiss_members(lab: Lab) -> None:
    """Remove the members of all groups, whose clients are those of another Kafka."""
    if not any(node.is_running for node in lab.world.nodes.values()):
        return
    request = ListGroupsRequest(states_filter=WITH_MEMBERS, types_filter=[CLASSIC, CONSUMER, SHARE, STREAMS])
    for _, answer in await lab.world.ask_coordinators(GROUP_METADATA_TOPIC, request):
        for each in answer.groups:
            await Group(lab, each.group_id)._dismiss()


class Group:
    """A group of any type. It need not exist yet: then it has no members and no offsets."""

    def __init__(self, lab: Lab, name: str) -> None:
        self._lab, self.name = lab, name

    def __repr__(self) -> str:
        return f"Group({self.name!r})"

    @property
    def type(self) -> str:
        """Type by Kafka's name: classic, consumer, share or streams. Raises LabError if there is no such group."""
        return str(self._lab.call(self._listed).group_type.lower())

    @property
    def state(self) -> str:
        """State by Kafka's name, such as Stable. Raises LabError if there is no such group."""
        return str(self._lab.call(self._listed).group_state)

    @property
    def members(self) -> list[GroupMember]:
        """Members in the order of their ids; none if there is no such group."""
        return self._lab.call(self._members)

    @property
    def offsets(self) -> dict[Partition, int]:
        """Committed offsets by (topic, partition)."""
        return self._lab.call(self._offsets)

    @property
    def lag(self) -> int:
        """Number of records after the committed offsets, of all partitions that have one."""
        return self._lab.call(self._lag)

    def evict(self, member: GroupMember | str) -> None:
        """Remove a member, as after a session timeout: it has to join again. Raises LabError if it is no member."""
        self._lab.call(self._evict, member if isinstance(member, str) else member.member_id)

    def rebalance(self) -> None:
        """Start a rebalance, as if a member came and left. Raises LabError if no members are there, or for a streams group."""
        self._lab.call(self._rebalance)

    def freeze(self) -> None:
        """Hold back all requests about the group, and answers to earlier ones, until `thaw`: clients wait, and time out."""
        self._lab.loop.call_sync(lambda: self._lab.world.silence(group=self.name))

    def thaw(self) -> None:
        """End `freeze`. Connections with waiting requests are closed, and their clients send them again."""
        self._lab.loop.call_sync(lambda: self._lab.world.let_speak(group=self.name))

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets by (topic, partition). Raises KafkaError, such as UNKNOWN_MEMBER_ID if the group has members."""
        self._lab.call(self._commit, offsets)

    def delete(self) -> None:
        """Delete the group with its offsets. Raises KafkaError, such as NON_EMPTY_GROUP."""
        self._lab.call(self._delete)

    # ------------------------------------------------------------------ in the lab's thread

    async def _ask(self, request: Any, version: int | None = None) -> Any:
        world = self._lab.world
        for _ in range(SHOWN_LOOKS):
            answer = await world.ask(request, await world.coordinator(self.name), version=version)
            # Another group may still be loaded there, or the coordinator has just changed.
            if LOADING.isdisjoint(_codes(answer)):
                break
            await pause(PAUSE_S)
        return answer

    async def _found(self) -> Any:
        answer = await self._ask(ListGroupsRequest(states_filter=[], types_filter=[]))
        return next((each for each in answer.groups if each.group_id == self.name), None)

    async def _listed(self) -> Any:
        if (found := await self._found()) is None:
            known = ", ".join(await list_groups(self._lab.world)) or "none"
            raise LabError(f"There is no group {self.name}; the groups are: {known}.")
        return found

    async def _described(self) -> tuple[str, Any]:
        listed = await self._listed()
        kind = listed.group_type.lower()
        if kind == CLASSIC:
            answer = await self._ask(DescribeGroupsRequest(groups=[self.name]))
        else:
            answer = await self._ask(DESCRIBE[kind](group_ids=[self.name], include_authorized_operations=False))
        return kind, answer.groups[0]

    async def _members(self) -> list[GroupMember]:
        if await self._found() is None:
            return []
        kind, described = await self._described()
        if kind == STREAMS:
            return sorted(_streams_member(each, described.topology) for each in described.members)
        return sorted(map(_classic_member if kind == CLASSIC else _newer_member, described.members))

    async def _offsets(self) -> dict[Partition, int]:
        await until_marked(self._lab.world, GROUP_METADATA_TOPIC)
        group = OffsetFetchRequestGroup(group_id=self.name, topics=None)
        answer = await self._ask(OffsetFetchRequest(groups=[group]), OFFSETS_BY_NAME)
        check(answer.groups[0].error_code)
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in answer.groups[0].topics
            for each in topic.partitions
        }

    async def _lag(self) -> int:
        world, left = self._lab.world, 0
        for (topic, partition), offset in (await self._offsets()).items():
            leading = world.leader(topic, partition).serving().partition(topic, partition)
            left += max(0, leading.high_watermark - max(offset, leading.leading_log().log_start_offset))
        return left

    async def _evict(self, member_id: str) -> None:
        kind, described = await self._described()
        found = next((each for each in described.members if each.member_id == member_id), None)
        if found is None:
            ids = ", ".join(each.member_id for each in described.members) or "none"
            raise LabError(f"Group {self.name} has no member {member_id}; its members are: {ids}.")
        await self._remove(kind, [found], "evicted by a test")

    async def _dismiss(self) -> None:
        kind, described = await self._described()
        await self._remove(kind, described.members, "in a fork")

    async def _remove(self, kind: str, members: Sequence[Any], reason: str) -> None:
        if kind != CLASSIC:
            for each in members:
                await self._leave(kind, each.member_id)
            return
        gone = [
            MemberIdentity(member_id=each.member_id, group_instance_id=each.group_instance_id, reason=reason)
            for each in members
        ]
        answer = await self._ask(LeaveGroupRequest(group_id=self.name, members=gone))
        for each in (answer, *answer.members):
            check(each.error_code)

    async def _leave(self, kind: str, member_id: str) -> None:
        check((await self._ask(self._heartbeat(kind, member_id, LEAVING))).error_code)

    def _heartbeat(self, kind: str, member_id: str, epoch: int, topics: list[str] | None = None) -> Any:
        if kind == STREAMS:
            return StreamsGroupHeartbeatRequest(
                group_id=self.name, member_id=member_id, member_epoch=epoch, endpoint_information_epoch=0
            )
        if kind == SHARE:
            return ShareGroupHeartbeatRequest(
                group_id=self.name, member_id=member_id, member_epoch=epoch, subscribed_topic_names=topics
            )
        is_joining = epoch == 0
        return ConsumerGroupHeartbeatRequest(
            group_id=self.name,
            member_id=member_id,
            member_epoch=epoch,
            subscribed_topic_names=topics,
            rebalance_timeout_ms=SESSION_MS if is_joining else -1,
            topic_partitions=[] if is_joining else None,
        )

    async def _rebalance(self) -> None:
        kind, described = await self._described()
        if not described.members:
            raise LabError(f"Group {self.name} has no members that could rebalance.")
        if kind == CLASSIC:
            if described.group_state != STABLE:
                raise LabError(f"Group {self.name} is in state {described.group_state}; it rebalances already.")
            await self._rebalance_classic(described)
        elif kind == STREAMS:
            raise LabError(f"Nobody but its application can join streams group {self.name}; evict a member instead.")
        else:
            topics = sorted({name for each in described.members for name in each.subscribed_topic_names})
            check((await self._ask(self._heartbeat(kind, STRANGER, 0, topics))).error_code)
            await self._leave(kind, STRANGER)

    async def _rebalance_classic(self, described: Any) -> None:
        """Join as a member of the same protocols, and leave: the others have to join again."""
        metadata = described.members[0].member_metadata
        joining = JoinGroupRequest(
            group_id=self.name,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id="",
            protocol_type=described.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=described.protocol_data, metadata=metadata)],
        )
        answer = await self._ask(joining)
        # The first answer only gives an id. To join with it would wait for all others, who hear of it by that alone.
        if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            check(answer.error_code)
        joining.member_id = answer.member_id
        gone = MemberIdentity(member_id=answer.member_id, reason="came to make a rebalance")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask, joining)
            await trio.testing.wait_all_tasks_blocked()
            await self._ask(LeaveGroupRequest(group_id=self.name, members=[gone]))
            nursery.cancel_scope.cancel()

    async def _commit(self, offsets: Mapping[Partition, int]) -> None:
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            wanted = OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=""
            )
            by_topic.setdefault(topic, []).append(wanted)
        topics = [OffsetCommitRequestTopic(name=name, partitions=each) for name, each in by_topic.items()]
        answer = await self._ask(OffsetCommitRequest(group_id=self.name, member_id="", topics=topics), OFFSETS_BY_NAME)
        for topic in answer.topics:
            for each in topic.partitions:
                check(each.error_code)

    async def _delete(self) -> None:
        answer = await self._ask(DeleteGroupsRequest(groups_names=[self.name]))
        check(answer.results[0].error_code)


def _codes(answer: Any) -> Iterator[ErrorCode]:
    """Yield the error codes of an answer to a request about groups, at whatever depth it has them."""
    if (code := getattr(answer, "error_code", None)) is not None:
        yield ErrorCode.of(code)
    for name in ("groups", "results", "topics", "partitions"):
        for each in getattr(answer, name, None) or ():
            yield from _codes(each)


def _classic_member(member: Any) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.client_id,
        member.client_host,
        member.group_instance_id,
        _assigned(member.member_assignment),
    )


def _assigned(blob: bytes) -> list[Partition]:
    # Other protocol types than consumers' put there what they like.
    try:
        version = min(int.from_bytes(blob[:2], "big", signed=True), ConsumerProtocolAssignment.versions.last)
        told = ConsumerProtocolAssignment.decode(blob, version, start=2)
    except Exception:  # noqa: BLE001 - whatever it is, it names no partitions
        return []
    return sorted((each.topic, index) for each in told.assigned_partitions for index in each.partitions)


def _newer_member(member: Any) -> GroupMember:
    assigned = [(each.topic_name, index) for each in member.assignment.topic_partitions for index in each.partitions]
    instance = getattr(member, "instance_id", None)
    return GroupMember(member.member_id, member.client_id, member.client_host, instance, sorted(assigned))


def _streams_member(member: Any, topology: Any) -> GroupMember:
    """Return a member with the partitions of its active tasks. `topology`: of the group; None: it is not known."""
    topics = {
        each.subtopology_id: [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
        for each in (topology.subtopologies or () if topology is not None else ())
    }
    read = [
        (topic, index)
        for task in member.assignment.active_tasks
        for topic in topics.get(task.subtopology_id, ())
        for index in task.partitions
    ]
    return GroupMember(member.member_id, member.client_id, member.client_host, member.instance_id, sorted(read))
