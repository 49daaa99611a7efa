import pytest

from ottla.replication.cluster.metadata_cache import (
    BrokerEndpoint,
    BrokerRegistration,
    MetadataCache,
    PartitionState,
    TopicState,
    is_internal_topic,
    topic_name_problem,
)


def topic(name: str, number: int, partitions: int = 1) -> TopicState:
    state = PartitionState(leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
    return TopicState(name, number.to_bytes(16), (state,) * partitions)


def test_topics_are_found_by_name_and_by_id() -> None:
    cluster = MetadataCache()
    first, second = topic("a", 1, 2), topic("b", 2)
    cluster.put_topic(second)
    cluster.put_topic(first)
    assert cluster.topics.get("a") is first
    assert cluster.topic_by_id[second.topic_id] is second
    assert cluster.topic_names() == ["a", "b"]
    assert cluster.partition("a", 1) is first.partitions[1]
    for index in (-1, 2):
        assert cluster.partition("a", index) is None
    assert cluster.partition("c", 0) is None


def test_a_topic_made_again_loses_its_old_id() -> None:
    cluster = MetadataCache()
    cluster.put_topic(topic("a", 1))
    cluster.put_topic(topic("a", 2))
    assert list(cluster.topic_by_id) == [(2).to_bytes(16)]
    cluster.remove_topic("a")
    assert not cluster.topics
    assert not cluster.topic_by_id
    assert cluster.topic_names() == []


def test_every_change_raises_the_version() -> None:
    cluster = MetadataCache()
    seen = [cluster.version]
    cluster.put_topic(topic("a", 1))
    seen.append(cluster.version)
    cluster.remove_topic("a")
    seen.append(cluster.version)
    cluster.put_broker(BrokerRegistration(1, {}))
    seen.append(cluster.version)
    assert seen == sorted(set(seen))


def test_endpoints_belong_to_a_listener() -> None:
    cluster = MetadataCache()
    inside, outside = BrokerEndpoint(1, "a", 1), BrokerEndpoint(1, "b", 2)
    cluster.put_broker(BrokerRegistration(1, {"IN": inside, "OUT": outside}))
    cluster.put_broker(BrokerRegistration(2, {"IN": BrokerEndpoint(2, "c", 3)}))
    assert cluster.endpoint(1, "OUT") is outside
    assert cluster.endpoint(2, "OUT") is None
    assert cluster.endpoint(3, "IN") is None
    assert [each.node_id for each in cluster.endpoints("IN")] == [1, 2]


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "x" * 249, "...", "__consumer_offsets"])
def test_names_that_a_topic_can_have(name: str) -> None:
    assert topic_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("ä", "'ä' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
    ],
)
def test_names_that_a_topic_cannot_have(name: str, reason: str) -> None:
    assert topic_name_problem(name) == f"Topic name is invalid: {reason}"


def test_internal_topics() -> None:
    assert is_internal_topic("__consumer_offsets")
    assert not is_internal_topic("_consumer_offsets")
