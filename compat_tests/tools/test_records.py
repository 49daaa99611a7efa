"""kafka-console-producer and -consumer, kafka-get-offsets, kafka-delete-records and kafka-log-dirs."""

import json
import re

import pytest
from confluent_kafka import Producer

PRODUCER = "ConsoleProducer"
CONSUMER = "consumer.ConsoleConsumer"
KEYS = ("--reader-property", "parse.key=true")


@pytest.fixture
def filled(brokers, both_topic):
    """A topic with 50 records, of a second each, in the first of two partitions."""
    topic = both_topic(partitions=2)
    for servers in brokers:
        producer = Producer({"bootstrap.servers": servers})
        for i in range(50):
            producer.produce(topic, b"value", partition=0, timestamp=1_700_000_000_000 + 1000 * i)
        assert producer.flush(60) == 0
    return topic


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_typed_is_read(beside, both_topic, unique, codec):
    topic = both_topic()
    lines = "".join(f"k{i}\tvalue {i}\n" for i in range(30))
    produced = beside(PRODUCER, "--topic", topic, "--compression-codec", codec, *KEYS, stdin=lines)
    assert (produced.status, produced.out) == (0, "")
    shown = [f"--formatter-property=print.{what}=true" for what in ("key", "offset", "partition")]
    read = ("--topic", topic, *shown, "--timeout-ms", "60000", "--max-messages")
    expected = "".join(f"Partition:0\tOffset:{i}\tk{i}\tvalue {i}\n" for i in range(30))
    said = beside(CONSUMER, *read, "30", "--from-beginning", "--group", unique("group"))
    assert said.out == expected
    assert said.err.endswith("Processed a total of 30 messages\n")
    assert beside(CONSUMER, *read, "1", "--partition", "0", "--offset", "29").out == expected.splitlines(True)[-1]


def test_a_tombstone_headers_and_a_partition_that_is_not_there(beside, both_topic):
    topic = both_topic()
    properties = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    options = [f"--reader-property={each}" for each in properties]
    produced = beside(PRODUCER, "--topic", topic, *options, stdin="h1:v1,h2:v2\tkey\tNULL\n")
    assert produced.status == 0
    shown = [f"--formatter-property=print.{what}=true" for what in ("key", "headers", "delivery", "epoch")]
    read = ("--topic", topic, *shown, "--max-messages", "1", "--timeout-ms", "60000")
    assert "h1:v1,h2:v2\tkey\tnull" in beside(CONSUMER, *read, "--from-beginning").out
    gone = beside(CONSUMER, "--topic", topic, "--partition", "7", "--offset", "0", "--timeout-ms", "500")
    assert gone.out == ""


@pytest.mark.parametrize(
    "time", ["latest", "earliest", "max-timestamp", "-1", "-2", "-3", "-4", "-5", "1700000020500", "9999999999999"]
)
def test_offsets(beside, filled, time):
    offsets = beside("GetOffsetShell", "--topic", filled, "--time", time)
    assert offsets.status == 0
    if time == "latest":
        assert offsets.out == f"{filled}:0:50\n{filled}:1:0\n"


def test_offsets_of_some_partitions_and_of_none(beside, filled, unique):
    beside("GetOffsetShell", "--topic-partitions", f"{filled}:1")
    beside("GetOffsetShell", "--topic", filled, "--partitions", "0")
    assert beside("GetOffsetShell", "--topic", filled, "--partitions", "5").status == 1
    said = beside("GetOffsetShell", "--topic", unique("new"))
    assert said.status == 1 and "Could not match any topic-partitions" in said.err
    assert beside("GetOffsetShell", "--topic", filled, "--time", "yesterday").status == 1


def offset_file(tmp_path, content):
    path = tmp_path / "offsets.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_records_are_deleted(beside, filled, tmp_path):
    wanted = {"version": 1, "partitions": [{"topic": filled, "partition": i, "offset": -1} for i in (0, 1)]}
    said = beside("DeleteRecordsCommand", "--offset-json-file", offset_file(tmp_path, wanted), unordered=True)
    assert f"partition: {filled}-0\tlow_watermark:" in said.out
    assert beside("GetOffsetShell", "--topic", filled, "--time", "earliest").status == 0


@pytest.mark.parametrize(
    "content",
    [
        {"version": 1, "partitions": [{"topic": "{topic}", "partition": 0, "offset": 51}]},
        {"version": 1, "partitions": [{"topic": "{topic}", "partition": 9, "offset": 1}]},
        {"version": 1, "partitions": [{"topic": "nowhere-at-all", "partition": 0, "offset": 1}]},
        {"version": 1, "partitions": [{"topic": "{topic}", "partition": 0, "offset": 1}] * 2},
        {"version": 2, "partitions": []},
        {"version": 1},
        "{not json",
    ],
    ids=["beyond the end", "no such partition", "no such topic", "twice", "version", "nothing", "no JSON"],
)
def test_records_that_cannot_be_deleted(beside, filled, tmp_path, content, request):
    text = content if isinstance(content, str) else json.dumps(content).replace("{topic}", filled)
    settings = tmp_path / "command.properties"
    # The client asks for a partition that is not there again and again, for a minute. Any other answer it may wait for.
    time_ms = 1_000 if request.node.callspec.id.startswith("no such") else 60_000
    settings.write_text(f"default.api.timeout.ms={time_ms}\nrequest.timeout.ms={time_ms}\n")
    command = ("--offset-json-file", offset_file(tmp_path, text), "--command-config", str(settings))
    beside("DeleteRecordsCommand", *command, arrange=without_attempts)
    beside("GetOffsetShell", "--topic", filled, "--time", "earliest")


def without_attempts(printed: str) -> str:
    """How far the client had come when its time was up."""
    return re.sub(r"(TimeoutException: ).*", r"\1<attempts>", printed)


def test_log_directories(beside, filled, unique):
    said = beside("LogDirsCommand", "--describe", "--topic-list", filled, arrange=partitions_sorted)
    assert f'"partition": "{filled}-0"' in said.out
    beside("LogDirsCommand", "--describe", "--topic-list", filled, "--broker-list", "0", arrange=partitions_sorted)
    said = beside("LogDirsCommand", "--describe", "--broker-list", "0,7")
    assert said.status == 1 and "do not exist" in said.out + said.err
    beside("LogDirsCommand", "--describe", "--topic-list", unique("new"), arrange=partitions_sorted)


def partitions_sorted(printed: str) -> str:
    """The answer's last line is JSON, in the order of hash maps."""
    *lines, last = printed.splitlines() or [""]
    if last.startswith("{"):
        told = json.loads(last)
        for directory in (directory for broker in told["brokers"] for directory in broker["logDirs"]):
            directory["partitions"].sort(key=lambda each: each["partition"])
        last = json.dumps(told)
    return "\n".join([*lines, last])
