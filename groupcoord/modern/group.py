"""What groups have in common whose assignments the broker makes: consumer, share and streams groups.

What a member has to do is told by three epochs. The *group epoch* rises when members, subscriptions or topics change. The
*assignment epoch* is the group epoch for which the *target assignment* was computed: what each member shall have. A *member
epoch* is the assignment epoch that the member has reached.

Invariants: the assignment epoch is never ahead of the group epoch, and a member's epoch is never ahead of the assignment
epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from ottla.groupcoord.effects import Effects, Steps, in_pieces
from ottla.groupcoord.metadata import TopicImages
from ottla.groupcoord.modern.assignments import NOTHING, Assignment
from ottla.groupcoord.modern.subscriptions import Subscriptions
from ottla.groupcoord.rebalance_log import LastRebalance
from ottla.groupcoord.records import GroupRecord
from ottla.groupcoord.topic_hashes import hash_of_topics

MemberT = TypeVar("MemberT")
TargetT = TypeVar("TargetT")

FIRST_EPOCH = 1
"""That of the group and of its assignment before the first record; the first one has the next epoch, as in Kafka."""

NEVER = -1
"""In place of the version of the topics at which a group looked at them last."""

JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2
"""What a member's heartbeat has in place of its epoch when it comes, when it goes, and when it goes for a while."""


class EpochGroup(Generic[MemberT, TargetT]):
    """Epochs, members and targets of one group; see the module's docstring."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.metadata: Any | None = None
        """The value of the group's own record, and of that of its target assignment; None: there is none."""
        self.target_metadata: Any | None = None
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        """When the target assignment was computed; 0: there is none, or the next one may come at once."""
        self.members: dict[str, MemberT] = {}
        self.targets: dict[str, TargetT] = {}
        self.last_rebalance: LastRebalance | None = None
        """For people; None: none since this broker coordinates the group."""
        self.seen_topics = NEVER
        self.computation: object | None = None
        """The one whose target assignment is being computed in a thread; any other comes too late."""

    def has_seen(self, topics: TopicImages) -> bool:
        """Whether no topic of the cluster has changed since the group looked at its own."""
        return self.seen_topics == topics.version

    def forget_refused_epoch(self) -> None:
        """The log has refused the group's next epoch: what was found out for it does not count."""
        self.seen_topics = NEVER
        # Another epoch of this number may have other members, who would get nothing of the assignment for this one.
        self.computation = None

    def may_assign(self, interval_ms: int, timestamp_ms: int) -> bool:
        """Whether the next target assignment may be computed now, so that changes that come together cost one."""
        # The interval 0 helps when somebody has set the clock far back.
        if not self.assignment_timestamp_ms or not interval_ms:
            return True
        return timestamp_ms >= self.assignment_timestamp_ms + interval_ms

    def set_target(self, member_id: str, target: TargetT | None) -> None:
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def replace_targets(self, targets: dict[str, TargetT]) -> None:
        """Put the targets of all members in force in one step."""
        self.targets = targets

    # ------------------------------------------------------------------ records that are alike in all kinds

    def replay_metadata(self, key: Any, value: Any | None) -> None:
        self.metadata = value
        self.group_epoch = FIRST_EPOCH if value is None else value.epoch
        self.metadata_hash = 0 if value is None else value.metadata_hash

    def metadata_value(self, key: Any) -> Any | None:
        return self.metadata

    def replay_target_metadata(self, key: Any, value: Any | None) -> None:
        self.target_metadata = value
        self.assignment_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
        self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def target_metadata_value(self, key: Any) -> Any | None:
        return self.target_metadata


def put_targets(
    effects: Effects,
    group: EpochGroup[Any, TargetT],
    computed: Iterable[tuple[str, TargetT]],
    written: Callable[[str, TargetT], GroupRecord],
    read: Callable[[Any], TargetT],
) -> Steps:
    """Write the targets of members that are new or others than before, in steps, and put all in force in the last one.

    `written` makes the record of a target, and `read` the target of the record's value. Until the record with their epoch
    is in the log the targets count for nobody, and the next heartbeat has them computed anew.
    """
    before, after = group.targets, dict(group.targets)
    made: list[GroupRecord] = []

    def take(each: tuple[str, TargetT]) -> None:
        member_id, target = each
        if target != before.get(member_id):
            record = written(member_id, target)
            after[member_id] = read(record.value)
            made.append(record)

    yield from in_pieces(computed, take)
    effects.be_cuttable()
    effects.records += made
    effects.undo_if_refused(partial(group.replace_targets, before))
    group.replace_targets(after)


class ModernGroup(EpochGroup[MemberT, Assignment]):
    """A group whose members read partitions of topics that they name (Kafka's ModernGroup)."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.subscriptions = Subscriptions()
        self._hash = 0  # of these topics:
        self._hashed: tuple[int, tuple[int, int]] | None = None

    def target_of(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NOTHING)

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members read the same topics."""
        return self.subscriptions.are_alike(len(self.members))

    def hash_of(self, topics: TopicImages) -> int:
        """What tells apart its topics as they are now from what they were."""
        # Members come and go more often than topics, of which there may be thousands.
        hashed = topics.version, self.subscriptions.revision
        if self._hashed != hashed:
            self._hash = hash_of_topics(map(topics.image, self.subscriptions.topics))
            self._hashed = hashed
        return self._hash

    def changed_targets(self, computed: Mapping[str, Assignment]) -> dict[str, Assignment]:
        """The targets of members that are new or others than before."""
        changed = {}
        for member_id in self.members:
            target = computed.get(member_id, NOTHING)
            if target != self.targets.get(member_id):
                changed[member_id] = target
        return changed
