"""No step of a coordinator grows with one share or streams group; see `test_bounded_steps.py`."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from ottla.groupcoord.records import KeyedRecord
from ottla.groupcoord.share import records as share_records
from ottla.groupcoord.share.manager import ShareGroupManager
from ottla.groupcoord.share.offsets import ReadInitialized
from ottla.groupcoord.streams import records as streams_records
from ottla.groupcoord.streams.manager import StreamsGroupManager
from ottla.groupcoord.streams.members import AssignedTasks, Member, Task, Tasks
from ottla.groupcoord.tests.conversation import GROUP
from ottla.groupcoord.tests.large_groups import MEMBERS, PARTITIONS, LargeGroups, Measured, names_of
from ottla.groupcoord.tests.streams.test_streams_groups import word_count
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.groups import DeleteGroupsRequest
from ottla.wire.messages.share_group import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from ottla.wire.messages.streams_group import StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest, TaskIds

pytestmark = pytest.mark.thorough

ALL = range(PARTITIONS)
SHARERS = 1_000
"""The largest value of group.share.max.size."""


def check(measured: Measured, wanted: set[str]) -> None:
    assert measured.handled >= wanted, f"not tried: {wanted - measured.handled}"
    assert not measured.too_long, measured.report()


# ---------------------------------------------------------------------- share groups


def share_group(talk: LargeGroups) -> list[Any]:
    topic_id = talk.images.image("t0").topic_id
    written: list[Any] = [
        KeyedRecord(
            share_records.ShareGroupMetadataKey(group_id=GROUP),
            share_records.ShareGroupMetadataValue(epoch=1, metadata_hash=0),
        ),
        KeyedRecord(
            share_records.ShareGroupTargetAssignmentMetadataKey(group_id=GROUP),
            share_records.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=1),
        ),
    ]
    for number in range(SHARERS - 1):
        given = [
            share_records.TopicPartitions(topic_id=topic_id, partitions=list(range(number, PARTITIONS, SHARERS - 1)))
        ]
        names = {"group_id": GROUP, "member_id": f"m{number}"}
        written += [
            KeyedRecord(
                share_records.ShareGroupMemberMetadataKey(**names),
                share_records.ShareGroupMemberMetadataValue(
                    rack_id=None, client_id="client", client_host="/127.0.0.1", subscribed_topic_names=["t0"]
                ),
            ),
            KeyedRecord(
                share_records.ShareGroupTargetAssignmentMemberKey(**names),
                share_records.ShareGroupTargetAssignmentMemberValue(topic_partitions=given),
            ),
            KeyedRecord(
                share_records.ShareGroupCurrentMemberAssignmentKey(**names),
                share_records.ShareGroupCurrentMemberAssignmentValue(
                    member_epoch=1, previous_member_epoch=1, state=0, assigned_partitions=given
                ),
            ),
        ]
    return written


def share(talk: LargeGroups, member_id: str, epoch: int) -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id=member_id, member_epoch=epoch, subscribed_topic_names=["t0"] if epoch == 0 else None
    )
    return talk.groups.share.heartbeat(request, client_id="client", client_host="/127.0.0.1")


async def test_share_groups(nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> None:
    measured = Measured()
    talk = LargeGroups(measured, group_share_max_size=SHARERS)
    await talk.begin(nursery, share_group(talk))
    group: Any = talk.shard._groups[GROUP]
    topic_id = talk.images.image("t0").topic_id
    # At first the share coordinator refuses.
    talk.share_coordinators.errors = {(topic_id, each): ErrorCode.COORDINATOR_NOT_AVAILABLE for each in ALL}
    await talk.asked("a heartbeat after topics have changed", lambda: share(talk, "m0", 1))
    talk.share_coordinators.errors = {}
    await talk.wait("an assignment", 2)
    await talk.asked("a newcomer", lambda: share(talk, "new", 0))
    for _ in range(20):
        await talk.wait("an assignment", 2)
        await talk.asked("heartbeats", lambda: share(talk, "m0", group.position("m0").epoch))
    assert sum(len(each.partitions) for each in group.share_partitions.initialized.values()) == PARTITIONS
    await talk.asked("a member that leaves", lambda: share(talk, "m7", -1))
    await talk.wait("an assignment", 2)
    describe = ShareGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)
    await talk.asked("ShareGroupDescribe", lambda: talk.groups.share.describe(describe, operations=lambda group_id: 0))
    with talk.counting("reads"):
        assert talk.groups.share.has(GROUP) and talk.groups.last_rebalance(GROUP)
        talk.groups.share.offsets._runtime.read(GROUP, ReadInitialized(GROUP))
    await talk.wait("sessions", 60)
    assert not group.members

    partitions = [
        AlterShareGroupOffsetsRequestPartition(partition_index=each, start_offset=5) for each in range(PARTITIONS - 1)
    ]
    altered = [AlterShareGroupOffsetsRequestTopic(topic_name="t0", partitions=partitions)]
    alter = AlterShareGroupOffsetsRequest(group_id=GROUP, topics=altered)
    await talk.asked("AlterShareGroupOffsets", lambda: talk.groups.share.alter_offsets(alter))
    deleted = DeleteShareGroupOffsetsRequest(
        group_id=GROUP, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name="t0")]
    )
    await talk.asked("DeleteShareGroupOffsets", lambda: talk.groups.share.delete_offsets(deleted))
    await talk.asked("AlterShareGroupOffsets", lambda: talk.groups.share.alter_offsets(alter))
    await talk.asked("deleted topic", lambda: talk.groups.on_topics_deleted({"t0": topic_id}))
    await talk.asked("DeleteGroups", lambda: talk.groups.delete_groups(DeleteGroupsRequest(groups_names=[GROUP])))
    check(measured, names_of(talk.part(ShareGroupManager)))


# ---------------------------------------------------------------------- streams groups


def streams_group() -> list[Any]:
    topology = streams_records.StreamsGroupTopologyValue(
        epoch=0,
        subtopologies=[
            streams_records.Subtopology(
                subtopology_id="0",
                source_topics=["t0"],
                source_topic_regex=[],
                state_changelog_topics=[],
                repartition_sink_topics=[],
                repartition_source_topics=[],
                copartition_groups=[],
            )
        ],
    )
    metadata = streams_records.StreamsGroupMetadataValue(epoch=1, metadata_hash=0, validated_topology_epoch=0)
    written: list[Any] = [
        streams_records.metadata_record(GROUP, metadata),
        streams_records.topology_record(GROUP, topology),
        streams_records.assignment_epoch_record(GROUP, 1, 1),
    ]
    for number in range(MEMBERS // 2):
        active = [Task("0", number), Task("0", number + MEMBERS // 2)]
        member = Member(
            f"m{number}",
            member_epoch=1,
            previous_member_epoch=1,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=20_000,
            topology_epoch=0,
            process_id=f"process{number}",
            assigned=AssignedTasks(dict.fromkeys(active, 1), frozenset(), frozenset()),
        )
        written += [
            streams_records.member_record(GROUP, member),
            streams_records.target_record(GROUP, member.member_id, Tasks(frozenset(active), frozenset(), frozenset())),
            streams_records.current_record(GROUP, member),
        ]
    return written


def stream(talk: LargeGroups, member_id: str, epoch: int, **details: Any) -> Any:
    given: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": member_id,
        "member_epoch": epoch,
        "endpoint_information_epoch": 0,
    }
    if epoch == 0:
        topology = word_count()
        topology.subtopologies[0].source_topics, topology.subtopologies[0].copartition_groups = ["t0"], []
        given |= {
            "topology": topology,
            "process_id": f"process-{member_id}",
            "rebalance_timeout_ms": 20_000,
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "client_tags": [],
        }
    request = StreamsGroupHeartbeatRequest(**(given | details))
    return talk.groups.streams.heartbeat(request, api_version=1, client_id="client", client_host="/127.0.0.1")


async def test_streams_groups(nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> None:
    measured = Measured()
    talk = LargeGroups(measured, group_streams_initial_rebalance_delay_ms=3_000)
    await talk.begin(nursery, streams_group())
    group: Any = talk.shard._groups[GROUP]

    def beat(member_id: str) -> Any:
        has = group.members[member_id]
        active = [TaskIds(subtopology_id="0", partitions=[each.partition for each in has.assigned.active])]
        return stream(talk, member_id, has.member_epoch, active_tasks=active, standby_tasks=[], warmup_tasks=[])

    await talk.asked("a heartbeat", lambda: beat("m0"))
    answered = await talk.asked("a newcomer", lambda: stream(talk, "new", 0))
    assert not answered.response.error_code, answered.response
    for _ in range(8):
        await talk.wait("an assignment", 2)
        await talk.asked("a heartbeat", lambda: beat("m0"))
    assert group.assignment_epoch == group.group_epoch
    loser = next(each for each in group.members if each not in ("new", "m0") and len(group.targets[each].active) < 2)
    await talk.asked("a member that has to give up a task", lambda: beat(loser))
    await talk.wait("revocation", 21)
    assert loser not in group.members
    describe = StreamsGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)
    await talk.asked(
        "StreamsGroupDescribe", lambda: talk.groups.streams.describe(describe, operations=lambda group_id: 0)
    )
    with talk.counting("AskLastRebalance"):
        assert talk.groups.last_rebalance(GROUP)
    await talk.asked("a member that leaves", lambda: stream(talk, "m7", -1))
    await talk.wait("sessions", 60)
    assert not group.members
    await talk.asked("the first of an empty group", lambda: stream(talk, "first", 0))
    await talk.wait("the first assignment", 4)
    await talk.asked("the last that leaves", lambda: stream(talk, "first", -1))
    await talk.asked("DeleteGroups", lambda: talk.groups.delete_groups(DeleteGroupsRequest(groups_names=[GROUP])))
    check(measured, names_of(talk.part(StreamsGroupManager)))
