"""A committed offset, and a table of them by group, topic and partition."""

from __future__ import annotations

from collections.abc import Collection

from ottla.groupcoord.offsets.records import OffsetCommitValue


class CommittedOffset:
    """What a group committed for one partition."""

    __slots__ = (
        "commit_timestamp_ms",
        "expire_timestamp_ms",
        "leader_epoch",
        "metadata",
        "offset",
        "record_offset",
        "topic_id",
    )

    def __init__(self, value: OffsetCommitValue, record_offset: int) -> None:
        self.offset = value.offset
        self.leader_epoch = value.leader_epoch
        self.metadata = value.metadata
        self.commit_timestamp_ms = value.commit_timestamp
        self.expire_timestamp_ms = value.expire_timestamp
        self.topic_id = value.topic_id
        self.record_offset = record_offset


TopicOffsets = dict[str, dict[int, CommittedOffset]]


class GroupsOfTopics:
    """topic -> the groups that have something of it, so that a deleted topic is found without a walk through all groups."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, set[str]] = {}

    def add(self, topic: str, group_id: str) -> None:
        groups = self._groups.get(topic)
        if groups is None:
            groups = self._groups[topic] = set()
        groups.add(group_id)

    def remove(self, topic: str, group_id: str) -> None:
        groups = self._groups[topic]
        groups.remove(group_id)
        if not groups:
            del self._groups[topic]

    def of(self, topic: str) -> Collection[str]:
        return self._groups.get(topic, ())


class OffsetTable:
    """group -> topic -> partition -> committed offset, without empty levels."""

    __slots__ = ("_groups", "_groups_of")

    def __init__(self) -> None:
        self._groups: dict[str, TopicOffsets] = {}
        self._groups_of = GroupsOfTopics()

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._groups

    def group(self, group_id: str) -> TopicOffsets:
        return self._groups.get(group_id, {})

    def group_ids(self) -> list[str]:
        """The groups that have offsets."""
        return list(self._groups)

    def groups_of(self, topic: str) -> Collection[str]:
        """The groups that have offsets of a topic."""
        return self._groups_of.of(topic)

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.group(group_id).get(topic, {}).get(partition)

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        self._partitions(group_id, topic)[partition] = committed

    def put_if_newer(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Put what stands in the log behind the offset that is here, if there is one."""
        partitions = self._partitions(group_id, topic)
        known = partitions.get(partition)
        if known is None or committed.record_offset > known.record_offset:
            partitions[partition] = committed

    def _partitions(self, group_id: str, topic: str) -> dict[int, CommittedOffset]:
        """The offsets of a topic, to which one will be added."""
        topics = self._groups.get(group_id)
        if topics is None:
            topics = self._groups[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
            self._groups_of.add(topic, group_id)
        return partitions

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self.group(group_id)
        partitions = topics.get(topic)
        # Empty levels have to go as well: a group that is in the table has offsets.
        if partitions is None or partitions.pop(partition, None) is None or partitions:
            return
        del topics[topic]
        self._groups_of.remove(topic, group_id)
        if not topics:
            del self._groups[group_id]
