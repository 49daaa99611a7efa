"""confluent-kafka (librdkafka): producing, consuming and groups."""

import contextlib
import sys
import time
from functools import partial

import pytest

pytest.importorskip("confluent_kafka")
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

HEADERS = [("a", b"1"), ("a", b""), ("none", None), ("utf-8 \u00e9", b"\x00\xff")]


@pytest.fixture
def new_consumer(bootstrap):
    with contextlib.ExitStack() as stack:

        def new(group="unused", **options):
            settings = {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 100,
            }
            consumer = Consumer(settings | {name.replace("_", "."): value for name, value in options.items()})
            stack.callback(consumer.close)
            return consumer

        yield new


@pytest.fixture
def assigned(new_consumer):
    """A consumer that reads one partition from an offset."""

    def assign(topic, offset=OFFSET_BEGINNING, partition=0, **options):
        consumer = new_consumer(**options)
        consumer.assign([TopicPartition(topic, partition, offset)])
        return consumer

    return assign


def produce(bootstrap, topic, values, *, key=None, headers=None, timestamp=0, **options):
    """Produces and waits; returns the delivered messages, whose errors are raised."""
    delivered = []
    producer = Producer({"bootstrap.servers": bootstrap} | {name.replace("_", "."): v for name, v in options.items()})
    for i, value in enumerate(values):
        producer.produce(
            topic,
            value,
            key=key(i) if key else None,
            headers=headers,
            timestamp=timestamp + i if timestamp else 0,
            on_delivery=lambda error, message: delivered.append(error or message),
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    for outcome in delivered:
        if isinstance(outcome, KafkaError):
            raise KafkaException(outcome)
    return delivered


def read(consumer, count, timeout_s=60):
    messages, deadline = [], time.monotonic() + timeout_s
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages in {timeout_s} s"
        for message in consumer.consume(count - len(messages), timeout=0.2):
            if message.error():
                raise KafkaException(message.error())
            messages.append(message)
    return messages


def poll_until(consumers, condition, what, timeout_s=60):
    """Rebalances go on only while their members poll."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        for consumer in consumers:
            consumer.poll(0.02)


def owned(consumer):
    return {(partition.topic, partition.partition) for partition in consumer.assignment()}


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_sent(bootstrap, topic, assigned, codec, idempotent):
    values = [b"", None, *(f"value {i} ".encode() * 40 for i in range(300))]
    options = {"compression_type": codec, "enable_idempotence": idempotent, "linger_ms": 5}
    sent = produce(bootstrap, topic, values, key=lambda i: b"k%d" % i, headers=HEADERS, timestamp=5000, **options)
    assert [message.offset() for message in sent] == list(range(len(values)))
    messages = read(assigned(topic), len(values))
    assert [message.value() for message in messages] == values
    assert [message.key() for message in messages] == [b"k%d" % i for i in range(len(values))]
    assert [message.timestamp() for message in messages] == [
        (TIMESTAMP_CREATE_TIME, 5000 + i) for i in range(len(values))
    ]
    assert all(message.headers() == HEADERS for message in messages)
    assert {message.leader_epoch() for message in messages} == {0}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_produce_with_each_kind_of_acknowledgement(bootstrap, topic, assigned, acks):
    produce(bootstrap, topic, [b"%d" % i for i in range(50)], acks=acks)
    assert [message.value() for message in read(assigned(topic), 50)] == [b"%d" % i for i in range(50)]


def test_the_topics_compression_and_timestamp_type_win(bootstrap, make_topic, assigned):
    topic = make_topic(configs={"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    sent = produce(bootstrap, topic, [b"x" * 100] * 50, timestamp=1000, compression_type="gzip", linger_ms=20)
    after = int(time.time() * 1000)
    messages = read(assigned(topic), 50)
    assert [message.value() for message in messages] == [b"x" * 100] * 50
    assert all(message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME for message in messages)
    assert all(before - 1000 <= message.timestamp()[1] <= after + 1000 for message in messages)
    assert [message.timestamp()[1] for message in sent] == [message.timestamp()[1] for message in messages]


def test_batches_larger_than_the_fetch_limits_still_arrive(bootstrap, topic, assigned):
    values = [bytes([i]) * 300_000 for i in range(10)]
    produce(bootstrap, topic, values, message_max_bytes=1_000_000)
    limits = {"fetch_message_max_bytes": 1000, "fetch_max_bytes": 350_000, "receive_message_max_bytes": 1_000_000}
    assert [message.value() for message in read(assigned(topic, **limits, message_max_bytes=100_000), 10)] == values


def test_a_record_above_the_topics_limit_is_refused(bootstrap, make_topic):
    topic = make_topic(configs={"max.message.bytes": "1000"})
    with pytest.raises(KafkaException) as refusal:
        produce(bootstrap, topic, [b"x" * 2000])
    assert refusal.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    [message] = produce(bootstrap, topic, [b"small"])
    assert message.offset() == 0


def test_a_topic_is_made_by_producing_to_it(bootstrap, unique, assigned):
    topic = unique("auto")
    [message] = produce(bootstrap, topic, [b"first"])
    assert read(assigned(topic, partition=message.partition()), 1)[0].value() == b"first"


def test_an_unknown_topic_is_an_error_where_making_it_is_not_wanted(new_consumer, unique):
    consumer = new_consumer(unique("group"), allow_auto_create_topics=False)
    consumer.subscribe([unique("absent")])
    with pytest.raises(KafkaException) as unknown:
        read(consumer, 1)
    assert unknown.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_watermarks_seek_and_lookup_by_time(bootstrap, topic, assigned):
    produce(bootstrap, topic, [b"%d" % i for i in range(100)], timestamp=7000)
    consumer = assigned(topic, 60)
    assert read(consumer, 1)[0].offset() == 60
    consumer.seek(TopicPartition(topic, 0, 5))
    assert read(consumer, 1)[0].offset() == 5
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60) == (0, 100)

    def lookup(timestamp):
        return consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=60)[0].offset

    assert [lookup(0), lookup(7000), lookup(7042), lookup(7099), lookup(7100)] == [0, 0, 42, 99, OFFSET_END]


def test_an_offset_out_of_range_follows_the_reset_policy(bootstrap, topic, assigned):
    produce(bootstrap, topic, [b"a", b"b"])
    assert read(assigned(topic, 1000), 1)[0].offset() == 0
    with pytest.raises(KafkaException) as out_of_range:
        read(assigned(topic, 1000, auto_offset_reset="error"), 1)
    assert out_of_range.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET


def test_the_end_of_a_partition_is_told(bootstrap, topic, assigned):
    produce(bootstrap, topic, [b"a"])
    consumer = assigned(topic, enable_partition_eof=True)
    assert consumer.poll(60).value() == b"a"
    end = consumer.poll(60)
    assert (end.error().code(), end.offset()) == (KafkaError._PARTITION_EOF, 1)


def test_a_group_goes_on_where_it_committed(bootstrap, topic, new_consumer, unique):
    produce(bootstrap, topic, [b"%d" % i for i in range(30)])
    group = unique("group")
    first = new_consumer(group)
    first.subscribe([topic])
    messages = read(first, 10)
    first.commit(message=messages[-1], asynchronous=False)
    first.close()
    second = new_consumer(group)
    second.subscribe([topic])
    assert [message.value() for message in read(second, 20)] == [b"%d" % i for i in range(10, 30)]
    [committed] = second.committed([TopicPartition(topic, 0)], timeout=60)
    assert committed.offset == 10


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_a_group_shares_its_partitions_and_passes_them_on(make_topic, new_consumer, unique, strategy):
    topic, group = make_topic(partitions=6), unique("group")
    members = [new_consumer(group, partition_assignment_strategy=strategy) for _ in range(3)]
    for count, member in enumerate(members, start=1):
        member.subscribe([topic])
        poll_until(members[:count], partial(share, topic, 6, members[:count]), f"{count} members share")
    members[0].close()
    poll_until(members[1:], partial(share, topic, 6, members[1:]), "two members share")


def share(topic, partitions, members):
    """Whether each has as many as the others at this moment, and somebody each of them: a rebalance may follow another one."""
    each = list(map(owned, members))
    all_of_them = {(topic, index) for index in range(partitions)}
    return {len(some) for some in each} == {partitions // len(members)} and set().union(*each) == all_of_them


def test_a_cooperative_rebalance_takes_away_only_what_has_to_move(make_topic, new_consumer, unique):
    topic, group = make_topic(partitions=4), unique("group")
    revoked = []
    one, two = (new_consumer(group, partition_assignment_strategy="cooperative-sticky") for _ in range(2))
    one.subscribe([topic], on_revoke=lambda _, partitions: revoked.extend(p.partition for p in partitions))
    poll_until([one], lambda: len(owned(one)) == 4, "one has all")
    two.subscribe([topic])
    poll_until([one, two], lambda: (len(owned(one)), len(owned(two))) == (2, 2), "both have two")
    assert sorted(revoked) == sorted(partition for _, partition in owned(two))


def test_static_members_keep_their_partitions_over_a_restart(bootstrap, make_topic, new_consumer, unique):
    topic, group = make_topic(partitions=4), unique("group")
    rebalances = []

    def member(instance):
        options = {"group_instance_id": instance, "partition_assignment_strategy": "range"}
        return new_consumer(group, **options)

    one, two = member("one"), member("two")
    one.subscribe(
        [topic], on_assign=lambda consumer, partitions: (rebalances.append("one"), consumer.assign(partitions))
    )
    two.subscribe([topic])
    poll_until([one, two], lambda: (len(owned(one)), len(owned(two))) == (2, 2), "both have two")
    kept, rebalances_before = owned(two), len(rebalances)
    two.close()
    two = member("two")
    two.subscribe([topic])
    poll_until([one, two], lambda: owned(two) == kept, "the instance has its partitions again")
    poll_until([one, two], lambda: True, "")
    assert len(rebalances) == rebalances_before


def test_a_second_owner_of_an_instance_id_fences_the_first(topic, new_consumer, unique):
    group = unique("group")
    first = new_consumer(group, group_instance_id="same")
    first.subscribe([topic])
    poll_until([first], lambda: owned(first), "first has the partition")
    second = new_consumer(group, group_instance_id="same")
    second.subscribe([topic])
    poll_until([second], lambda: owned(second), "second has the partition")
    deadline = time.monotonic() + 60
    while (message := first.poll(0.1)) is None or not message.error():
        assert time.monotonic() < deadline, "the first member was not fenced"
    assert message.error().code() in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL)


def test_a_member_that_dies_loses_its_partitions_after_its_session(bootstrap, topic, new_consumer, unique, run):
    group = unique("group")
    # A process of its own, to die without saying so.
    program = f"""
import os, time, confluent_kafka
consumer = confluent_kafka.Consumer({{"bootstrap.servers": {bootstrap!r}, "group.id": {group!r},
    "session.timeout.ms": 4000, "heartbeat.interval.ms": 200}})
consumer.subscribe([{topic!r}])
while not consumer.assignment():
    consumer.poll(0.05)
print(time.monotonic(), flush=True)
os._exit(0)
"""
    died = float(run(sys.executable, "-c", program))
    heir = new_consumer(group)
    heir.subscribe([topic])
    poll_until([heir], lambda: owned(heir), "the heir has the partition")
    assert (
        time.monotonic() - died > 1
    )  # a session is longer by three seconds, in which the last heartbeat may have come


def test_a_commit_from_an_old_generation_is_refused(topic, new_consumer, unique):
    group = unique("group")
    one, two = new_consumer(group), new_consumer(group)
    one.subscribe([topic])
    poll_until([one], lambda: owned(one), "one has the partition")
    stranger = new_consumer(group)
    with pytest.raises(KafkaException) as refusal:
        stranger.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    assert refusal.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    two.close()
