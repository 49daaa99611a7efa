"""A broker that may have few descriptors: what it refuses, what it can still do, and what clients see of that."""

import contextlib
import os
import re
import socket
import subprocess
import time

import pytest
from compat_tests.support import raw
from compat_tests.support.brokers import OttlaProcess, wait_until
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

pytestmark = pytest.mark.timeout(240)

FAST = {
    "offsets.topic.num.partitions": "1",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "500",
}


class Limited(OttlaProcess):
    """A broker that the system allows so many descriptors."""

    def __init__(self, directory, limit, **settings):
        super().__init__(directory, FAST | settings)
        self.inside = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh"]

    @property
    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    @property
    def sockets(self):
        """How many sockets it has open."""
        found = 0
        for name in os.listdir(f"/proc/{self.process.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                found += os.readlink(f"/proc/{self.process.pid}/fd/{name}").startswith("socket:")
        return found


@pytest.fixture
def limited(tmp_path):
    with contextlib.ExitStack() as stack:

        def start(limit, **settings):
            broker = Limited(tmp_path, limit, **settings)
            stack.callback(lambda: broker.died() or broker.kill())
            broker.start()
            return broker

        yield start


def create(broker, topic, partitions):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (made,) = admin.create_topics([NewTopic(topic, min(partitions, 5000), 1)], request_timeout=60).values()
    made.result()
    for count in range(10_000, partitions + 1, 5000):
        (made,) = admin.create_partitions([NewPartitions(topic, count)], request_timeout=60).values()
        made.result()


def stored(value, offset):
    """A batch of one record as the log has it."""
    return raw.batch([value], base_offset=offset)


def produce_to_all(broker, topic, partitions, value):
    """One record to each partition, a thousand partitions in a request."""
    topics = raw.message_class("ProduceRequest").TopicProduceData
    with raw.Peer((broker.host, broker.port), timeout_s=60) as peer:
        for start in range(0, partitions, 1000):
            parts = [
                topics.PartitionProduceData(version=7, index=index, records=raw.batch([value]))
                for index in range(start, min(start + 1000, partitions))
            ]
            peer.send(raw.produce(topic, None, topic_data=[topics(version=7, name=topic, partition_data=parts)]))
            answered = raw.response("Produce", 7, peer.receive()).responses[0].partition_responses
            assert {(each.index, each.error_code) for each in answered} == {(each.index, 0) for each in parts}


def fetch_request(topic, offsets, version=11):
    topics = raw.message_class("FetchRequest").FetchTopic
    asked = [
        topics.FetchPartition(version=version, partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in offsets.items()
    ]
    return raw.fetch(topic, topics=[topics(version=version, topic=topic, partitions=asked)], version=version)


def read_all(broker, topic, partitions, values):
    """Each partition has the values, in this order, and nothing else."""
    expected = b"".join(stored(value, offset) for offset, value in enumerate(values))
    with raw.Peer((broker.host, broker.port), timeout_s=60) as peer:
        for start in range(0, partitions, 1000):
            missing = set(range(start, min(start + 1000, partitions)))
            while missing:
                peer.send(fetch_request(topic, dict.fromkeys(sorted(missing), 0)))
                answer = raw.response("Fetch", 11, peer.receive())
                found = {each.partition_index: each for each in answer.responses[0].partitions}
                assert not any(each.error_code for each in found.values())
                complete = {index for index, each in found.items() if without_epochs(each.records) == expected}
                assert complete, "an answer without any records"
                assert not any(each.records for index, each in found.items() if index not in complete)
                missing -= complete


def without_epochs(records):
    """Batches of equal size with the leader epoch as `raw.batch` has it."""
    batches, position = bytearray(records or b""), 0
    while position < len(batches):
        batches[position + 12 : position + 16] = bytes(4)
        position += 12 + int.from_bytes(batches[position + 8 : position + 12], "big")
    return batches


def checkpointed(broker, topic):
    """How many partitions of a topic the high watermarks' checkpoint names that have records."""
    path = broker.data_dir / "replication-offset-checkpoint"
    return len(re.findall(rf"^{topic} \d+ [1-9]", path.read_text(), re.MULTILINE)) if path.exists() else 0


def test_a_start_with_too_few_descriptors_says_what_it_needs(tmp_path):
    broker = Limited(tmp_path, 255)
    command = [*broker.inside, *broker.command()]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "allows this process 255 open files and connections; it needs 256 at least" in line


@pytest.mark.parametrize(
    ("limit", "partitions", "rounds"), [(256, 400, 2), pytest.param(1024, 10_000, 1, marks=pytest.mark.long)]
)
def test_many_partitions_are_served_with_few_descriptors(limited, limit, partitions, rounds):
    broker = limited(limit)
    create(broker, "many", partitions)
    values = []
    for number in range(rounds):
        values.append(b"%d" % number)
        produce_to_all(broker, "many", partitions, values[-1])
        wait_until(lambda: checkpointed(broker, "many") == partitions, "all are in the checkpoint", 60)
        read_all(broker, "many", partitions, values)
        assert broker.descriptors < limit
        broker.stop() if number == 0 else broker.kill()
        broker.restart()
    read_all(broker, "many", partitions, values)
    broker.stop()
    assert "offline" not in broker.log
    assert "Errno" not in broker.log


def test_partitions_whose_flush_is_waited_for_are_served_with_few_descriptors(limited):
    broker = limited(256, **{"log.flush.interval.messages": "1"})
    create(broker, "flushed", 400)
    produce_to_all(broker, "flushed", 400, b"value")
    read_all(broker, "flushed", 400, [b"value"])
    broker.stop()
    assert "Errno" not in broker.log


def ask(peer, topic):
    """Produce a record as an old acquaintance."""
    peer.send(raw.produce(topic, raw.batch([b"value"])))
    answer = raw.response("Produce", 7, peer.receive())
    return answer.responses[0].partition_responses[0].error_code


def test_idle_connections_hold_up_nobody_who_is_there(limited):
    broker = limited(512)
    create(broker, "t", 1)
    address = (broker.host, broker.port)
    idle = []
    with raw.Peer(address) as acquaintance:
        assert ask(acquaintance, "t") == 0
        for _ in range(600):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(address)
            idle.append(sock)
            time.sleep(0.001)
        wait_until(lambda: "accepts no connections" in broker.log, "the limit is reached")
        end = time.monotonic() + 3  # several checkpoints
        while time.monotonic() < end:
            assert ask(acquaintance, "t") == 0
            assert broker.descriptors < 512
            time.sleep(0.02)
        for sock in idle:
            sock.close()
        with raw.Peer(address) as newcomer:
            assert ask(newcomer, "t") == 0
    broker.stop()
    assert "offline" not in broker.log
    assert broker.log.count("accepts no connections") == 1
    assert "Errno" not in broker.log


def test_answers_that_nobody_reads_hold_up_nobody_else(limited):
    broker = limited(1024)
    partitions = 1300
    create(broker, "t", partitions)
    create(broker, "other", 1)
    produce_to_all(broker, "t", partitions, os.urandom(40_000))
    address = (broker.host, broker.port)
    with contextlib.ExitStack() as stack:
        acquaintance = stack.enter_context(raw.Peer(address))
        for number in range(40):
            reader = stack.enter_context(raw.Peer(address, receive_buffer=4096))
            wanted = sorted(range(partitions), key=lambda index, start=number * 331: (index - start) % partitions)
            reader.send(fetch_request("t", dict.fromkeys(wanted, 0)))
        end = time.monotonic() + 3
        while time.monotonic() < end:
            assert ask(acquaintance, "other") == 0
            assert broker.descriptors < 1024
            time.sleep(0.02)
        acquaintance.send(raw.fetch("t", partition=7))
        answer = raw.response("Fetch", 11, acquaintance.receive())
        assert answer.responses[0].partitions[0].records
        create(broker, "new", 50)
    broker.stop()
    assert "Errno" not in broker.log


def test_requests_of_half_closed_peers_are_given_up(limited):
    broker = limited(1024)
    before = broker.sockets
    create(broker, "t", 1)
    wait_until(lambda: broker.sockets == before, "the administrator has left")
    long_poll = raw.fetch("t", max_wait_ms=2**31 - 1, min_bytes=1 << 20)
    join = raw.request(
        "JoinGroup", 2, group_id="g", session_timeout_ms=60_000, rebalance_timeout_ms=300_000, member_id="",
        protocol_type="consumer", protocols=[],
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        for number in range(60):
            peer = stack.enter_context(raw.Peer((broker.host, broker.port)))
            peer.send(long_poll * 2)
            time.sleep(0.01)
            peer.send((long_poll, b"\0", join)[number % 3])  # nobody reads this while two requests wait
            time.sleep(0.005)
            peer.socket.shutdown(socket.SHUT_WR)
        wait_until(lambda: broker.sockets == before, "the connections are closed")
    broker.stop()


@pytest.mark.parametrize("unread", [b"", b"\0\0"])
def test_requests_of_silent_peers_are_given_up(limited, unread):
    broker = limited(1024, **{"connections.max.idle.ms": "1500"})
    before = broker.sockets
    create(broker, "t", 1)
    wait_until(lambda: broker.sockets == before, "the administrator has left")
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(raw.Peer((broker.host, broker.port))) for _ in range(10)]
        for peer in peers:
            peer.send(raw.fetch("t", max_wait_ms=2**31 - 1, min_bytes=1 << 20) * 2 + unread)
        for peer in peers:  # each was served, and is hung up on without an answer
            assert peer.is_closed()
        wait_until(lambda: broker.sockets == before, "the connections are closed")
    broker.stop()
