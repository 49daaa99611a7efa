"""The hash of topics, against Kafka's library."""

import pytest
from xxhash import xxh3_64_intdigest

from ottla.groupcoord import topic_images
from ottla.groupcoord.topic_images import TopicImage, _described, hash_of_topics

TOPIC_ID = bytes.fromhex("01020304050607081112131415161718")


def signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def topic(name: str = "topic", *racks: str, count: int = 3, topic_id: bytes = TOPIC_ID) -> TopicImage:
    return TopicImage(name, topic_id, (frozenset(racks),) * count)


def test_the_hash_of_a_topic_is_kafkas() -> None:
    """Computed with hash4j, the library that Kafka uses, in the order of Kafka's Utils.computeTopicHash."""
    image = topic("topic-\u00fc", "rack1", "rack0")
    assert signed(xxh3_64_intdigest(_described(image))) == 6899705305923587461


def test_the_hash_of_several_topics_depends_on_their_names_and_not_on_the_order() -> None:
    left, right = topic("a"), topic("b", topic_id=bytes(16))
    assert hash_of_topics([left, right]) == hash_of_topics([right, None, left])
    assert hash_of_topics([left]) != hash_of_topics([right])
    assert hash_of_topics([]) == hash_of_topics([None]) == 0
    assert -(1 << 63) <= hash_of_topics([left, right]) < 1 << 63


@pytest.mark.parametrize("other", [topic("other"), topic(count=4), topic("topic", "rack"), topic(topic_id=bytes(16))])
def test_every_change_of_a_topic_changes_the_hash(other: TopicImage) -> None:
    before = hash_of_topics([topic()])
    assert hash_of_topics([other]) != before
    assert hash_of_topics([topic()]) == before, "also if the name has been seen with another image"


def test_hashes_of_very_many_topics_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[str] = []
    of = topic_images._described

    def counted(image: TopicImage) -> bytes:
        described.append(image.name)
        return of(image)

    monkeypatch.setattr(topic_images, "_described", counted)
    images = [TopicImage(f"t{number}", number.to_bytes(16, "big"), ()) for number in range(12_000)]
    assert hash_of_topics(images) == hash_of_topics(images)
    assert len(described) == len(images)


def test_each_partition_counts_with_its_own_racks() -> None:
    racks = (frozenset({"b", "a"}), frozenset(), frozenset({"c"}))
    described = _described(TopicImage("t", TOPIC_ID, racks))
    encoded = {rack: b"\1\0\0\0" + rack.encode("utf-16-le") + b"\1\0\0\0" for rack in "abc"}
    assert described.endswith(
        b"\3\0\0\0" + b"\0\0\0\0" + encoded["a"] + encoded["b"] + b"\1\0\0\0" + b"\2\0\0\0" + encoded["c"]
    )
