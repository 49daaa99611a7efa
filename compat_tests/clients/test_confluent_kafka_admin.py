"""confluent-kafka (librdkafka): every admin call whose API is served."""

import pytest

pytest.importorskip("confluent_kafka")
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)


@pytest.fixture
def admin(bootstrap):
    return AdminClient({"bootstrap.servers": bootstrap})


def only(futures):
    """The result of a call about one thing."""
    [future] = futures.values()
    return future.result(60)


def code_of(error):
    return error.value.args[0].code()


def produce(bootstrap, topic, count, timestamp=0):
    producer = Producer({"bootstrap.servers": bootstrap})
    for i in range(count):
        producer.produce(topic, b"%d" % i, partition=0, timestamp=timestamp + i if timestamp else 0)
    assert producer.flush(60) == 0


def test_topics_are_created_described_grown_and_deleted(admin, unique):
    name = unique("topic")
    new = NewTopic(name, num_partitions=2, replication_factor=1, config={"retention.ms": "60000"})
    only(admin.create_topics([new], validate_only=True))
    assert name not in admin.list_topics(timeout=60).topics
    only(admin.create_topics([new]))
    with pytest.raises(KafkaException) as exists:
        only(admin.create_topics([new]))
    assert code_of(exists) == KafkaError.TOPIC_ALREADY_EXISTS
    only(admin.create_partitions([NewPartitions(name, 4)]))
    described = only(admin.describe_topics(TopicCollection([name])))
    assert [partition.id for partition in described.partitions] == [0, 1, 2, 3]
    assert all(partition.leader.id == partition.isr[0].id for partition in described.partitions)
    assert not described.is_internal
    only(admin.delete_topics([name]))
    with pytest.raises(KafkaException) as unknown:
        only(admin.delete_topics([name]))
    assert code_of(unknown) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("bad/name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("zero-partitions", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("too-many-replicas", 1, 77), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("bad-config", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("unknown-config", 1, 1, config={"no.such.config": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("unknown-broker", 1, replica_assignment=[[77]]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=lambda value: value.topic[:20] if isinstance(value, NewTopic) else "",
)
def test_a_topic_that_cannot_be_is_refused_with_kafkas_code(admin, new, code):
    with pytest.raises(KafkaException) as refusal:
        only(admin.create_topics([new]))
    assert code_of(refusal) == code


def test_partitions_are_never_taken_away(admin, make_topic):
    topic = make_topic(partitions=3)
    for count in (2, 3):
        with pytest.raises(KafkaException) as refusal:
            only(admin.create_partitions([NewPartitions(topic, count)]))
        assert code_of(refusal) == KafkaError.INVALID_PARTITIONS


def topic_configs(admin, topic):
    return only(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))


def test_topic_configs_are_altered_one_by_one(admin, make_topic):
    topic = make_topic()

    def alter(name, value, operation):
        entry = ConfigEntry(name, value, incremental_operation=operation)
        only(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]))
        config = topic_configs(admin, topic)[name]
        return config.value, ConfigSource(config.source)

    assert alter("retention.ms", "5000", AlterConfigOpType.SET) == ("5000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)[0] == "delete,compact"
    assert alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)[0] == "compact"
    assert alter("retention.ms", None, AlterConfigOpType.DELETE) == ("604800000", ConfigSource.DEFAULT_CONFIG)
    for name, value in (("retention.ms", "soon"), ("no.such.config", "1")):
        with pytest.raises(KafkaException) as refusal:
            alter(name, value, AlterConfigOpType.SET)
        assert code_of(refusal) == KafkaError.INVALID_CONFIG


def test_broker_configs_are_described_and_altered(admin, wait_until):
    node_id = str(admin.describe_cluster().result(60).controller.id)
    resource = ConfigResource(ResourceType.BROKER, node_id)
    before = only(admin.describe_configs([resource]))
    assert before["log.retention.hours"].value == "168" and before["log.retention.hours"].is_read_only
    assert before["message.max.bytes"].value == "1048588" and not before["message.max.bytes"].is_read_only

    def alter(value, operation):
        entry = ConfigEntry("message.max.bytes", value, incremental_operation=operation)
        only(
            admin.incremental_alter_configs([ConfigResource(ResourceType.BROKER, node_id, incremental_configs=[entry])])
        )

    def current():
        config = only(admin.describe_configs([resource]))["message.max.bytes"]
        return config.value, ConfigSource(config.source)

    alter("1048599", AlterConfigOpType.SET)
    wait_until(lambda: current() == ("1048599", ConfigSource.DYNAMIC_BROKER_CONFIG), "the new value is in force")
    alter(None, AlterConfigOpType.DELETE)
    wait_until(lambda: current() == ("1048588", ConfigSource.DEFAULT_CONFIG), "the default is back")


@pytest.mark.one_broker("it counts them")
def test_the_cluster_is_described(admin, broker):
    cluster = admin.describe_cluster().result(60)
    [node] = cluster.nodes
    assert (node.host, node.port) == (broker.host, broker.port)
    assert cluster.controller.id == node.id
    assert cluster.cluster_id == admin.list_topics(timeout=60).cluster_id and cluster.cluster_id


def test_offsets_are_listed_by_every_kind_of_query(admin, bootstrap, topic):
    produce(bootstrap, topic, 20, timestamp=9000)

    def offset(spec):
        return only(admin.list_offsets({TopicPartition(topic, 0): spec})).offset

    only(admin.delete_records([TopicPartition(topic, 0, 3)]))
    assert offset(OffsetSpec.earliest()) == 3
    assert offset(OffsetSpec.latest()) == 20
    assert offset(OffsetSpec.max_timestamp()) == 19
    assert offset(OffsetSpec.for_timestamp(9010)) == 10
    assert offset(OffsetSpec.for_timestamp(99_000)) == -1


def test_deleted_records_are_gone_for_consumers(admin, bootstrap, topic):
    produce(bootstrap, topic, 10)
    assert only(admin.delete_records([TopicPartition(topic, 0, 6)])).low_watermark == 6
    with pytest.raises(KafkaException) as refusal:
        only(admin.delete_records([TopicPartition(topic, 0, 11)]))
    assert code_of(refusal) == KafkaError.OFFSET_OUT_OF_RANGE
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(60).offset() == 6
    consumer.close()


@pytest.fixture
def member(bootstrap, topic, unique):
    """A consumer that is alone in its group."""
    settings = {"bootstrap.servers": bootstrap, "group.id": unique("group"), "client.id": "tester"}
    consumer = Consumer(settings | {"group.instance.id": "instance-1", "session.timeout.ms": 6000})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    yield consumer, settings["group.id"]
    consumer.close()


def test_a_group_with_a_member_is_listed_described_and_protected(admin, member, topic):
    consumer, group = member
    listed = {entry.group_id: entry for entry in admin.list_consumer_groups().result(60).valid}
    assert listed[group].state == ConsumerGroupState.STABLE and not listed[group].is_simple_consumer_group
    stable_only = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(60).valid
    assert group not in {entry.group_id for entry in stable_only}
    described = only(admin.describe_consumer_groups([group]))
    assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
    [described_member] = described.members
    assert (described_member.client_id, described_member.group_instance_id) == ("tester", "instance-1")
    assert described_member.member_id == consumer.memberid()
    assert [(p.topic, p.partition) for p in described_member.assignment.topic_partitions] == [(topic, 0)]
    with pytest.raises(KafkaException) as refusal:
        only(admin.delete_consumer_groups([group]))
    assert code_of(refusal) == KafkaError.NON_EMPTY_GROUP


def test_a_groups_offsets_are_altered_listed_and_deleted_with_it(admin, bootstrap, topic, unique):
    produce(bootstrap, topic, 5)
    group = unique("group")
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 4)])
    only(admin.alter_consumer_group_offsets([wanted]))
    listed = only(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    assert [(p.topic, p.partition, p.offset) for p in listed.topic_partitions] == [(topic, 0, 4)]
    only(admin.delete_consumer_groups([group]))
    with pytest.raises(KafkaException) as unknown:
        only(admin.delete_consumer_groups([group]))
    assert code_of(unknown) == KafkaError.GROUP_ID_NOT_FOUND
    assert only(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])).topic_partitions == []
