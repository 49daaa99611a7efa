"""Kafka Streams with group.protocol=streams: the broker assigns the tasks and creates the internal topics."""

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from compat_tests.apache.brokers import jars
from compat_tests.support.java_tools import FAST_START
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).parent / "kafka_streams"
COMMAND = "org.apache.kafka.tools.streams.StreamsGroupCommand"
QUICK = {
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "5000",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "500",
    "group.streams.num.standby.replicas": "1",
}
AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once_v2"
LINES = ["alpha beta", "beta gamma", "beta"]


@pytest.fixture(scope="session")
def class_path(tmp_path_factory):
    """Kafka Streams and the compiled application."""
    compiler = shutil.which("javac")
    if compiler is None:
        pytest.skip("javac is not on this machine (`make setup` brings it)")
    streams = jars("streams_4")
    target = tmp_path_factory.mktemp("kafka_streams")
    source = HERE / "WordCount.java"
    subprocess.run([compiler, "-proc:none", "-cp", f"{streams}/*", "-d", target, source], check=True, timeout=240)
    return f"{target}:{streams}/*"


class Instance:
    """One process of the application."""

    def __init__(self, class_path, directory, *arguments):
        self.log = directory / "log.txt"
        directory.mkdir()
        command = ["java", *FAST_START, "-cp", class_path, "WordCount", *arguments, str(directory / "state")]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)

    def said(self):
        return self.log.read_text().splitlines()

    def is_running(self):
        assert self.process.poll() is None, "\n".join(self.said())
        states = [line for line in self.said() if line.isupper()]
        return bool(states) and states[-1] == "RUNNING"

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=240) == 0, "\n".join(self.said())

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def started(class_path, tmp_path):
    """Starts instances of the application."""
    instances = []

    def start(*arguments):
        instances.append(Instance(class_path, tmp_path / f"instance-{len(instances)}", *arguments))
        return instances[-1]

    yield start
    for instance in instances:
        instance.kill()


class Words:
    """The lines that were sent, and the counts that came out, in their order."""

    def __init__(self, bootstrap, source, target, unique):
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._source = source
        self._sent = Counter()
        self._counted = {}
        self.counts = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": unique("reader"),
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe([target])

    def send(self, times):
        for number in range(times):
            for line in LINES:
                self._producer.produce(self._source, line, str(number))
                self._sent.update(line.split())
        assert self._producer.flush(60) == 0

    def are_counted(self):
        for message in self._consumer.consume(500, timeout=0.2):
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF
            else:
                word, count = message.key().decode(), int(message.value())
                self._counted[word] = count
                self.counts.append((word, count))
        return self._counted == self._sent

    def total(self):
        """How often each word was sent."""
        return self._sent

    def close(self):
        self._consumer.close()


@pytest.fixture
def application(start_broker, unique):
    """A broker's address, the name of an application, and the topics that it reads and writes."""
    servers = start_broker(QUICK).bootstrap
    source, target = unique("lines"), unique("counts")
    admin = AdminClient({"bootstrap.servers": servers})
    for each in admin.create_topics([NewTopic(each, 4, 1) for each in (source, target)]).values():
        each.result()
    return servers, unique("application"), source, target


@pytest.mark.timeout(900)  # each of its waits may take minutes on a busy machine
def test_words_are_counted_by_instances_that_come_and_go(application, started, unique, wait_until, java_tools):
    servers, name, source, target = application
    words = Words(servers, source, target, unique)

    # 1. One instance gets all tasks, and the topics that it needs.
    first = started(*application, AT_LEAST_ONCE)
    words.send(50)
    wait_until(words.are_counted, "the first lines are counted", timeout_s=120)

    # 2. A second one shares them, and has the states of the others as standby tasks.
    second = started(*application, AT_LEAST_ONCE)
    wait_until(second.is_running, "the second instance runs", timeout_s=120)
    words.send(50)
    wait_until(words.are_counted, "both instances count", timeout_s=120)
    tool = java_tools("kafka_4")
    members = (COMMAND, "--bootstrap-server", servers, "--describe", "--group", name, "--members")
    wait_until(lambda: tool(*members).fine().count(name) >= 4, "both are members", timeout_s=60)
    wait_until(
        lambda: (
            "Stable" in tool(COMMAND, "--bootstrap-server", servers, "--describe", "--group", name, "--state").fine()
        ),
        "the group is stable",
        timeout_s=60,
    )

    # 3. The first one is killed. The other one goes on with its tasks when its sessions have ended.
    first.kill()
    words.send(50)
    wait_until(words.are_counted, "the second instance counts alone", timeout_s=120)

    # 4. The last one leaves, and the group can be deleted with its internal topics.
    second.close()
    words.close()
    listed = (COMMAND, "--bootstrap-server", servers, "--list", "--state")
    wait_until(lambda: "Empty" in tool(*listed).fine(), "nobody is a member any more", timeout_s=60)
    tool(COMMAND, "--bootstrap-server", servers, "--delete", "--group", name).fine()
    assert name not in tool(COMMAND, "--bootstrap-server", servers, "--list").fine()


def test_each_word_is_counted_once_although_an_instance_is_killed(application, started, unique, wait_until):
    """With exactly_once_v2 every count of every word comes out once, in order."""
    servers, _, source, target = application
    words = Words(servers, source, target, unique)
    first = started(*application, EXACTLY_ONCE)
    words.send(50)
    wait_until(words.are_counted, "the first lines are counted", timeout_s=120)
    second = started(*application, EXACTLY_ONCE)
    wait_until(second.is_running, "the second instance runs", timeout_s=120)
    words.send(50)
    first.kill()
    words.send(50)
    wait_until(words.are_counted, "the second instance counts alone", timeout_s=120)
    second.close()
    words.close()
    assert len(words.counts) == len(set(words.counts)) == sum(words.total().values())
