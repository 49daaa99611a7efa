"""One member of a consumer group: its metadata, epochs and partitions. Immutable.

A member is in one of Kafka's states, which its record keeps:

    Stable                 it owns its whole assignment
    UnrevokedPartitions    it has to give up partitions first; its next epoch waits until it no longer reports them
    UnreleasedPartitions   it has reached the epoch, and some of its partitions are still with others
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from ottla.groupcoord.consumer.records import (
    ClassicProtocol,
    read_partitions,
    written_partitions,
)
from ottla.groupcoord.consumer.records import ConsumerGroupCurrentMemberAssignmentValue as CurrentAssignment
from ottla.groupcoord.consumer.records import ConsumerGroupMemberMetadataValue as MemberMetadata
from ottla.groupcoord.modern.assignor import EpochsOfPartitions

NO_EPOCH = -1


class MemberState(IntEnum):
    """State of a consumer group member; the numbers are those in Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127
    """State written by a newer broker: the member has to rejoin."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


STABLE, UNREVOKED_PARTITIONS, UNRELEASED_PARTITIONS, UNKNOWN = MemberState


_NO_PARTITIONS: EpochsOfPartitions = {}


class Progress(NamedTuple):
    """Epoch, state and assigned partitions of a member."""

    epoch: int = 0
    previous_epoch: int = NO_EPOCH
    state: MemberState = STABLE
    assigned: EpochsOfPartitions = _NO_PARTITIONS
    revoking: EpochsOfPartitions = _NO_PARTITIONS
    """Partitions that it still has to give up."""

    def at(self, epoch: int, **changes: Any) -> Progress:
        """Return a copy with this epoch and these changes. Its previous epoch is the epoch of this object."""
        return self._replace(epoch=epoch, previous_epoch=self.epoch, **changes)

    def written(self) -> CurrentAssignment:
        return CurrentAssignment(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=written_partitions(self.assigned),
            partitions_pending_revocation=written_partitions(self.revoking),
        )

    @staticmethod
    def read(value: CurrentAssignment) -> Progress:
        return Progress(
            value.member_epoch,
            value.previous_member_epoch,
            MemberState(value.state),
            read_partitions(value.assigned_partitions, value.member_epoch),
            read_partitions(value.partitions_pending_revocation, value.member_epoch),
        )


NOWHERE = Progress()
"""Progress of a member that has just joined."""

SILENT = MemberMetadata(client_id="", client_host="", subscribed_topic_names=[])
"""Metadata of a member of which the log has only the progress so far."""


class Member:
    """Member of a consumer group.

    `written` is its last metadata record, `known_progress` its last current-assignment record; None without a record.
    """

    __slots__ = ("known_progress", "member_id", "pattern", "progress", "topics", "written")

    def __init__(
        self, member_id: str, written: MemberMetadata | None = None, known_progress: Progress | None = None
    ) -> None:
        self.member_id = member_id
        self.written = written
        self.known_progress = known_progress
        self.progress = known_progress or NOWHERE
        self.topics = frozenset(self.words.subscribed_topic_names)
        self.pattern = self.words.subscribed_topic_regex or ""
        """The regular expression by which it reads topics, too."""

    @property
    def words(self) -> MemberMetadata:
        """Metadata that the member sent about itself."""
        return SILENT if self.written is None else self.written

    @property
    def epoch(self) -> int:
        return self.progress.epoch

    @property
    def state(self) -> MemberState:
        return self.progress.state

    @property
    def instance_id(self) -> str | None:
        return self.words.instance_id

    @property
    def classic_protocols(self) -> list[ClassicProtocol] | None:
        """Protocols of a classic member, in its order of preference; None if it uses the consumer protocol."""
        classic = self.words.classic_member_metadata
        return None if classic is None else classic.supported_protocols

    @property
    def uses_classic_protocol(self) -> bool:
        return self.words.classic_member_metadata is not None

    @property
    def classic_session_timeout_ms(self) -> int:
        classic = self.words.classic_member_metadata
        assert classic is not None
        return classic.session_timeout_ms

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Return True if the member has its complete target assignment of epoch `assignment_epoch`."""
        return self.progress.state is STABLE and self.progress.epoch == assignment_epoch

    @property
    def is_gone(self) -> bool:
        """True if the member has no record with a value."""
        return self.written is None and self.known_progress is None

    def may_commit(self, topic_id: bytes, partition: int, epoch: int) -> bool:
        """Tell whether the member has owned the partition since `epoch`. If so, it may commit with that epoch."""
        for partitions in (self.progress.assigned, self.progress.revoking):
            since = partitions.get(topic_id, {}).get(partition)
            if since is not None:
                return since <= epoch
        return False
