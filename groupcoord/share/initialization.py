"""Which share partitions of a group the share coordinator knows, as far as the group coordinator does.

A member may read a partition only when its state exists at the share coordinator, another broker perhaps. So what is
written here has two phases:

    (unknown) --begin--> initializing --confirm--> initialized --delete--> deleting --forget--> (unknown)
                              |                         |
                              +----- give up: (unknown) +----- the topic is gone: (unknown)

A partition is initializing before the request goes out, and initialized when its answer has come. If the answer never comes,
a later heartbeat asks again. Topics are deleting as a whole. `begin` ends the deletion of a topic: it counts anew.

Invariants: a topic that is deleting is neither initializing nor initialized by a deletion of offsets or of the group; no
topic is without partitions in either phase.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ottla.groupcoord.share.records import (
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)


class KnownTopic(NamedTuple):
    """Partitions of a topic that are in one phase, and the topic's name."""

    name: str
    partitions: frozenset[int]


Topics = Mapping[bytes, KnownTopic]
PartitionsByTopic = Mapping[bytes, Collection[int]]


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """The share partitions of one group by their phase. Never changed: another one takes its place, and may be undone."""

    initializing: Topics = field(default_factory=dict)
    initialized: Topics = field(default_factory=dict)
    deleting: Mapping[bytes, str] = field(default_factory=dict)
    """Names by the ids of topics."""

    def knows(self, topic_id: bytes) -> bool:
        """Whether some partition of the topic has been begun."""
        return topic_id in self.initialized or topic_id in self.initializing

    def begin(self, topics: Topics) -> StatePartitions:
        initializing = united(self.initializing, topics)
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in initializing}
        return replace(self, initializing=initializing, deleting=deleting)

    def confirm(self, partitions: PartitionsByTopic) -> StatePartitions:
        """The share coordinator knows these now. What is not initializing any more was taken back meanwhile."""
        confirmed = {
            topic_id: KnownTopic(known.name, known.partitions.intersection(partitions.get(topic_id, ())))
            for topic_id, known in self.initializing.items()
        }
        initialized = united(self.initialized, _present(confirmed))
        return replace(self, initializing=without(self.initializing, partitions), initialized=initialized)

    def give_up(self, partitions: PartitionsByTopic) -> StatePartitions:
        """The share coordinator has refused these. A heartbeat begins them again."""
        return replace(self, initializing=without(self.initializing, partitions))

    def delete_all(self, again: Topics) -> tuple[StatePartitions, Topics]:
        """The group is to go: everything is deleting; also what has to be deleted. `again`: what was deleting before."""
        doomed = united(united(self.initialized, self.initializing), again)
        return StatePartitions(deleting={topic_id: known.name for topic_id, known in doomed.items()}), doomed

    def delete(self, topic_ids: Collection[bytes]) -> StatePartitions:
        """Topics whose offsets are to go."""
        deleting = dict(self.deleting)
        deleting |= {each: known.name for each, known in self.initialized.items() if each in topic_ids}
        initialized = {each: known for each, known in self.initialized.items() if each not in topic_ids}
        return replace(self, initialized=initialized, deleting=deleting)

    def forget_deleted(self, topic_ids: Collection[bytes]) -> StatePartitions:
        """The share coordinator does not know these any more."""
        return replace(self, deleting={each: name for each, name in self.deleting.items() if each not in topic_ids})

    def forget_topics(self, topic_ids: Collection[bytes]) -> StatePartitions:
        """These topics are gone. The share coordinator has noticed it itself."""
        return StatePartitions(
            {each: known for each, known in self.initializing.items() if each not in topic_ids},
            {each: known for each, known in self.initialized.items() if each not in topic_ids},
            {each: name for each, name in self.deleting.items() if each not in topic_ids},
        )

    def mentions(self, topic_ids: Collection[bytes]) -> bool:
        """Whether any of these topics is in any phase."""
        return any(
            each in topic_ids for phase in (self.initializing, self.initialized, self.deleting) for each in phase
        )

    # ------------------------------------------------------------------ their record

    @classmethod
    def of_record(cls, value: ShareGroupStatePartitionMetadataValue) -> StatePartitions:
        return cls(
            _of_infos(value.initializing_topics),
            _of_infos(value.initialized_topics),
            {each.topic_id: each.topic_name for each in value.deleting_topics},
        )

    def record(self) -> ShareGroupStatePartitionMetadataValue:
        return ShareGroupStatePartitionMetadataValue(
            initializing_topics=_infos(self.initializing),
            initialized_topics=_infos(self.initialized),
            deleting_topics=[TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in self.deleting.items()],
        )


def united(topics: Topics, more: Topics) -> dict[bytes, KnownTopic]:
    """Both together, without topics that have no partitions. Of two names the later one counts."""
    found = dict(topics)
    for topic_id, known in more.items():
        before = found.get(topic_id)
        found[topic_id] = known if before is None else KnownTopic(known.name, before.partitions | known.partitions)
    return _present(found)


def without(topics: Topics, partitions: PartitionsByTopic) -> dict[bytes, KnownTopic]:
    """The first without the second."""
    return _present(
        {
            topic_id: KnownTopic(known.name, known.partitions.difference(partitions.get(topic_id, ())))
            for topic_id, known in topics.items()
        }
    )


def _present(topics: Topics) -> dict[bytes, KnownTopic]:
    return {topic_id: known for topic_id, known in topics.items() if known.partitions}


def _of_infos(infos: Iterable[TopicPartitionsInfo]) -> dict[bytes, KnownTopic]:
    return {each.topic_id: KnownTopic(each.topic_name, frozenset(each.partitions)) for each in infos}


def _infos(topics: Topics) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=known.name, partitions=sorted(known.partitions))
        for topic_id, known in topics.items()
    ]
