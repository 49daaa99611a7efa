"""The topics of the cluster as groups see them, and the hash by which a group sees that its own have changed.

Nobody is called when a topic changes. `TopicImages.version` rises, and a group looks at its topics again at the next
heartbeat of a member, which is when Kafka does it. Images are immutable: one that has not changed is the same object as before.

Groups keep the hash of their topics in their records. It is Kafka's own number, so that a group that moves between brokers
of both makes does not rebalance for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from ottla.groupcoord.xxh3 import xxh3_64


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


MAGIC = b"\0"
CACHED_MAX = 100_000
"""Topics whose hash is remembered; a topic of thousands of partitions takes a millisecond. As many as a cluster may have: groups
that read one more than are remembered would have all of them made anew, each time."""

_known: dict[str, tuple[TopicImage, int]] = {}


def hash_of_topics(images: Iterable[TopicImage | None]) -> int:
    """A signed number of 64 bits; topics that do not exist do not count, and without topics it is 0."""
    existing = {image.name: image for image in images if image is not None}
    if not existing:
        return 0
    # Java sorts names by their UTF-16 units. Names of topics are ASCII.
    hashes = b"".join([_hash_of_topic(existing[name]).to_bytes(8, "little") for name in sorted(existing)])
    hashed = xxh3_64(hashes)
    return hashed - (1 << 64) if hashed >> 63 else hashed


def _hash_of_topic(image: TopicImage) -> int:
    known = _known.get(image.name)
    # Images are immutable, and one that has not changed is the same object.
    if known is not None and known[0] is image:
        return known[1]
    hashed = xxh3_64(_described(image))
    if len(_known) >= CACHED_MAX:
        _known.clear()
    _known[image.name] = image, hashed
    return hashed


def _described(image: TopicImage) -> bytes:
    """Hashed bytes: the id, the name, and the racks of each partition. Kafka writes a UUID as two numbers."""
    most, least = image.topic_id[:8][::-1], image.topic_id[8:][::-1]
    head = b"".join((MAGIC, most, least, _text(image.name), _number(image.partition_count)))
    # Nearly all partitions have the same racks, and there may be ten thousand of them.
    described = {
        racks: b"".join([_number(_units(rack)) + _text(rack) for rack in sorted(racks)])
        for racks in set(image.partition_racks)
    }
    return head + b"".join(
        [index.to_bytes(4, "little") + described[racks] for index, racks in enumerate(image.partition_racks)]
    )


def _number(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _text(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass") + _number(_units(text))
