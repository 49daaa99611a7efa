"""Which partitions this broker has, by topic and number. Owned by the event loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.replication.partition.traffic import Traffic

if TYPE_CHECKING:
    from ottla.replication.log.storage import LogDirectory
    from ottla.replication.partition.partition import Partition


class Catalogue:
    """See the module's docstring."""

    def __init__(self) -> None:
        # Nested: those of a topic are found without going through all others.
        self._topics: dict[str, dict[int, Partition]] = {}
        self.traffic = Traffic()

    def partition(self, topic: str, index: int) -> Partition | None:
        """A partition this broker has a log of."""
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(index)

    def partitions_of(self, topic: str) -> list[Partition]:
        """The partitions of one topic that are here."""
        return list(self._topics.get(topic, {}).values())

    def topics(self) -> list[str]:
        """The topics that have partitions here."""
        return list(self._topics)

    def partitions(self) -> Iterator[Partition]:
        """All partitions, also those that come or go meanwhile."""
        # Copies, because callers give way between two partitions, and topics are made and deleted meanwhile.
        for topic in list(self._topics):
            yield from self.partitions_of(topic)

    def partitions_in(self, log_directory: LogDirectory) -> list[Partition]:
        """The partitions whose log is in one directory."""
        return [partition for partition in self.partitions() if partition.log.log_directory is log_directory]

    def add(self, partition: Partition) -> None:
        """Let a partition be known."""
        self._topics.setdefault(partition.topic, {})[partition.index] = partition

    def remove(self, topic: str, index: int) -> Partition | None:
        """Forget a partition; answers which it was."""
        of_topic = self._topics.get(topic, {})
        partition = of_topic.pop(index, None)
        # An empty entry for each topic that ever was would stay for the life of the broker.
        if not of_topic and self._topics.pop(topic, None) is not None:
            self.traffic.forget(topic)
        return partition
