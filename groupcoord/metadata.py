"""The port to the topics of the cluster, as much as groups need of them.

Nobody is called when a topic changes. `version` rises, and a group looks at its topics again at the next heartbeat of a
member, which is when Kafka does it. Images are immutable: one that has not changed is the same object as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class TopicImage(NamedTuple):
    """A topic, and for each partition the racks of its replicas. A broker without a rack adds none."""

    name: str
    topic_id: bytes
    partition_racks: tuple[frozenset[str], ...]

    @property
    def partition_count(self) -> int:
        return len(self.partition_racks)


class TopicImages(Protocol):
    """The topics that exist at this moment."""

    @property
    def version(self) -> int:
        """Rises whenever a topic was made, deleted or enlarged, or its replicas are on other brokers or racks."""

    def image(self, name: str) -> TopicImage | None: ...

    def image_by_id(self, topic_id: bytes) -> TopicImage | None: ...

    def topic_names(self) -> Sequence[str]:
        """All names in order."""
