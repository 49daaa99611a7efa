"""docs/operations.md says how a data directory is copied and restored. Its commands are run here, on a broker with something in it."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compat_tests.docs.pages import DOCS, Snippet, snippets
from compat_tests.docs.snippets import Reader
from compat_tests.support.brokers import BrokerProcess, OttlaProcess
from compat_tests.support.groups import ask_coordinator, wait_for_groups
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

TEST = "compat_tests/docs/test_backup.py"
LINES = [b"%d" % number for number in range(200)]
READ = 77
WELL = "nothing damaged"
"""Says `ottla check`."""


def blocks(page: str) -> list[Snippet]:
    return [each for each in snippets(DOCS / page) if each.why == TEST]


class Machine(Reader):
    """Where the commands are typed: /var/lib, /backup and /srv are folders of the test, and `systemctl` is the test itself."""

    def __init__(self, folder: Path, broker: BrokerProcess) -> None:
        super().__init__(folder, "127.0.0.1:1")
        self.broker = broker

    def type(self, commands: str) -> str:
        text = re.sub(r"(?<!\S)/(var/lib|backup|srv)/", rf"{self.folder}/\1/", commands)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def follow(self, snippet: Snippet) -> str:
        said = ""
        for line in snippet.text.splitlines():
            if line == "systemctl stop ottla":
                self.broker.stop()
            elif line == "systemctl start ottla":
                self.broker.start()
            else:
                said += self.type(line)
        return said


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """With a broker that has something in it, and a snapshot of its files in `snapshot`."""
    folder = tmp_path_factory.mktemp("machine")
    for name in ("var/lib", "backup", "srv"):
        (folder / name).mkdir(parents=True)
    broker = OttlaProcess(folder, {})
    broker.data_dir = folder / "var/lib/ottla"
    broker.start()
    fill(broker.bootstrap)
    broker.pause()  # the process does not move while the files are copied, as under a snapshot of the file system
    try:
        shutil.copytree(broker.data_dir, folder / "snapshot")
    finally:
        broker.resume()
    yield Machine(folder, broker)
    broker.stop()


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Callable[[Path], OttlaProcess]]:
    """Starts a broker on a copy."""
    started: list[OttlaProcess] = []

    def start(data: Path) -> OttlaProcess:
        folder = tmp_path / f"restored-{len(started)}"
        folder.mkdir()
        started.append(OttlaProcess(folder, {}))
        started[-1].data_dir = data
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.stop()


def fill(bootstrap: str) -> None:
    """A topic with a setting and records, and a group that has read some of them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1, config={"retention.ms": "123456789"})])["orders"].result(60)
    produce(bootstrap, LINES)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    offsets = [TopicPartition("orders", 0, READ)]
    assert ask_coordinator(lambda: consumer.commit(offsets=offsets, asynchronous=False)) == READ
    consumer.close()


def produce(bootstrap: str, lines: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    refused: list[object] = []
    for line in lines:
        producer.produce(
            "orders", line, partition=0, on_delivery=lambda error, _: refused.append(error) if error else None
        )
    assert (producer.flush(60), refused) == (0, [])


def check_everything_is_there(bootstrap: str) -> None:
    assert records(bootstrap) == LINES
    wait_for_groups(bootstrap)  # librdkafka does not ask again
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("billing")]).values()
    assert [(each.topic, each.offset) for each in asked.result(60).topic_partitions] == [("orders", READ)]
    resource = ConfigResource(ResourceType.TOPIC, "orders")
    assert admin.describe_configs([resource])[resource].result(60)["retention.ms"].value == "123456789"
    # It is a broker as any other: what is written now comes behind what was there.
    produce(bootstrap, [b"after"])
    assert records(bootstrap)[-1] == b"after"


def records(bootstrap: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True})
    consumer.assign([TopicPartition("orders", 0, 0)])
    found: list[bytes] = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append(message.value())
    assert message is not None and message.error().code() == KafkaError._PARTITION_EOF
    consumer.close()
    return found


def test_a_copy_that_was_made_as_told_has_everything(
    machine: Machine, restored: Callable[[Path], OttlaProcess]
) -> None:
    backup, restore = blocks("operations.md")
    said = machine.follow(backup)
    assert WELL in said
    copying, starting = restore.text.splitlines()
    machine.type(copying)
    words = starting.split()
    assert words[:4] == ["ottla", "start", "server.properties", "--override"]
    check_everything_is_there(restored(machine.folder / words[4].removeprefix("log.dirs=/")).bootstrap)
    # The original has noticed nothing, neither of the copy nor of the broker on it.
    check_everything_is_there(machine.broker.bootstrap)


def test_a_snapshot_of_one_moment_has_what_was_acknowledged(
    machine: Machine, restored: Callable[[Path], OttlaProcess]
) -> None:
    check_everything_is_there(restored(machine.folder / "snapshot").bootstrap)


def test_commands_look_into_files_and_find_damage(machine: Machine) -> None:
    """Otherwise `ottla check` in the procedure would prove nothing."""
    machine.broker.stop()
    (block,) = blocks("commands.md")
    looking, checking = block.text.splitlines()
    assert "baseOffset: 0" in machine.type(looking)
    assert WELL in machine.type(checking)
    segment = machine.broker.data_dir / "orders-0" / f"{0:020}.log"
    content = bytearray(segment.read_bytes())
    content[100] ^= 1  # in the records of the first batch
    segment.write_bytes(content)
    with pytest.raises(AssertionError, match="orders-0"):
        machine.type(checking)
