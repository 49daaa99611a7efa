"""The topics of the cluster as groups see them, and the hash by which a group sees that its own have changed.

No callback runs when a topic changes. `TopicImages.version` rises, and a group looks at its topics again at the next
heartbeat of a member, which is when Kafka does it. Images are immutable: one that has not changed is the same object as before.

Groups keep the hash of their topics in their records. It is Kafka's own number, so that a group that moves between brokers
of both makes does not rebalance for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import iter_unpack, pack
from typing import NamedTuple, Protocol


class TopicImage(NamedTuple):
    """Topic with the racks of each partition's replicas. Replicas on brokers without a rack are left out."""

    name: str
    topic_id: bytes
    partition_racks: tuple[frozenset[str], ...]

    @property
    def partition_count(self) -> int:
        return len(self.partition_racks)


class TopicImages(Protocol):
    """Interface to the topics that exist at the moment."""

    @property
    def version(self) -> int:
        """Number that rises when a topic is created, deleted or extended, or when replicas move."""

    def image(self, name: str) -> TopicImage | None: ...

    def image_by_id(self, topic_id: bytes) -> TopicImage | None: ...

    def topic_names(self) -> Sequence[str]:
        """Return the names of all topics in order."""


MAGIC = b"\0"
CACHED_MAX = 100_000
"""Topics whose hash is remembered, as many as a cluster may have: groups that read one topic more than are remembered would
rebuild all images each time."""

_known: dict[str, tuple[TopicImage, bytes]] = {}


def hash_of_topics(images: Iterable[TopicImage | None]) -> int:
    """Return Kafka's signed 64-bit hash of these topics; 0 without topics. Images that are None are skipped."""
    from xxhash import xxh3_64_digest, xxh3_64_intdigest  # here, because a start needs no hash

    existing = {image.name: image for image in images if image is not None}
    if not existing:
        return 0
    hashes: list[bytes] = []
    # Java sorts names by their UTF-16 units. Names of topics are ASCII.
    for name in sorted(existing):
        image = existing[name]
        known = _known.get(name)
        # Images are immutable, and one that has not changed is the same object.
        if known is None or known[0] is not image:
            if len(_known) >= CACHED_MAX:
                _known.clear()
            known = _known[name] = image, xxh3_64_digest(_described(image))[::-1]  # the digest is big-endian
        hashes.append(known[1])
    hashed = xxh3_64_intdigest(b"".join(hashes))
    return hashed - (1 << 64) if hashed >> 63 else hashed


def _described(image: TopicImage) -> bytes:
    """Return the hash input of one topic: id, name, and racks of each partition. Kafka writes a UUID as two numbers."""
    most, least = image.topic_id[:8][::-1], image.topic_id[8:][::-1]
    count = image.partition_count
    # In C, because there may be a hundred thousand partitions, and other requests wait meanwhile.
    partitions = pack(f"<{count}I", *range(count))
    described = {racks: _described_racks(racks) for racks in set(image.partition_racks)}
    if any(described.values()):
        parts = [b""] * (2 * count)
        parts[::2] = [number for (number,) in iter_unpack("4s", partitions)]
        parts[1::2] = map(described.__getitem__, image.partition_racks)
        partitions = b"".join(parts)
    return b"".join((MAGIC, most, least, _text(image.name), _number(count), partitions))


@lru_cache(maxsize=1000)
def _described_racks(racks: frozenset[str]) -> bytes:
    return b"".join([_number(_units(rack)) + _text(rack) for rack in sorted(racks)])


def _number(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _text(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass") + _number(_units(text))
