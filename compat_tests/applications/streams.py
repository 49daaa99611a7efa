"""A Kafka Streams application as a process, and what goes into its topics and comes out of them."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import confluent_kafka
import pytest
from compat_tests.apache.brokers import jars
from compat_tests.support.brokers import wait_until
from compat_tests.support.java_tools import FAST_START
from confluent_kafka.admin import AdminClient, NewTopic

SOURCE = Path(__file__).parent / "StreamsApplication.java"

Pairs = list[tuple[bytes | None, bytes | None]]


def class_path(release: str, folder: Path) -> str:
    """Compile the application against a release of Kafka Streams ("streams_4" or "streams_3"), once for a folder."""
    folder_of_jars = jars(release)
    if shutil.which("javac") is None:
        pytest.skip("javac is not on this machine: `make setup` brings it")
    target = folder / release
    if not target.exists():
        subprocess.run(["javac", "-cp", f"{folder_of_jars}/*", "-d", target, SOURCE], check=True, timeout=240)
    return f"{target}:{folder_of_jars}/*"


class StreamsApplication:
    """One instance of an application. It outlives kills: `start` begins again in the same state directory."""

    def __init__(
        self,
        path: str,
        folder: Path,
        bootstrap: str,
        topology: str,
        name: str,
        *,
        jvm: Sequence[str] = FAST_START,
        **settings: str,
    ) -> None:
        folder.mkdir(exist_ok=True)
        given = {
            "application.id": name,
            "bootstrap.servers": bootstrap,
            "state.dir": str(folder / "state"),
        } | {key.replace("_", "."): value for key, value in settings.items()}
        pairs = [f"{key}={value}" for key, value in given.items()]
        quiet = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")
        self._command = ["java", *jvm, *quiet, "-cp", path, "StreamsApplication", topology, name, *pairs]
        self.log_path = folder / "log.txt"
        self.process: subprocess.Popen[bytes] | None = None
        self._logged = 0

    @property
    def log(self) -> str:
        """What it has printed since it was last started."""
        return self.log_path.read_bytes()[self._logged :].decode(errors="replace")

    def start(self) -> None:
        self._logged = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def wait_until_running(self, timeout_s: float = 60) -> None:
        wait_until(lambda: "RUNNING\n" in self.log, f"the application runs: {self.log[-3000:]}", timeout_s)

    def kill(self) -> None:
        """SIGKILL: it closes nothing."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """The end of its standard input makes it leave its group and end."""
        if self.process is not None and self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"the application did not end:\n{self.log[-3000:]}") from None


def make_topics(bootstrap: str, partitions: int, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # Records may be as old as a test wants them: otherwise retention takes them away at its first look.
    config = {"retention.ms": "-1"}
    new = [NewTopic(name, num_partitions=partitions, replication_factor=1, config=config) for name in names]
    for done in admin.create_topics(new).values():
        done.result(60)


def put(bootstrap: str, topic: str, records: Iterable[tuple[str, str, int]]) -> None:
    """Produce (key, value, timestamp in ms)."""
    # As Java chooses partitions: a join by a foreign key looks where Java would have put the key.
    options = {"linger.ms": 5, "partitioner": "murmur2_random"}
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap} | options)
    for key, value, timestamp in records:
        producer.produce(topic, key=key, value=value, timestamp=timestamp)
        producer.poll(0)
    assert producer.flush(60) == 0


def take(bootstrap: str, topic: str, is_enough: Callable[[Pairs], bool], timeout_s: float = 120) -> Pairs:
    """What a read_committed reader sees of a topic from its beginning, until that is enough and its end is reached."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: Pairs = []
    count = len(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
    consumer.assign([confluent_kafka.TopicPartition(topic, i, confluent_kafka.OFFSET_BEGINNING) for i in range(count)])
    deadline, at_end = time.monotonic() + timeout_s, set()
    try:
        while not (len(at_end) == count and is_enough(found)):
            assert time.monotonic() < deadline, f"{len(found)} records after {timeout_s} s, the last: {found[-5:]}"
            for message in consumer.consume(500, timeout=0.2):
                if not message.error():
                    at_end.discard(message.partition())
                    found.append((message.key(), message.value()))
                elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    at_end.add(message.partition())
    finally:
        consumer.close()
    return found
