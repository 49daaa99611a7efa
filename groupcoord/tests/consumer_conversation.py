"""Members of consumer groups that talk to a shard as KIP-848's clients do."""

from collections.abc import Iterable
from typing import Any

from ottla.groupcoord.consumer.group import ConsumerGroup
from ottla.groupcoord.consumer.manager import DescribeConsumerGroup
from ottla.groupcoord.tests.conversation import GROUP, Asked, Conversation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest, DescribedGroup, TopicPartitions

INTERVAL_MS = 1000
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 30_000

Owned = dict[str, set[int]]


class ConsumerConversation(Conversation):
    """A shard whose groups are consumer groups. Topics: "topic" with 2 partitions, "other" with 1, unless changed."""

    def group(self, group_id: str = GROUP) -> ConsumerGroup:
        group = self.shard._groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def heartbeat(self, member_id: str, epoch: int, *, group: str = GROUP, version: int = 1, **details: Any) -> Asked:
        client_id = details.pop("client_id", "client")
        if "owned" in details:
            details["topic_partitions"] = self.partitions(details.pop("owned"))
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **details)
        return self.ask(request, version, client_id)

    def come(self, member_id: str, *topics: str, **details: Any) -> Asked:
        """The first heartbeat of a member."""
        given: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_TIMEOUT_MS, "topic_partitions": []}
        if "subscribed_topic_regex" not in details:
            given["subscribed_topic_names"] = list(topics) or ["topic"]
        return self.heartbeat(member_id, 0, **(given | details))

    def stay(self, member_id: str, **details: Any) -> Asked:
        """A heartbeat at the epoch that the group knows of the member, which says that it has what it should have."""
        member = self.group(details.get("group", GROUP)).members[member_id]
        return self.heartbeat(member_id, member.epoch, **({"owned": self.owned(member_id)} | details))

    def go(self, member_id: str, epoch: int = -1, **details: Any) -> Asked:
        return self.heartbeat(member_id, epoch, **details)

    def settle(self, rounds: int = 6) -> None:
        """Everybody heartbeats until nothing moves any more."""
        for _ in range(rounds):
            self.advance(INTERVAL_MS)
            for member_id in list(self.group().members):
                assert self.stay(member_id).error is ErrorCode.NONE

    # ------------------------------------------------------------------ what is seen

    def partitions(self, owned: Owned | None) -> list[TopicPartitions] | None:
        if owned is None:
            return None
        ids = {name: self.topic_id(name) for name in owned}
        return [TopicPartitions(topic_id=ids[name], partitions=sorted(owned[name])) for name in owned]

    def topic_id(self, name: str) -> bytes:
        image = self.images.image(name)
        # A member goes on to speak of a topic that was deleted.
        return name.encode().ljust(16, b".") if image is None else image.topic_id

    def owned(self, member_id: str, group: str = GROUP) -> Owned:
        """What the group says that the member has."""
        assigned = self.group(group).members[member_id].progress.assigned
        return {self.name(topic_id): set(partitions) for topic_id, partitions in assigned.items()}

    def name(self, topic_id: bytes) -> str:
        image = self.images.image_by_id(topic_id)
        return topic_id.decode().rstrip(".") if image is None else image.name

    def told(self, asked: Asked) -> Owned | None:
        """The assignment in an answer; None if there is none in it."""
        assignment = asked.response.assignment
        if assignment is None:
            return None
        return {self.name(each.topic_id): set(each.partitions) for each in assignment.topic_partitions}

    def described(self, group: str = GROUP) -> DescribedGroup:
        described: DescribedGroup = self.ask(DescribeConsumerGroup(group), 1).response
        return described

    def record_keys(self) -> list[str]:
        """The kinds of the records so far, a dagger for the end of something."""
        return [
            type(each.key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
            + ("†" if each.value is None else "")
            for each in self.records()
            if each is not None
        ]


def snapshot(talk: ConsumerConversation, group_id: str = GROUP) -> Any:
    """All of a group that its records say."""
    group = talk.shard._groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        return None
    members = {each.member_id: (each.written, each.progress) for each in group.members.values()}
    epochs = group.group_epoch, group.metadata_hash, group.assignment_epoch, group.assignment_timestamp_ms
    counts = (
        group.subscriptions.by_name,
        group.subscriptions.by_pattern,
        group.subscriptions.patterns,
        group.assignors,
    )
    owners = {topic_id: dict(partitions) for topic_id, partitions in group._owners.items()}
    return (
        members,
        epochs,
        dict(group.targets),
        dict(group.resolved),
        dict(group.static_members),
        [dict(each.by_key) for each in counts],
        owners,
    )


def all_partitions(*owned: Iterable[tuple[str, set[int]]] | Owned) -> list[tuple[str, int]]:
    """The partitions of several members in one list, so that one that is there twice is seen."""
    return sorted((name, each) for one in owned for name, partitions in dict(one).items() for each in partitions)
