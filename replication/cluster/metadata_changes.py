"""Changes of the metadata cache as happenings: leaders, replicas in sync, deleted topics.

Called with the state before and after. A start notes nothing, because there is no state before it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from ottla.replication.cluster.metadata_cache import NO_LEADER, MetadataCache, PartitionState, TopicState
from ottla.wire.happenings import ISR_CHANGE, LEADER_CHANGE, TOPIC_DELETED, Note

NOTED_PER_TOPIC = 20
"""Partitions of a topic that get happenings of their own in one change; a fallen broker may have led thousands."""


def note_changes(note: Note, cluster: MetadataCache, before: TopicState, after: TopicState | None) -> None:
    """Note what has changed about a topic. `after` None: it was deleted."""
    if after is None:
        note(TOPIC_DELETED, f"topic {before.name!r} was deleted", topic=before.name)
        return
    if before.topic_id != after.topic_id:
        note(TOPIC_DELETED, f"topic {before.name!r} was deleted and created again", topic=before.name)
        return
    left = NOTED_PER_TOPIC
    for index, (was, now) in enumerate(zip(before.partitions, after.partitions, strict=False)):
        # Nearly all are the same objects.
        if was is now or (was.leader == now.leader and was.isr == now.isr):
            continue
        _note_partition(note, cluster.brokers, after.name, index, was, now)
        left -= 1
        if not left:
            note(LEADER_CHANGE, f"further partitions of topic {after.name!r} changed with these", topic=after.name)
            return


def _note_partition(
    note: Note, live: Container[int], topic: str, index: int, was: PartitionState, now: PartitionState
) -> None:
    name = f"{topic}-{index}"
    if was.leader != now.leader:
        cause = _leader_change(name, live, was, now)
        epoch = now.leader_epoch
        note(LEADER_CHANGE, cause, topic=topic, partition=index, leader=now.leader, leader_epoch=epoch)
    else:
        note(ISR_CHANGE, _isr_change(name, live, was, now), topic=topic, partition=index)


def _leader_change(name: str, live: Container[int], was: PartitionState, now: PartitionState) -> str:
    if now.leader == NO_LEADER:
        return f"{name} has no leader any more: none of its replicas in sync ({_listed(was.isr)}) is alive"
    if was.leader == NO_LEADER:
        return f"{name} has a leader again: broker {now.leader}, in leader epoch {now.leader_epoch}"
    cause = f"the leader of {name} changed from broker {was.leader} to {now.leader} (leader epoch {now.leader_epoch})"
    if was.leader not in live:
        return f"{cause}, because broker {was.leader} is gone"
    if was.leader not in now.replicas:
        return f"{cause}, because a reassignment moved the replica of broker {was.leader}"
    if was.leader not in now.isr:
        return f"{cause}, because broker {was.leader} is in sync no more, or stops"
    if now.replicas and now.replicas[0] == now.leader:
        return f"{cause}, because that is the preferred leader"
    return f"{cause}, by an election of the controller"


def _isr_change(name: str, live: Container[int], was: PartitionState, now: PartitionState) -> str:
    cause = f"the replicas of {name} in sync changed from {_listed(was.isr)} to {_listed(now.isr)}"
    gone = [each for each in was.isr if each not in now.isr]
    come = [each for each in now.isr if each not in was.isr]
    dead = [each for each in gone if each not in live]
    late = [each for each in gone if each in live]
    reasons = [
        *([f"{_brokers(dead)} gone"] if dead else []),
        *([f"{_brokers(late)} behind for replica.lag.time.max.ms, or stopping"] if late else []),
        *([f"{_brokers(come)} in sync again"] if come else []),
    ]
    return f"{cause}, because {' and '.join(reasons)}" if reasons else cause


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers)) or "none"


def _brokers(brokers: list[int]) -> str:
    return f"broker {brokers[0]} is" if len(brokers) == 1 else f"brokers {_listed(brokers)} are"
