"""The topics of the cluster as group coordinators see them."""

from ottla.replication.cluster.metadata_cache import BrokerRegistration, MetadataCache, PartitionState, TopicState
from ottla.server.coordinator_factory import ClusterTopicImages

TOPIC_ID = bytes(range(16))


def partition(*replicas: int, leader: int = 1) -> PartitionState:
    return PartitionState(leader, 0, replicas, replicas)


def topic(*partitions: PartitionState, name: str = "topic", topic_id: bytes = TOPIC_ID) -> TopicState:
    return TopicState(name, topic_id, partitions)


def racked(**racks: str | None) -> list[BrokerRegistration]:
    return [BrokerRegistration(int(node[1:]), {}, rack) for node, rack in racks.items()]


def cluster_of(**racks: str | None) -> tuple[MetadataCache, ClusterTopicImages]:
    cluster = MetadataCache()
    images = ClusterTopicImages(cluster)
    cluster.put_brokers(racked(**racks), controller_id=1)
    return cluster, images


def test_an_image_has_the_racks_of_each_partition() -> None:
    cluster, images = cluster_of(n1="a", n2="b", n3=None)
    cluster.put_topic(topic(partition(1, 2), partition(3), partition(2, 9)))
    image = images.image("topic")
    assert image is not None and image.partition_count == 3 and image.topic_id == TOPIC_ID
    assert image.partition_racks == (frozenset("ab"), frozenset(), frozenset("b"))
    assert images.image_by_id(TOPIC_ID) is image
    assert images.image("other") is None and images.image_by_id(bytes(16)) is None
    assert list(images.topic_names()) == ["topic"]


def test_topics_that_were_there_before_are_seen() -> None:
    cluster = MetadataCache()
    cluster.put_topic(topic(partition(1)))
    images = ClusterTopicImages(cluster)
    version = images.version
    cluster.put_topic(topic(partition(1, leader=-1)))
    assert images.version == version


def test_the_version_rises_with_what_an_image_shows_and_nothing_else() -> None:
    cluster, images = cluster_of(n1="a", n2="b")
    seen = {images.version}

    def has_risen() -> bool:
        risen = images.version > max(seen)
        seen.add(images.version)
        return risen

    cluster.put_topic(topic(partition(1)))
    assert has_risen()
    before = images.image("topic")
    cluster.put_topic(topic(partition(1, leader=-1)))
    assert not has_risen() and images.image("topic") is before, "another leader"
    cluster.put_topic(topic(partition(1), partition(1)))
    assert has_risen() and images.image("topic") != before, "more partitions"
    cluster.put_topic(topic(partition(1), partition(2)))
    assert has_risen(), "other replicas"
    cluster.put_topic(topic(partition(1), partition(2), topic_id=bytes(15) + b"x"))
    assert has_risen(), "made anew under the same name"
    cluster.remove_topic("topic")
    assert has_risen() and images.image("topic") is None


def test_a_broker_that_is_away_keeps_its_rack() -> None:
    cluster, images = cluster_of(n1="a", n2="b")
    cluster.put_topic(topic(partition(1, 2)))
    before, version = images.image("topic"), images.version
    cluster.put_brokers(racked(n1="a"), controller_id=1)
    assert images.image("topic") is before and images.version == version
    cluster.put_brokers(racked(n1="a", n2="c"), controller_id=1)
    image = images.image("topic")
    assert image is not None and image.partition_racks == (frozenset("ac"),) and images.version > version
    cluster.put_brokers(racked(n1="a", n2=None), controller_id=1)
    image = images.image("topic")
    assert image is not None and image.partition_racks == (frozenset("a"),)
