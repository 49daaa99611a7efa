"""kafka-python: producer, consumer, groups and admin, as its users write them."""

import contextlib
import logging
import threading
import time

import pytest

kafka = pytest.importorskip("kafka")
from compat_tests.support.brokers import wait_until
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, OffsetSpec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
HEADERS = [("a", b"1"), ("empty", b""), ("a", b"again"), ("utf-8 \u00e9", b"\x00\xff")]


@pytest.fixture
def producer(bootstrap):
    with contextlib.closing(KafkaProducer(bootstrap_servers=bootstrap)) as producer:
        yield producer


@pytest.fixture
def admin(bootstrap):
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        yield admin


@pytest.fixture
def new_consumer(bootstrap):
    with contextlib.ExitStack() as stack:

        def new(*topics, **options):
            defaults = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", "enable_auto_commit": False}
            return stack.enter_context(contextlib.closing(KafkaConsumer(*topics, **(defaults | options))))

        yield new


def read(consumer, count, timeout_s=60):
    """At least `count` records, in the order in which they came.

    A poll whose time is over just when its SyncGroup is answered drops the assignment, and the member neither joins again nor
    heartbeats: with any broker. Its leader joins twice where metadata come late, so a poll has all the time there is.
    """
    records, deadline = [], time.monotonic() + timeout_s
    while len(records) < count and (left_s := deadline - time.monotonic()) > 0:
        for batch in consumer.poll(timeout_ms=int(left_s * 1000) + 1).values():
            records.extend(batch)
    assert len(records) >= count, f"{len(records)} of {count} records in {timeout_s} s"
    return records


def send_all(producer, topic, values, **options):
    futures = [producer.send(topic, value, **options) for value in values]
    producer.flush()
    return [future.get(timeout=60) for future in futures]


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_sent_with_every_codec(bootstrap, topic, new_consumer, codec):
    values = [b"", None, *(f"value {i} ".encode() * 50 for i in range(200))]
    with contextlib.closing(KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec)) as producer:
        for i, value in enumerate(values):
            producer.send(
                topic, value, key=None if i % 3 == 0 else f"k{i}".encode(), headers=HEADERS, timestamp_ms=1000 + i
            )
        producer.flush()
    records = read(new_consumer(topic), len(values))
    assert [record.value for record in records] == values
    assert [record.key for record in records] == [None if i % 3 == 0 else f"k{i}".encode() for i in range(len(values))]
    assert [record.offset for record in records] == list(range(len(values)))
    assert [record.timestamp for record in records] == [1000 + i for i in range(len(values))]
    assert all(list(record.headers) == HEADERS for record in records)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_produce_with_each_kind_of_acknowledgement(bootstrap, topic, new_consumer, acks):
    options = {"bootstrap_servers": bootstrap, "acks": acks, "enable_idempotence": False}
    with contextlib.closing(KafkaProducer(**options)) as producer:
        sent = send_all(producer, topic, [b"%d" % i for i in range(20)])
    if acks != 0:
        assert [metadata.offset for metadata in sent] == list(range(20))
    assert [record.value for record in read(new_consumer(topic), 20)] == [b"%d" % i for i in range(20)]


def test_log_append_time_is_the_brokers_clock(producer, make_topic, new_consumer):
    topic = make_topic(configs={"message.timestamp.type": "LogAppendTime"})
    before = time.time() * 1000
    [metadata] = send_all(producer, topic, [b"x"], timestamp_ms=1234)
    [record] = read(new_consumer(topic), 1)
    assert before - 1000 <= record.timestamp <= time.time() * 1000 + 1000
    assert (record.timestamp_type, metadata.timestamp) == (1, record.timestamp)


def test_large_records_and_partitioning_by_key(bootstrap, make_topic, new_consumer):
    topic = make_topic(partitions=3)
    values = [bytes([i]) * 400_000 for i in range(12)]
    with contextlib.closing(KafkaProducer(bootstrap_servers=bootstrap, batch_size=1 << 19)) as producer:
        sent = [producer.send(topic, value, key=value[:4]).get(timeout=60) for value in values]
    records = read(new_consumer(topic, fetch_max_bytes=1_000_000, max_partition_fetch_bytes=300_000), len(values))
    assert sorted(record.value for record in records) == values
    assert {record.key: record.partition for record in records} == {
        value[:4]: metadata.partition for value, metadata in zip(values, sent, strict=True)
    }


def test_a_record_above_the_topics_limit_is_refused_and_the_next_one_taken(bootstrap, make_topic):
    topic = make_topic(configs={"max.message.bytes": "2000"})
    # The idempotent producer takes the refusal as fatal.
    with contextlib.closing(KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=False)) as producer:
        with pytest.raises(kafka.errors.MessageSizeTooLargeError):
            producer.send(topic, b"x" * 5000).get(timeout=60)
        assert producer.send(topic, b"small").get(timeout=60).offset == 0


def test_assign_seek_and_positions(producer, topic, new_consumer):
    send_all(producer, topic, [b"%d" % i for i in range(100)])
    partition = TopicPartition(topic, 0)
    consumer = new_consumer()
    consumer.assign([partition])
    consumer.seek(partition, 42)
    assert read(consumer, 1)[0].offset == 42
    consumer.seek_to_end(partition)
    assert consumer.position(partition) == 100
    consumer.seek_to_beginning(partition)
    assert read(consumer, 1)[0].offset == 0
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 100}
    assert consumer.partitions_for_topic(topic) == {0}


def test_offsets_for_times(producer, topic, new_consumer):
    for i in range(50):
        producer.send(topic, b"x", timestamp_ms=10_000 + 10 * i)
    producer.flush()
    partition = TopicPartition(topic, 0)
    consumer = new_consumer()

    def lookup(timestamp):
        found = consumer.offsets_for_times({partition: timestamp})[partition]
        return found and (found.offset, found.timestamp)

    assert lookup(0) == (0, 10_000)
    assert lookup(10_100) == (10, 10_100)
    assert lookup(10_101) == (11, 10_110)
    assert lookup(10_490) == (49, 10_490)
    assert lookup(10_491) is None


def test_a_position_out_of_range_falls_back_to_the_reset_policy(producer, topic, new_consumer):
    send_all(producer, topic, [b"%d" % i for i in range(5)])
    partition = TopicPartition(topic, 0)
    earliest = new_consumer(auto_offset_reset="earliest")
    earliest.assign([partition])
    earliest.seek(partition, 1000)
    assert read(earliest, 5)[0].offset == 0
    strict = new_consumer(auto_offset_reset="none")
    strict.assign([partition])
    strict.seek(partition, 1000)
    with pytest.raises(kafka.errors.OffsetOutOfRangeError):
        read(strict, 1)


def test_a_waiting_consumer_gets_a_record_when_it_is_produced(producer, topic, new_consumer):
    # The wait of a fetch is longer than the patience of the test.
    consumer = new_consumer(topic, fetch_max_wait_ms=120_000, request_timeout_ms=180_000, consumer_timeout_ms=60_000)
    consumer.poll(timeout_ms=500)  # now its fetch is parked at the broker
    timer = threading.Timer(0.3, lambda: producer.send(topic, b"late").get(timeout=60))
    timer.start()
    assert next(consumer).value == b"late"
    timer.join()


def test_a_topic_is_made_by_using_it(producer, unique, new_consumer):
    topic = unique("auto")
    assert producer.send(topic, b"first", partition=0).get(timeout=60).offset == 0
    assert [record.value for record in read(new_consumer(topic), 1)] == [b"first"]


def test_a_group_goes_on_where_it_committed(producer, topic, new_consumer, unique):
    send_all(producer, topic, [b"%d" % i for i in range(30)])
    group, partition = unique("group"), TopicPartition(topic, 0)
    first = new_consumer(topic, group_id=group, max_poll_records=10)
    assert read(first, 10)[9].offset == 9
    first.commit({partition: OffsetAndMetadata(10, "note", -1)})
    committed = first.committed(partition, metadata=True)
    assert (committed.offset, committed.metadata) == (10, "note")
    first.close()
    assert read(new_consumer(topic, group_id=group), 20)[0].offset == 10


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor, CooperativeStickyAssignor])
def test_a_group_shares_its_partitions_and_passes_them_on(make_topic, new_consumer, unique, caplog, assignor):
    caplog.set_level(logging.INFO, "kafka.coordinator")  # a failure shows what the members did
    topic, group = make_topic(partitions=4), unique("group")
    options = {
        "group_id": group,
        "partition_assignment_strategy": [assignor],
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": 6000,
    }
    with Member(new_consumer, topic, options) as one:
        one.wait_for(4)
        with Member(new_consumer, topic, options) as two:
            wait_for_shares(one, two, {TopicPartition(topic, i) for i in range(4)})
        one.wait_for(4)


class Member:
    """A group member that polls in a thread of its own."""

    def __init__(self, new_consumer, topic, options):
        self.consumer = new_consumer(**options)
        # A leader that does not know the topic's partitions yet assigns none and may stay stuck, with any broker.
        assert self.consumer.partitions_for_topic(topic)
        self.consumer.subscribe([topic])
        self.stopping = threading.Event()
        self.failure = None
        self.thread = threading.Thread(target=self.poll)

    def poll(self):
        try:
            while not self.stopping.is_set():
                self.consumer.poll(timeout_ms=1000)  # rarely over while it joins: see `read`
            self.consumer.close()
        except BaseException as failure:
            logging.getLogger("kafka.coordinator").exception(
                "a member has ended"
            )  # which another one may be waiting for
            self.failure = failure

    def partitions(self):
        return self.consumer.assignment()

    def wait_for(self, count):
        wait_until(lambda: self.failure or len(self.partitions()) == count, f"it has {count} partitions", 90)
        if self.failure is not None:
            raise self.failure

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.stopping.set()
        self.thread.join()
        if kind is None and self.failure is not None:
            raise self.failure


def wait_for_shares(one, two, everything):
    """Until each has half of the partitions at the same moment: a rebalance may follow another one at once."""

    def they_share():
        mine, others = one.partitions(), two.partitions()
        return 2 * len(mine) == 2 * len(others) == len(everything) and mine | others == everything

    wait_until(lambda: one.failure or two.failure or they_share(), "they share the partitions")
    if failure := one.failure or two.failure:
        raise failure


def test_admin_creates_describes_grows_and_deletes_topics(admin, unique):
    name = unique("topic")
    created = {name: {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "123456"}}}
    admin.create_topics(created, validate_only=True)
    assert name not in admin.list_topics()
    admin.create_topics(created)
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(created)
    admin.create_partitions({name: NewPartitions(5)})
    [described] = admin.describe_topics([name])
    assert [partition["partition_index"] for partition in described["partitions"]] == list(range(5))
    admin.delete_topics([name])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([name])


def test_admin_reads_and_alters_configs(admin, make_topic):
    topic = make_topic()

    def config(name):
        described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
        entry = described["topic"][topic][name]
        return entry["value"], entry["config_source"]

    assert config("retention.ms") == ("604800000", "DEFAULT_CONFIG")
    for incremental in (True, False):
        admin.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "5000", "cleanup.policy": "compact"})],
            incremental=incremental,
        )
        assert config("retention.ms") == ("5000", "DYNAMIC_TOPIC_CONFIG")
        assert config("cleanup.policy") == ("compact", "DYNAMIC_TOPIC_CONFIG")
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": ("DELETE", None)})])
        assert config("retention.ms") == ("604800000", "DEFAULT_CONFIG")


def test_admin_lists_alters_and_deletes_group_offsets(admin, producer, topic, unique):
    send_all(producer, topic, [b"x"] * 10)
    group, partition = unique("group"), TopicPartition(topic, 0)
    admin.alter_group_offsets(group, {partition: OffsetAndMetadata(7, "seven", -1)})
    assert admin.list_group_offsets(group)[group][partition].offset == 7
    admin.reset_group_offsets(group, {partition: OffsetSpec.EARLIEST})
    assert admin.list_group_offsets(group)[group][partition].offset == 0
    assert group in {listed["group_id"] for listed in admin.list_groups()}
    admin.delete_group_offsets(group, [partition])
    assert partition not in admin.list_group_offsets(group)[group]


def test_admin_deletes_records_and_lists_offsets(admin, producer, topic, new_consumer):
    for i in range(10):
        producer.send(topic, b"%d" % i, timestamp_ms=1000 + (i * 7) % 10)  # 1007 at offset 1, 1009 at offset 7
    producer.flush()
    partition = TopicPartition(topic, 0)
    admin.delete_records({partition: 4})

    def offset(spec):
        return admin.list_partition_offsets({partition: spec})[partition].offset

    assert (offset(OffsetSpec.EARLIEST), offset(OffsetSpec.LATEST), offset(OffsetSpec.MAX_TIMESTAMP)) == (4, 10, 7)
    assert [record.offset for record in read(new_consumer(topic), 6)] == list(range(4, 10))


@pytest.mark.one_broker("it counts them")
def test_admin_describes_the_cluster_its_log_dirs_and_producers(admin, producer, topic):
    send_all(producer, topic, [b"x"])
    cluster = admin.describe_cluster()
    assert cluster["cluster_id"] and len(cluster["brokers"]) == 1
    [log_dirs] = admin.describe_log_dirs()
    sizes = {
        (named["name"], partition["partition_index"]): partition["partition_size"]
        for log_dir in log_dirs["log_dirs"]
        for named in log_dir["topics"]
        for partition in named["partitions"]
    }
    assert sizes[topic, 0] > 0
    [state] = admin.describe_producers([TopicPartition(topic, 0)]).values()
    assert len(state.active_producers) == 1
