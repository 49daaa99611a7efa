"""The topics of the cluster as group coordinators see them: the port `TopicImages` over the picture of the cluster.

Most changes of that picture are none to groups: leaders and in-sync replicas come and go. `version` rises only with what
an image shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.groupcoord.topic_images import TopicImage
from ottla.replication.cluster.metadata_cache import MetadataCache, TopicState


class ClusterTopicImages:
    """Topic images made from the metadata cache."""

    def __init__(self, cluster: MetadataCache) -> None:
        self._cluster = cluster
        self._seen: dict[str, TopicState] = dict(cluster.topics)
        self._images: dict[str, TopicImage] = {}  # of the topics that somebody has asked for
        self._racks: dict[int, str] = {}
        self.version = 0
        cluster.on_topic_change(self._on_topic_change)
        cluster.on_broker_change(self._on_broker_change)

    def image(self, name: str) -> TopicImage | None:
        known = self._images.get(name)
        if known is not None:
            return known
        topic = self._cluster.topic(name)
        if topic is None:
            return None
        # Partitions with the same replicas share one set.
        racks = {each.replicas: frozenset(self._racks_of(each.replicas)) for each in topic.partitions}
        made = TopicImage(name, topic.topic_id, tuple([racks[each.replicas] for each in topic.partitions]))
        self._images[name] = made
        return made

    def image_by_id(self, topic_id: bytes) -> TopicImage | None:
        topic = self._cluster.topic_by_id.get(topic_id)
        return None if topic is None else self.image(topic.name)

    def topic_names(self) -> Sequence[str]:
        return self._cluster.topic_names()

    def _racks_of(self, brokers: Sequence[int]) -> list[str]:
        return [self._racks[broker] for broker in brokers if broker in self._racks]

    def _on_topic_change(self, name: str) -> None:
        old, new = self._seen.get(name), self._cluster.topic(name)
        if new is None:
            self._seen.pop(name, None)
        else:
            self._seen[name] = new
        if not _looks_the_same(old, new):
            self._images.pop(name, None)
            self.version += 1

    def _on_broker_change(self) -> None:
        # A broker that is gone keeps its rack, as a registration does in Kafka. It will be back, and groups need not
        # rebalance for it.
        racks = {broker.node_id: broker.rack for broker in self._cluster.brokers.values()}
        changed = {broker for broker, rack in racks.items() if self._racks.get(broker) != rack}
        if not changed:
            return
        for broker in changed:
            self._racks.pop(broker, None)
            if (rack := racks[broker]) is not None:
                self._racks[broker] = rack
        self._images.clear()
        self.version += 1


def _looks_the_same(old: TopicState | None, new: TopicState | None) -> bool:
    """True if no image of the topic would be another one than before."""
    if old is None or new is None:
        return old is new
    if old.topic_id != new.topic_id or len(old.partitions) != len(new.partitions):
        return False
    return all(was.replicas == each.replicas for was, each in zip(old.partitions, new.partitions, strict=True))
