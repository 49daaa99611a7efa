"""Members of share groups, and administrators of their offsets."""

from typing import Any

from compat_tests.differential.conversation import Talk, Topic

from ottla.wire.messages.share_group import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)

AT_ONCE = {"group.share.assignment.interval.ms": "0"}
"""With this setting a change is assigned with the next heartbeat, however soon that comes."""

FIRST_EPOCH = 2


def heartbeat(
    group: str, epoch: int = 0, *topics: str, member: str = "member", **details: Any
) -> ShareGroupHeartbeatRequest:
    given = {"rack_id": None, "subscribed_topic_names": list(topics) or None} | details
    return ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **given)


def described(*groups: str, operations: bool = False) -> ShareGroupDescribeRequest:
    return ShareGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=operations)


def in_order_of_members(answer: Any) -> None:
    """Kafka tells groups, members, topics and partitions as its hash tables hold them."""
    answer.groups.sort(key=lambda each: each.group_id)
    for group in answer.groups:
        group.members.sort(key=lambda each: each.member_id)
        for member in group.members:
            member.subscribed_topic_names.sort()
            in_order_of_topics(member.assignment)


def in_order_of_topics(assignment: Any) -> None:
    assignment.topic_partitions.sort(key=lambda each: len(each.partitions))
    for topic in assignment.topic_partitions:
        topic.partitions.sort()


def in_order_of_assignment(answer: Any) -> None:
    if answer.assignment is not None:
        in_order_of_topics(answer.assignment)


def offsets_of(group: str, *topics: tuple[str, tuple[int, ...]]) -> DescribeShareGroupOffsetsRequest:
    """The question where partitions start; without topics where all do."""
    named = [DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=list(each)) for name, each in topics]
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=named or None)
    return DescribeShareGroupOffsetsRequest(groups=[asked])


def in_order_of_offsets(answer: Any) -> None:
    for group in answer.groups:
        group.topics.sort(key=lambda each: each.topic_name)
        for topic in group.topics:
            topic.partitions.sort(key=lambda each: each.partition_index)


def alteration(group: str, *offsets: tuple[str, int, int]) -> AlterShareGroupOffsetsRequest:
    """Of (topic, partition, offset)."""
    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for topic, partition, offset in offsets:
        wanted = AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
        topics.setdefault(topic, []).append(wanted)
    return AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=topics[name]) for name in topics],
    )


def in_order_of_responses(answer: Any) -> None:
    answer.responses.sort(key=lambda each: each.topic_name)


def deletion(group: str, *topics: str) -> DeleteShareGroupOffsetsRequest:
    named = [DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in topics]
    return DeleteShareGroupOffsetsRequest(group_id=group, topics=named)


def known(talk: Talk, topic: Topic) -> Topic:
    """Waits until the group coordinators know a new topic, too: Kafka tells them later than clients."""
    asked = offsets_of(talk.name("nobody"), (topic.name, (0,)))
    talk.until(asked, lambda answer: answer.groups[0].topics[0].topic_id == topic.id)
    return topic


def joined(talk: Talk, group: str, *topics: Topic, member: str = "member") -> int:
    """The epoch of a member that reads topics that are new to the group, and whose partitions can be assigned by now."""
    names = [known(talk, each).name for each in topics]
    answer = talk.do(heartbeat(group, 0, *names, member=member), 1)
    talk.until(offsets_of(group), lambda answer: {each.topic_name for each in answer.groups[0].topics} >= set(names))
    epoch: int = answer.member_epoch
    return epoch
