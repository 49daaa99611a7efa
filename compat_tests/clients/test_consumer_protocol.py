"""Groups whose assignments the broker makes (KIP-848), with librdkafka: group.protocol=consumer."""

import contextlib
import time

import pytest

pytest.importorskip("confluent_kafka")
from confluent_kafka import Consumer, ConsumerGroupState, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

DEADLINE_S = 60


@pytest.fixture(scope="module")
def bootstrap(bootstrap_of_quick_groups):
    return bootstrap_of_quick_groups


@pytest.fixture
def group(unique):
    return unique("group")


@pytest.fixture
def member(bootstrap, group):
    """Makes members of the group; `protocol` may be "classic"."""
    with contextlib.ExitStack() as stack:

        def make(protocol="consumer", **options):
            settings = {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
            }
            if protocol == "classic":
                settings |= {"heartbeat.interval.ms": 100}
                settings |= {"partition.assignment.strategy": "cooperative-sticky"}
            consumer = Consumer(settings | {name.replace("_", "."): value for name, value in options.items()})
            stack.callback(consumer.close)
            return consumer

        yield make


@pytest.fixture
def admin(bootstrap):
    return AdminClient({"bootstrap.servers": bootstrap})


def poll_until(condition, *members):
    """Let the members poll until something is true, for a minute at most. Returns their messages."""
    messages, end_s = [], time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s
        for each in members:
            message = each.poll(0.05)
            if message is not None:
                assert message.error() is None
                messages.append(message)
    return messages


def owned(consumer):
    return {(each.topic, each.partition) for each in consumer.assignment()}


def share(one, other):
    """Whether each has two of the four partitions at this moment."""
    return len(owned(one)) == len(owned(other)) == 2 and owned(one).isdisjoint(owned(other))


def produce(bootstrap, topic, count):
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=number % 4)
    assert producer.flush(60) == 0


def described(admin, group):
    return admin.describe_consumer_groups([group])[group].result(60)


def test_members_share_the_partitions_and_every_record_is_read_once(bootstrap, make_topic, group, member, admin):
    topic = make_topic(partitions=4)
    produce(bootstrap, topic, 40)
    first, second = member(), member()
    values = []
    first.subscribe([topic])
    values += [each.value() for each in poll_until(lambda: len(first.assignment()) == 4, first)]
    end_s = time.monotonic() + DEADLINE_S
    while len(values) < 40:
        assert time.monotonic() < end_s
        values += [each.value() for each in first.consume(40, 0.2)]
    assert sorted(map(int, values)) == list(range(40))
    first.commit(asynchronous=False)
    second.subscribe([topic])
    poll_until(lambda: share(first, second), first, second)

    def is_told() -> bool:
        seen = described(admin, group)
        counted = [len(each.assignment.topic_partitions) for each in seen.members]
        return seen.state is ConsumerGroupState.STABLE and counted == [2, 2]

    poll_until(is_told, first, second)
    second.close()
    poll_until(lambda: len(first.assignment()) == 4, first)
    committed = first.committed([TopicPartition(topic, each) for each in range(4)], timeout=60)
    assert [each.offset for each in committed] == [10, 10, 10, 10]


def test_a_pattern_follows_new_topics_and_partitions(bootstrap, make_topic, member, admin):
    topic = make_topic(partitions=1)
    consumer = member()
    consumer.subscribe([f"^{topic}(-more)?"])
    poll_until(lambda: owned(consumer) == {(topic, 0)}, consumer)
    admin.create_topics([NewTopic(f"{topic}-more", 1, 1)])[f"{topic}-more"].result(60)
    poll_until(lambda: len(owned(consumer)) == 2, consumer)
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
    poll_until(lambda: len(owned(consumer)) == 3, consumer)


def test_members_of_both_protocols_share_a_group(bootstrap, make_topic, group, member, admin):
    topic = make_topic(partitions=4)
    produce(bootstrap, topic, 40)
    old = member("classic")
    old.subscribe([topic])
    poll_until(lambda: len(old.assignment()) == 4, old)
    new = member()
    new.subscribe([topic])
    poll_until(lambda: share(old, new), old, new)
    poll_until(lambda: len(described(admin, group).members) == 2, old, new)
    new.close()
    poll_until(lambda: len(old.assignment()) == 4, old)


def test_a_static_member_keeps_its_partitions_while_it_is_away(bootstrap, make_topic, group, member, admin):
    topic = make_topic(partitions=4)
    first, second = member(group_instance_id="first"), member(group_instance_id="second")
    first.subscribe([topic])
    second.subscribe([topic])
    poll_until(lambda: share(first, second), first, second)
    before = owned(second)
    second.close()
    again = member(group_instance_id="second")
    again.subscribe([topic])
    poll_until(lambda: owned(again) == before and len(first.assignment()) == 2, first, again)


def test_an_empty_group_is_deleted(bootstrap, make_topic, group, member, admin):
    topic = make_topic(partitions=4)
    consumer = member()
    consumer.subscribe([topic])
    poll_until(lambda: len(consumer.assignment()) == 4, consumer)
    consumer.close()
    admin.delete_consumer_groups([group])[group].result(60)
    listed = admin.list_consumer_groups().result()
    assert group not in {each.group_id for each in listed.valid}
