"""`ottla generate`: what it says is in the topic is there, and its result is that of the topic's records."""

import json

import pytest
from confluent_kafka import Consumer, TopicPartition


def records_of(bootstrap, topic):
    """All records of a topic, by partition and offset: (partition, key, value, timestamp)."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    try:
        places = [TopicPartition(topic, each, 0) for each in consumer.list_topics(topic).topics[topic].partitions]
        left = sum(consumer.get_watermark_offsets(place)[1] for place in places)
        consumer.assign(places)
        found = []
        while len(found) < left:
            message = consumer.poll(60)
            assert message is not None and message.error() is None
            found.append((message.partition(), message.key(), message.value(), message.timestamp()[1]))
        return sorted(found, key=lambda each: each[0])
    finally:
        consumer.close()


def test_data_and_its_result(ottla, servers, unique, tmp_path):
    topic, again = unique("metrics"), unique("metrics")
    shares = ("--late", "0.05", "--doubled", "0.02", "--poison", "0.01", "--closing", "-z", "lz4")
    load = ("--records", "3001", "--seed", "5", *shares)
    files = tmp_path / "expected.jsonl", tmp_path / "again.jsonl"
    found = ottla("generate", "metrics", "-t", topic, *load, "--expected", str(files[0]), "--json").json
    assert (found["records"], found["topic"], found["seed"]) == (3002, topic, 5)
    assert found["events"] + found["doubled"] + sum(found["poison"].values()) == 3001
    records = records_of(servers, topic)
    assert len(records) == 3002 and {each[0] for each in records} == {0, 1, 2, 3}
    rows = [json.loads(line) for line in files[0].read_text().splitlines()]
    assert len(rows) == found["rows"]
    assert sum(row["count"] for row in rows) == found["events"]
    assert not list(tmp_path.glob("*.partial"))

    told = ottla("generate", "metrics", "-t", again, *load, "--expected", str(files[1])).out
    assert "3,002" in told and f"{len(rows):,} rows in {files[1]}" in told
    assert files[0].read_bytes() == files[1].read_bytes()
    assert records_of(servers, again) == records
    assert "has records already" in ottla("generate", "metrics", "-t", again, "--records", "10").err
    assert "exists already" in ottla("generate", "metrics", "-t", again, "-p", "2", status=1).err


def test_a_table_in_a_compacted_topic(ottla, servers, unique, tmp_path):
    topic, path = unique("accounts"), tmp_path / "table.jsonl"
    options = ("--records", "2000", "-p", "2", "-c", "cleanup.policy=compact", "--expected", str(path))
    ottla("generate", "changes", "-t", topic, *options)
    described = ottla("topics", "describe", topic, "--json").json
    assert "compact" in str(described)
    last = {key: value for _, key, value, _ in records_of(servers, topic)}
    rows = [json.loads(value)["after"] for value in last.values() if value is not None]
    assert sorted(rows, key=lambda row: row["id"]) == [json.loads(line) for line in path.read_text().splitlines()]


def test_a_rate_and_the_times_of_today(ottla, unique):
    found = ottla(
        "generate", "clicks", "-t", unique("clicks"), "--records", "60", "--rate", "200", "--begin", "now", "--json"
    )
    assert found.json["records"] == 60


def test_data_that_would_be_deleted_at_once_is_refused(ottla, unique):
    topic = unique("short")
    ottla("topics", "create", topic, "-c", "retention.ms=3600000")
    assert "keeps records for 0.0416667 days" in ottla("generate", "posts", "-t", topic, status=1).err
    ottla("generate", "posts", "-t", topic, "--begin", "now", "--records", "10")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--late", "0.3", "--poison", "0.3"), "more than 0.5 together"),
        (("-c", "nonsense"), "must be SETTING=VALUE"),
        (("--registry", "http://localhost"), "--registry is for --format avro"),
        (("--format", "avro", "--registry", "localhost"), "must be http://HOST:PORT"),
        (("--expected", "/nowhere/at/all"), "cannot write /nowhere/at/all: No such file or directory"),
    ],
)
def test_wrong_use(ottla, unique, options, message):
    assert message in ottla("generate", "clicks", "-t", unique("clicks"), *options, status=2).err


def test_a_table_has_no_windows(ottla):
    assert "no windows" in ottla("generate", "changes", "--closing", status=2).err


def test_a_result_that_is_not_whole_gets_no_name(ottla, unique, tmp_path):
    topic, path = unique("posts"), tmp_path / "expected.jsonl"
    ottla("topics", "create", topic, "-c", "max.message.bytes=2000", "-c", "retention.ms=-1")
    assert "are refused" in ottla("generate", "posts", "-t", topic, "--expected", str(path), status=1).err
    assert not path.exists()
