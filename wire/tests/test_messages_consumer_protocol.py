"""What a broker reads out of a consumer's subscription."""

import pytest

from ottla.wire.errors import ProtocolViolation
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition, decode_subscription

SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=["flights", "weather"],
    user_data=b"sticky",
    owned_partitions=[TopicPartition(topic="flights", partitions=[0, 2])],
    generation_id=7,
    rack_id="r1",
)


@pytest.mark.parametrize("version", range(4))
def test_every_version_names_the_topics(version: int) -> None:
    blob = version.to_bytes(2, "big") + SUBSCRIPTION.encode(version)
    decoded = decode_subscription(blob)
    assert (decoded.topics, decoded.user_data) == (SUBSCRIPTION.topics, SUBSCRIPTION.user_data)


@pytest.mark.parametrize("version", [4, 100, 32767])
def test_a_newer_version_is_read_as_the_newest_known(version: int) -> None:
    blob = version.to_bytes(2, "big") + SUBSCRIPTION.encode(3) + b"what a later version appends"
    assert decode_subscription(blob) == SUBSCRIPTION


@pytest.mark.parametrize(
    "blob", [b"", b"\x00", b"\x00\x00", b"\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff", b"\x00\x00\x00"]
)
def test_anything_else_violates_the_protocol(blob: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode_subscription(blob)
