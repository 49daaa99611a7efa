"""Members of consumer groups (KIP-848), whose ids they have chosen themselves: they decide who comes first in Kafka's tables."""

from typing import Any

from compat_tests.differential.conversation import Talk, Topic

from ottla.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

REBALANCE_MS = 30_000
AT_ONCE = {"group.consumer.assignment.interval.ms": "0"}
"""Settings by which every change is assigned with the next heartbeat."""

Owned = dict[Topic, tuple[int, ...]]


class ConsumerMember:
    """A member that knows its epoch, and what it has been told to have."""

    def __init__(self, talk: Talk, group: str, member_id: str, *topics: Topic, **details: Any) -> None:
        self.talk = talk
        self.group = group
        self.member_id = member_id
        self.topics = [each.name for each in topics]
        self.instance: str | None = details.pop("instance", None)
        self.details = details
        self.epoch = 0
        self.owned: list[TopicPartitions] = []
        talk.link(member_id)

    def come(self, **details: Any) -> Any:
        self.owned = []
        said = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": self.topics,
            "topic_partitions": [],
        } | self.details
        return self.heartbeat("comes", member_epoch=0, **(said | details))

    def stay(self, **details: Any) -> Any:
        """Say nothing new."""
        return self.heartbeat("stays", **details)

    def own(self, **details: Any) -> Any:
        """Say that it has all that it was told to have, and nothing else."""
        return self.heartbeat("owns", topic_partitions=self.owned, **details)

    def go(self, epoch: int = -1, **details: Any) -> Any:
        return self.heartbeat("goes", member_epoch=epoch, **details)

    def heartbeat(self, label: str, **details: Any) -> Any:
        said = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
        }
        request = ConsumerGroupHeartbeatRequest(**(said | details))
        answer = self.talk.ask(request, of=self.member_id, label=label, arrange=in_order_of_topics)
        if answer is not None and not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = [
                    TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                    for each in answer.assignment.topic_partitions
                ]
        return answer


def in_order_of_topics(answer: Any) -> None:
    """Topic ids are others in each telling, so Kafka's tables hold them in any order."""
    if answer.assignment is not None:
        for each in answer.assignment.topic_partitions:
            each.partitions.sort()
        answer.assignment.topic_partitions.sort(key=lambda each: (len(each.partitions), each.partitions))


def settle(*members: ConsumerMember, rounds: int = 3) -> None:
    for _ in range(rounds):
        for each in members:
            each.own()


def describe(talk: Talk, *groups: str, **details: Any) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=False, **details)
    return talk.ask(request, label="describe", arrange=in_order_of_members)


def in_order_of_members(answer: Any) -> None:
    answer.groups.sort(key=lambda each: each.group_id)
    for group in answer.groups:
        group.members.sort(key=lambda each: each.member_id)
        for member in group.members:
            member.subscribed_topic_names.sort()
            for assignment in (member.assignment, member.target_assignment):
                for each in assignment.topic_partitions:
                    each.partitions.sort()
                assignment.topic_partitions.sort(key=lambda each: each.topic_name)
