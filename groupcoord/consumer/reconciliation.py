"""How a member gets from what it has to what it shall have, one step at each heartbeat (KIP-848).

                         at a heartbeat, if there is another target
    Stable               gives up what is no longer its own    -> UnrevokedPartitions, at its old epoch
                         has nothing to give up                -> Stable or UnreleasedPartitions, at the new epoch
    UnrevokedPartitions  still reports what it has to give up  -> stays, until its rebalance timeout puts it out
                         reports it no more                    -> as from Stable
    UnreleasedPartitions what others have given up is added    -> Stable when nothing is left to wait for
    Unknown              must have given up everything         -> as from Stable; else it is fenced

Members move on their own: nobody waits for all to have given up something. A partition has one owner at any time, because
it stays with its member, also at a later epoch, until that reports it no more.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple, Protocol

from ottla.groupcoord.consumer.member import (
    STABLE,
    UNKNOWN,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    Progress,
)
from ottla.groupcoord.modern.assignments import Assignment, EpochsOfPartitions
from ottla.wire.errors import ErrorCode, KafkaError


class Owned(Protocol):
    """Partitions of one topic that a member says it has."""

    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> list[int]: ...


class Goal(NamedTuple):
    """Where a member is going."""

    epoch: int
    target: Assignment
    topic_ids: Container[bytes]
    """Of the topics that it reads now, which may be others than the target was computed for."""
    owned: Sequence[Owned] | None
    """What it says that it has; None: it did not say."""
    is_taken: Callable[[bytes, int], bool]
    """Whether another member has this partition."""


class _Parts(NamedTuple):
    """What becomes of a member's partitions."""

    kept: dict[bytes, dict[int, int]]
    revoking: dict[bytes, dict[int, int]]
    added: dict[bytes, list[int]]
    some_are_taken: bool


def reconciled(progress: Progress, goal: Goal, *, has_subscription_changed: bool) -> Progress:
    """The next step of a member, which may be none. Raises KafkaError if it has to begin anew."""
    state = progress.state
    if state is STABLE and progress.epoch == goal.epoch:
        return _without_unread(progress, goal) if has_subscription_changed else progress
    if state is UNREVOKED_PARTITIONS and _has_any(goal.owned, progress.revoking):
        return _without_unread(progress, goal) if has_subscription_changed else progress
    if state is UNKNOWN:
        if goal.owned is None or len(goal.owned):
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "The consumer group member is in a unknown state.")
        return _next(progress, goal, goal.epoch)
    return _next(progress, goal, progress.epoch)


def _has_any(owned: Sequence[Owned] | None, partitions: EpochsOfPartitions) -> bool:
    """Whether the member still has one of these. As long as it does not say, it may have all."""
    if owned is None:
        return True
    return any(
        each in partitions.get(topic.topic_id, ())
        for topic in owned
        if topic.topic_id in partitions
        for each in topic.partitions
    )


def _without_unread(progress: Progress, goal: Goal) -> Progress:
    """Take away what the member has stopped reading. Its target, which comes later, may still have it."""
    unread = [each for each in progress.assigned if each not in goal.topic_ids]
    if not unread:
        return progress
    kept = {each: partitions for each, partitions in progress.assigned.items() if each in goal.topic_ids}
    revoking = dict(progress.revoking)
    for topic_id in unread:
        revoking[topic_id] = {**revoking.get(topic_id, {}), **progress.assigned[topic_id]}
    if _has_any(goal.owned, revoking):
        return progress.at(progress.epoch, state=UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking)
    return progress.at(progress.epoch, assigned=kept)


def _next(progress: Progress, goal: Goal, epoch: int) -> Progress:
    """Go on to the target, as far as that is possible now."""
    parts = _divide(progress, goal)
    if parts.revoking and _has_any(goal.owned, parts.revoking):
        return progress.at(epoch, state=UNREVOKED_PARTITIONS, assigned=parts.kept, revoking=parts.revoking)
    for topic_id, partitions in parts.added.items():
        parts.kept.setdefault(topic_id, {}).update(dict.fromkeys(partitions, goal.epoch))
    state = UNRELEASED_PARTITIONS if parts.some_are_taken else STABLE
    return progress.at(goal.epoch, state=state, assigned=parts.kept, revoking={})


def _divide(progress: Progress, goal: Goal) -> _Parts:
    parts = _Parts({}, {}, {}, False)
    some_are_taken = False
    for topic_id in progress.assigned.keys() | goal.target.keys():
        has: Mapping[int, int] = progress.assigned.get(topic_id, {})
        target = goal.target.get(topic_id, frozenset()) if topic_id in goal.topic_ids else frozenset()
        if kept := {each: epoch for each, epoch in has.items() if each in target}:
            parts.kept[topic_id] = kept
        if revoking := {each: epoch for each, epoch in has.items() if each not in target}:
            parts.revoking[topic_id] = revoking
        missing = [each for each in target if each not in has]
        if free := [each for each in missing if not goal.is_taken(topic_id, each)]:
            parts.added[topic_id] = free
        some_are_taken = some_are_taken or len(free) < len(missing)
    return parts._replace(some_are_taken=some_are_taken)
