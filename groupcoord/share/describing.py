"""What ShareGroupDescribe says of a group."""

from __future__ import annotations

from ottla.groupcoord.modern.describing import Large, described_partitions, with_members
from ottla.groupcoord.modern.describing import undescribed as undescribed_as
from ottla.groupcoord.share.group import ShareGroup
from ottla.groupcoord.share.state import Member as Words
from ottla.groupcoord.share.state import Position
from ottla.groupcoord.topic_images import TopicImages
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

ASSIGNOR_NAME = "simple"


def undescribed(group_id: str, error: ErrorCode, message: str | None = None) -> DescribedGroup:
    """The description of a group about which there is nothing to say."""
    return undescribed_as(DescribedGroup, group_id, error, message, assignor_name="")


def described(group: ShareGroup, topics: TopicImages) -> DescribedGroup | Large[DescribedGroup]:
    description = DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR_NAME,
        members=[],
    )
    sources = [(member_id, member, group.position(member_id)) for member_id, member in group.members.items()]
    return with_members(description, sources, lambda source: _member(*source, topics))


def _member(member_id: str, member: Words, position: Position, topics: TopicImages) -> Member:
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
