"""Kafka's Java clients: clients/java/Scenarios.java does the work, what it has to find is said here."""

import pytest
from compat_tests.conftest import KEEP_EVERYTHING

ASSIGNORS = "org.apache.kafka.clients.consumer"


@pytest.fixture
def scenario(in_one_jvm, java_scenarios, bootstrap, unique):
    def play(name, topic, argument=""):
        printed = in_one_jvm(java_scenarios, name, bootstrap, topic, unique("group"), argument)
        return dict(line.split("=", 1) for line in printed.splitlines())

    return play


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd", "none-plain"])
def test_records_come_back_as_sent(scenario, topic, codec):
    assert scenario("roundTrip", topic, codec) == {"offsets": "200", "records": "200"}


def test_large_records_pass_small_fetch_limits_and_too_large_ones_are_refused(scenario, topic):
    assert scenario("largeRecords", topic) == {
        "refused": "RecordTooLargeException",
        "afterwards": "3",
        "sizes": "[900000, 500000, 1, 1]",
    }


def test_seek_positions_and_lookup_by_time(scenario, topic):
    assert scenario("seek", topic) == {
        "seek": "42",
        "beginning": "0",
        "end": "100",
        "time": "10",
        "late": "null",
        "reset": "0",
        "paused": "0",
    }


def test_a_group_goes_on_where_it_committed(scenario, topic):
    assert scenario("commit", topic) == {"first": "4", "next": "4", "committed": "4 note 0"}


@pytest.mark.parametrize(
    ("assignor", "events"),
    [
        ("RangeAssignor", "+4 -4 +2 -2 +4"),
        ("RoundRobinAssignor", "+4 -4 +2 -2 +4"),
        ("StickyAssignor", "+4 -4 +2 -2 +4"),
        ("CooperativeStickyAssignor", "+4 -2 +2"),
        ("RangeAssignor-static", "+4 -4 +2"),
    ],
)
def test_a_group_shares_its_partitions_and_passes_them_on(scenario, make_topic, assignor, events):
    answer = scenario("rebalance", make_topic(partitions=4), f"{ASSIGNORS}.{assignor}")
    assert answer == {"together": "4", "events": events}


def test_admin_topics(scenario, unique):
    assert scenario("topics", unique("topic")) == {
        "created": "3 1",
        "returnedConfig": "60000",
        "sameId": "true",
        "again": "TopicExistsException",
        "partitions": "5",
        "listed": "true",
        "clusterId": "true",
        "nodes": "1",
        "logDirs": "1",
        "deleted": "UnknownTopicOrPartitionException",
    }


def test_admin_configs(scenario, make_topic):
    topic = make_topic()
    assert scenario("configs", topic) == {
        "default": "604800000 DEFAULT_CONFIG",
        "set": "4000 DYNAMIC_TOPIC_CONFIG",
        "appended": "delete,compact DYNAMIC_TOPIC_CONFIG",
        "bad": "InvalidConfigurationException",
        "synonyms": "[retention.ms:DYNAMIC_TOPIC_CONFIG]",
        "documented": "true",
        "type": "LONG",
    }


def test_admin_offsets_records_and_producers(scenario, topic):
    assert scenario("offsets", topic) == {
        "earliest": "5",
        "latest": "20",
        "maxTimestamp": "19",
        "forTimestamp": "12",
        "tooFar": "OffsetOutOfRangeException",
        "producers": "1",
        "lastSequence": "19",
    }


def test_admin_groups(scenario, topic):
    assert scenario("groups", topic) == {
        "state": "Stable range 1",
        "member": "member instance true",
        "listed": "true",
        "notEmpty": "GroupNotEmptyException",
        "subscribed": "GroupSubscribedToTopicException",
        "altered": "8",
        "offsetDeleted": "null",
        "deleted": "null",
        "gone": "GroupIdNotFoundException",
    }


def test_a_topic_is_copied_exactly_once(scenario, make_topic):
    source = make_topic(partitions=2, configs=KEEP_EVERYTHING)
    answer = scenario("transactions", source, make_topic(configs=KEEP_EVERYTHING))
    assert answer == {"aborted": "true", "copied": "100", "values": "100"}


def test_a_producer_that_was_replaced_commits_nothing(scenario, topic):
    answer = scenario("zombie", topic)
    assert answer["zombie"] in ("InvalidProducerEpochException", "ProducerFencedException")
    assert answer["sizes"] == "[3]"
