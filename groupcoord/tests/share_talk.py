"""Requests of share groups' members, administrators and the share coordinator to a shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.groupcoord.group_settings import GroupSettings, settings_in_force
from ottla.groupcoord.shard import Shard
from ottla.groupcoord.share.group import PartitionsByTopic, ShareGroup
from ottla.groupcoord.share.offsets import (
    ConfirmDeletion,
    ConfirmPartitions,
    DescribeShareGroup,
    GiveUpPartitions,
    PreparedDeletion,
    PrepareDeletion,
)
from ottla.groupcoord.tests.conversation import GROUP, Conversation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.share_group import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribedGroup,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

TOPIC, OTHER = b"topic...........", b"other..........."
INTERVAL_MS = 1000
SHARE_SESSION_MS = 45_000
RETRY_MS = 30_000


def partitions_in(request: Any) -> dict[bytes, list[int]]:
    """Which partitions a request to the share coordinator is about."""
    return {topic.topic_id: [each.partition for each in topic.partitions] for topic in request.topics}


class ShareTalk(Conversation):
    """A conversation about share groups. What is to be asked of the share coordinator is collected in `asked`."""

    def __init__(self, **config: Any) -> None:
        self.own_settings: dict[str, dict[str, Any]] = {}
        super().__init__(**config)
        self.asked: list[Any] = []

    def _new_shard(self) -> Shard:
        return self.shard_class(
            self.kinds, self.config, self.images, self._settings_of, make_uuid=str, note=self.happenings.note
        )

    def _settings_of(self, group_id: str) -> GroupSettings:
        return settings_in_force(self.own_settings.get(group_id, {}), self.settings)

    def beat(
        self,
        member_id: str = "m",
        epoch: int = 0,
        *topics: str,
        group: str = GROUP,
        rack: str | None = None,
        client_id: str = "client",
    ) -> ShareGroupHeartbeatResponse:
        """A heartbeat; without topics it says nothing of them, but for a join, which reads "topic" then."""
        names = list(topics) or (["topic"] if epoch == 0 else None)
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=epoch, rack_id=rack, subscribed_topic_names=names
        )
        answer = self.ask(request, 1, client_id).response
        if answer.to_initialize is not None:
            self.asked.append(answer.to_initialize)
        response = answer.response
        assert isinstance(response, ShareGroupHeartbeatResponse)
        return response

    def confirm(self, partitions: PartitionsByTopic | None = None, group: str = GROUP) -> None:
        """The share coordinator has taken up what it was asked to last, or these partitions."""
        found = partitions_in(self.asked[-1]) if partitions is None else partitions
        assert self.ask(ConfirmPartitions(group, found), 0).response is ErrorCode.NONE

    def refuse(self, group: str = GROUP) -> None:
        self.ask(GiveUpPartitions(group, partitions_in(self.asked[-1])), 0)

    def joined(self, *member_ids: str, topics: Sequence[str] = ("topic",)) -> None:
        """Members that have what they want."""
        for member_id in member_ids or ("m",):
            asked = len(self.asked)
            self.beat(member_id, 0, *topics)
            if len(self.asked) > asked:
                self.confirm()
        for _ in range(2):
            self.advance(INTERVAL_MS)
            for member_id in member_ids or ("m",):
                self.beat(member_id, self.epoch_of(member_id))

    def epoch_of(self, member_id: str) -> int:
        return self.group().position(member_id).epoch

    def group(self, group: str = GROUP) -> ShareGroup:
        found = self.shard._groups[group]
        assert isinstance(found, ShareGroup)
        return found

    def described(self, group: str = GROUP) -> DescribedGroup:
        found = self.ask(DescribeShareGroup(group), 1).response
        assert isinstance(found, DescribedGroup)
        return found

    def assigned(self) -> dict[str, dict[str, list[int]]]:
        """Assignments by member, as the description shows them."""
        return {
            member.member_id: {each.topic_name: each.partitions for each in member.assignment.topic_partitions}
            for member in self.described().members
        }

    def phases(self) -> tuple[dict[bytes, list[int]], dict[bytes, list[int]], list[bytes]]:
        """Topics that are initializing, initialized and deleting."""
        known = self.group().share_partitions
        initializing = {each: sorted(topic.partitions) for each, topic in known.initializing.items()}
        initialized = {each: sorted(topic.partitions) for each, topic in known.initialized.items()}
        return initializing, initialized, list(known.deleting)

    # ------------------------------------------------------------------ administrators

    def alter(self, *offsets: tuple[str, int, int], group: str = GROUP) -> Any:
        """Set offsets: (topic, partition, offset)."""
        topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
        for topic, partition, offset in offsets:
            wanted = AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
            topics.setdefault(topic, []).append(wanted)
        named = [AlterShareGroupOffsetsRequestTopic(topic_name=each, partitions=topics[each]) for each in topics]
        answer = self.ask(AlterShareGroupOffsetsRequest(group_id=group, topics=named), 0).response
        if answer.to_initialize is not None:
            self.asked.append(answer.to_initialize)
        return answer.response

    def delete_offsets(self, *topics: str, group: str = GROUP) -> Any:
        named = [DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in topics]
        answer = self.ask(DeleteShareGroupOffsetsRequest(group_id=group, topics=named), 0).response
        if answer.to_delete is not None:
            self.asked.append(answer.to_delete)
        return answer.response

    def confirm_deletion(self, *topic_ids: bytes) -> None:
        assert self.ask(ConfirmDeletion(GROUP, topic_ids), 0).response is ErrorCode.NONE

    def prepare_deletion(self, group: str = GROUP) -> PreparedDeletion:
        answer = self.ask(PrepareDeletion(group), 0).response
        assert isinstance(answer, PreparedDeletion)
        return answer

    def states(self) -> dict[str, Any]:
        """All share groups, as far as their records tell."""
        return {each.group_id: _kept(each) for each in self.shard._groups.values() if isinstance(each, ShareGroup)}

    def assert_replay_is_equal(self) -> None:
        """Check that the log loads the state in force."""
        again = ShareTalk()
        again.images, again.log = self.images, list(self.log)
        again.restart()
        assert again.states() == self.states()


def _kept(group: ShareGroup) -> tuple[Any, ...]:
    return (
        group.metadata,
        group.target_metadata,
        group.members,
        group.positions,
        group.targets,
        group.state_partitions,
        group.subscriptions.by_name.by_key,
    )
