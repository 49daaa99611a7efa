"""The broker's files as Kafka's DumpLogSegments reads them."""

import re

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

SEGMENT_BYTES = 1 << 20  # the least that Kafka allows


@pytest.fixture
def dump(run, java):
    """Runs DumpLogSegments: `dump("--deep-iteration", files=[...])`."""

    def run_tool(*options, files):
        tool = (*java, "org.apache.kafka.tools.DumpLogSegments", *options)
        return run(*tool, "--files", ",".join(map(str, files)))

    return run_tool


def produce(bootstrap, topic, values, **settings):
    """Produces each value as a batch of its own, with timestamps 1000, 1001 and so on."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1, "linger.ms": 0, **settings})
    for i, value in enumerate(values):
        producer.produce(topic, value, key=b"key %d" % i, partition=0, timestamp=1000 + i)
    assert producer.flush(30) == 0


def test_segments_and_their_indexes_pass_kafkas_own_check(start_broker, make_topic, dump):
    broker = start_broker()
    topic = make_topic(servers=broker.bootstrap, configs={"segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1"})
    produce(broker.bootstrap, topic, [b"v%04d" % i * 1000 for i in range(400)])
    produce(broker.bootstrap, topic, [b"z%04d" % i * 100 for i in range(50)], **{"compression.type": "zstd"})
    broker.stop()
    directory = broker.data_dir / f"{topic}-0"
    logs = sorted(directory.glob("*.log"))
    assert len(logs) == 2

    printed = dump("--deep-iteration", "--print-data-log", files=logs)
    assert len(re.findall(r"^baseOffset: \d+ .* isvalid: true$", printed, re.MULTILINE)) == 450
    assert "isvalid: false" not in printed
    assert [int(offset) for offset in re.findall(r"^\| offset: (\d+)", printed, re.MULTILINE)] == list(range(450))
    assert "payload: v0399" in printed and "payload: z0049" in printed
    assert f"Log starting offset: {int(logs[1].stem)}" in printed

    indexes = [*directory.glob("*.index"), *directory.glob("*.timeindex")]
    assert len(indexes) == 4
    checked = dump("--verify-index-only", files=indexes)
    assert not re.search(r"mismatch|out of order|not.* sane|corrupt|exception", checked, re.IGNORECASE), checked
    entries = dump(files=indexes)
    assert len(re.findall(r"^offset: \d+ position: \d+$", entries, re.MULTILINE)) > 100
    assert len(re.findall(r"^timestamp: \d+ offset: \d+$", entries, re.MULTILINE)) > 100


def test_producer_snapshots_are_readable(start_broker, make_topic, dump):
    broker = start_broker()
    topic = make_topic(servers=broker.bootstrap, configs={"retention.ms": "-1"})
    produce(broker.bootstrap, topic, [b"x"] * 7, **{"enable.idempotence": True})
    broker.stop()
    printed = dump(files=(broker.data_dir / f"{topic}-0").glob("*.snapshot"))
    assert re.search(r"producerId: \d+ producerEpoch: 0 .*lastSequence: 6 ", printed), printed


def test_committed_offsets_are_kafkas_own_records(start_broker, make_topic, dump):
    broker = start_broker({"offsets.topic.num.partitions": "1"})
    topic = make_topic(servers=broker.bootstrap)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "some-group", "session.timeout.ms": 6000}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition(topic, 0, 42, "note")], asynchronous=False)
    consumer.close()
    broker.stop()
    printed = dump("--offsets-decoder", files=(broker.data_dir / "__consumer_offsets-0").glob("*.log"))
    assert '"group":"some-group"' in printed, printed
    assert re.search(rf'"topic":"{topic}","partition":0.*"offset":42,.*"metadata":"note', printed), printed
    assert '"protocolType":"consumer"' in printed, printed


def test_the_small_files_beside_the_logs(start_broker, make_topic):
    broker = start_broker()
    topic = make_topic(servers=broker.bootstrap, configs={"retention.ms": "-1"})
    produce(broker.bootstrap, topic, [b"x"] * 3)
    assert (broker.data_dir / ".lock").exists()
    broker.stop()
    directory = broker.data_dir / f"{topic}-0"
    assert re.fullmatch(r"version: 0\ntopic_id: [\w-]{22}\n?", (directory / "partition.metadata").read_text())
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    for checkpoint in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert f"\n{topic} 0 3\n" in (broker.data_dir / checkpoint).read_text()
    properties = (broker.data_dir / "meta.properties").read_text()
    assert re.search(r"^cluster\.id=[\w-]{22}$", properties, re.MULTILINE)
    assert re.search(r"^(node|broker)\.id=0$", properties, re.MULTILINE)
