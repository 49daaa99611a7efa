"""What ShareGroupDescribe says of a group."""

from __future__ import annotations

from ottla.groupcoord.groups.metadata import TopicImages
from ottla.groupcoord.groups.modern.describing import described_partitions
from ottla.groupcoord.groups.modern.describing import undescribed as undescribed_as
from ottla.groupcoord.groups.share.group import ShareGroup
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

ASSIGNOR_NAME = "simple"


def undescribed(group_id: str, error: ErrorCode, message: str | None = None) -> DescribedGroup:
    """The description of a group about which there is nothing to say."""
    return undescribed_as(DescribedGroup, group_id, error, message, assignor_name="")


def described(group: ShareGroup, topics: TopicImages) -> DescribedGroup:
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR_NAME,
        members=[_member(group, member_id, topics) for member_id in group.members],
    )


def _member(group: ShareGroup, member_id: str, topics: TopicImages) -> Member:
    member, position = group.members[member_id], group.position(member_id)
    partitions = described_partitions(TopicPartitions, position.assigned.items(), topics)
    return Member(
        member_id=member_id,
        rack_id=member.rack_id,
        member_epoch=position.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=Assignment(topic_partitions=partitions),
    )
