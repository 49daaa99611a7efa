"""Descriptions of consumer groups for administrators."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from ottla.groupcoord.consumer.group import ConsumerState
from ottla.groupcoord.consumer.member import Member
from ottla.groupcoord.modern.assignor import Assignment as Target
from ottla.groupcoord.modern.describing import Large, described_partitions, with_members
from ottla.groupcoord.modern.describing import undescribed as undescribed_as
from ottla.groupcoord.topic_images import TopicImages
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import Assignment, DescribedGroup, TopicPartitions
from ottla.wire.messages.consumer_group_describe import Member as DescribedMember

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def undescribed(group_id: str, error: ErrorCode, message: str | None = None) -> DescribedGroup:
    """The description of a group about which there is nothing to say."""
    return undescribed_as(DescribedGroup, group_id, error, message, assignor_name="")


def described(group: ConsumerState, assignor: str, topics: TopicImages) -> DescribedGroup | Large[DescribedGroup]:
    description = DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor,
        members=[],
    )
    sources = [(each, group.target_of(each.member_id)) for each in group.members.values()]
    return with_members(description, sources, lambda source: _member(*source, topics))


def _member(member: Member, target: Target, topics: TopicImages) -> DescribedMember:
    words, progress = member.words, member.progress
    # What it still has to give up is its own until then.
    has = chain(progress.assigned.items(), progress.revoking.items())
    return DescribedMember(
        member_id=member.member_id,
        instance_id=words.instance_id,
        rack_id=words.rack_id,
        member_epoch=member.epoch,
        client_id=words.client_id,
        client_host=words.client_host,
        subscribed_topic_names=list(words.subscribed_topic_names),
        subscribed_topic_regex=words.subscribed_topic_regex,
        assignment=_assignment(has, topics),
        target_assignment=_assignment(target.items(), topics),
        member_type=CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    )


def _assignment(partitions: Iterable[tuple[bytes, Iterable[int]]], topics: TopicImages) -> Assignment:
    return Assignment(topic_partitions=described_partitions(TopicPartitions, partitions, topics))
