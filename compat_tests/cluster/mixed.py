"""A ZooKeeper-mode cluster of two brokers of Apache Kafka 3.9 and one of Ottla, and what Kafka's own tools do with it."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from compat_tests.apache.brokers import ApacheKafka3
from compat_tests.support.brokers import BrokerProcess, OttlaProcess, wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.java_tools import JavaTools, Said
from confluent_kafka import Producer
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ottla.server.testing.history.replica_logs import Replicas, batches, compare, read_log
from ottla.server.testing.history.rules import Report
from ottla.wire.errors import KafkaError

KAFKA, OTTLA, OTHER_KAFKA = 0, 1, 2
ALL = (KAFKA, OTTLA, OTHER_KAFKA)
# ISRs shrink soon after a broker is gone. A JVM that starts can lose a session of 3 s on a machine with other work.
SETTINGS = {
    "zookeeper.session.timeout.ms": "5000",
    "replica.lag.time.max.ms": "2000",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
# The others, who are paused meanwhile, must not lose their sessions.
ELECTION_S = 3.0


class Mixed:
    """The cluster, a client of its ZooKeeper, and Kafka's tools. Apache Kafka controls it to begin with.

    Under OTTLA_COMPAT_BROKER=kafka the broker in the middle is Apache Kafka as well: what a test claims holds of Kafka.
    """

    def __init__(self, directory: Path, tools: JavaTools) -> None:
        middle = ApacheKafka3 if os.environ.get("OTTLA_COMPAT_BROKER") == "kafka" else OttlaProcess
        self.cluster = Cluster(directory, (ApacheKafka3, middle, ApacheKafka3), SETTINGS)
        self.tools = tools
        self._plan = directory / "plan.json"
        self._zookeeper: KazooClient | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator["Mixed"]:
        with contextlib.ExitStack() as stack:
            stack.push(self.cluster)  # stops it
            self.cluster.zookeeper.start()
            for numbers in ((KAFKA,), (OTTLA, OTHER_KAFKA)):  # the first to come is the controller
                self.cluster.start_brokers([self.broker(number) for number in numbers])
            self._zookeeper = KazooClient(self.cluster.zookeeper.address)
            self._zookeeper.start()
            stack.callback(self._zookeeper.close)
            stack.callback(self._zookeeper.stop)
            yield self

    def broker(self, number: int) -> BrokerProcess:
        return self.cluster.brokers[number]

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    # --- ZooKeeper

    def node(self, path: str) -> Any:
        """The JSON that is in it, None if there is no such node."""
        with contextlib.suppress(NoNodeError):
            return json.loads(self._ask(self._zookeeper.get, path)[0])
        return None

    def owner(self, path: str) -> int:
        """The session that an ephemeral node lives as long as."""
        return self._ask(self._zookeeper.exists, path).ephemeralOwner

    def _ask(self, question: Callable[[str], Any], path: str) -> Any:
        """Ask again if ZooKeeper has ended the session of the tests, as it does while the machine is away."""
        return self._zookeeper.retry(question, path)

    def state(self, topic: str, partition: int = 0) -> dict[str, Any]:
        return self.node(f"/brokers/topics/{topic}/partitions/{partition}/state") or {}

    def controller_id(self) -> int:
        return (self.node("/controller") or {"brokerid": -1})["brokerid"]

    def make_controller(self, number: int) -> None:
        """As people do: who deletes /controller has another one elected. The others are paused, so that they do not win."""
        if self.controller_id() == number:
            return
        wait_until(lambda: self._elects(number), f"broker {number} is the controller", 120)
        wait_until(lambda: self.cluster.controller() is self.broker(number), "all know the controller")
        self.cluster.wait_until_whole()

    def _elects(self, number: int) -> bool:
        """Whether it has become the controller within the time that others can be paused."""
        others = [broker for broker in self.cluster.brokers if broker is not self.broker(number)]
        for broker in others:
            broker.pause()
        try:
            with contextlib.suppress(NoNodeError, AssertionError):
                self._zookeeper.delete("/controller")
                wait_until(lambda: self.controller_id() == number, "it is elected", ELECTION_S)
        finally:
            for broker in others:
                broker.resume()
        return self.controller_id() == number

    # --- topics

    def create(self, topic: str, *replicas: Sequence[int], at: int = KAFKA, **configs: str) -> None:
        """By kafka-topics of one broker; returns when every broker knows all leaders."""
        assignment = ",".join(":".join(map(str, each)) for each in replicas)
        options = [f"--config={name.replace('_', '.')}={value}" for name, value in configs.items()]
        self.topics(at, "--create", "--topic", topic, "--replica-assignment", assignment, *options).fine()
        self.wait_for_leaders(topic, dict(enumerate(each[0] for each in replicas)))

    def delete(self, topic: str, at: int = KAFKA) -> None:
        self.topics(at, "--delete", "--topic", topic).fine()
        wait_until(lambda: self.node(f"/brokers/topics/{topic}") is None, f"{topic} is deleted")

    def described_alike(self, topics: str) -> str:
        """What kafka-topics says, when it says the same at every broker: an ISR may change meanwhile."""
        told: set[str] = set()

        def is_same() -> bool:
            told.clear()
            told.update(self.topics(at, "--describe", "--topic", topics).fine() for at in ALL)
            return len(told) == 1

        wait_until(is_same, f"all brokers describe {topics} alike")
        return told.pop()

    def topics(self, at: int, *arguments: str) -> Said:
        return self._tool("TopicCommand", self.broker(at).bootstrap, *arguments)

    def wait_for_leaders(self, topic: str, leaders: Mapping[int, int]) -> None:
        """Until each running broker names these leaders."""
        wait_until(
            lambda: all(leaders.items() <= self._leaders(broker, topic).items() for broker in self.cluster.running),
            f"all brokers know that {topic} is led by {leaders}",
        )

    def _leaders(self, broker: BrokerProcess, topic: str) -> dict[int, int]:
        answer = self.cluster.metadata(broker, topic)
        return {} if answer is None else {each.partition_index: each.leader_id for each in answer.topics[0].partitions}

    def view(self, number: int, *topics: str) -> list[tuple[Any, ...]]:
        """All that a broker tells of the partitions of topics."""
        answer = self.cluster.metadata(self.broker(number), *topics)
        return sorted(
            (topic.name, part.partition_index, part.leader_id, part.leader_epoch)
            + (tuple(part.replica_nodes), tuple(part.isr_nodes), tuple(part.offline_replicas))
            for topic in answer.topics
            for part in topic.partitions
        )

    def wait_for_isr(self, topic: str, *brokers: int, partition: int = 0) -> None:
        wait_until(
            lambda: set(self.state(topic, partition).get("isr", ())) == set(brokers),
            f"{topic}-{partition} has the ISR {brokers}",
        )

    def restart(self, number: int) -> None:
        """After a kill, too: a broker of Kafka does not start while its last life's session is not known to be over."""
        wait_until(lambda: self.node(f"/brokers/ids/{number}") is None, f"broker {number} is missed", 60)
        self.broker(number).restart()

    def wait_until_all_are_in_sync(self) -> None:
        """Every replica of every topic: then whoever stops can hand over all that it leads to somebody."""
        topics = self._ask(self._zookeeper.get_children, "/brokers/topics")
        wait_until(lambda: all(map(self._is_whole, topics)), "all replicas are in sync", 60)

    def _is_whole(self, topic: str) -> bool:
        node = self.node(f"/brokers/topics/{topic}") or {"partitions": {}}
        return all(
            set(self.state(topic, int(index)).get("isr", ())) == set(replicas)
            for index, replicas in node["partitions"].items()
        )

    def reassign(self, replicas: Mapping[tuple[str, int], Sequence[int]], at: int = KAFKA) -> None:
        """kafka-reassign-partitions --execute, and --verify until it says that all is done."""
        parts = [
            {"topic": topic, "partition": index, "replicas": list(ids)} for (topic, index), ids in replicas.items()
        ]
        self._plan.write_text(json.dumps({"version": 1, "partitions": parts}))
        arguments = ("--reassignment-json-file", str(self._plan))
        self.cluster.wait_until_whole()  # the tool gives up at once if it does not find a broker
        tool = "reassign.ReassignPartitionsCommand"
        self._tool(tool, self.broker(at).bootstrap, *arguments, "--execute").fine()
        wait_until(
            lambda: (
                self._tool(tool, self.broker(at).bootstrap, *arguments, "--verify").out.count("is completed")
                == len(parts)
            ),
            "the reassignment is completed",
        )

    def elect_preferred(self, topic: str, partition: int = 0, at: int = KAFKA) -> str:
        arguments = ("--election-type", "PREFERRED", "--topic", topic, "--partition", str(partition))
        return self._tool("LeaderElectionCommand", self.broker(at).bootstrap, *arguments).fine()

    def groups(self, at: int, *arguments: str) -> Said:
        return self._tool("consumer.group.ConsumerGroupCommand", self.broker(at).bootstrap, *arguments)

    def _tool(self, name: str, bootstrap: str, *arguments: str) -> Said:
        return self.tools(f"org.apache.kafka.tools.{name}", "--bootstrap-server", bootstrap, *arguments)

    # --- records

    def produce(self, topic: str, count: int, *, partition: int = 0, codec: str = "none") -> list[bytes]:
        """Idempotent and with acks=all, in many batches; returns the values when all are acknowledged."""
        values = [f"{codec} {number} ".encode() * 5 for number in range(count)]
        settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "compression.type": codec}
        producer = Producer(settings | {"linger.ms": 1, "batch.num.messages": 50, "log_level": 0})
        failures: list[Any] = []
        for value in values:
            producer.produce(
                topic, value, partition=partition, on_delivery=lambda e, _: failures.append(e) if e else None
            )
        assert producer.flush(60) == 0
        assert failures == []
        return values

    def replicas(self, topic: str, partition: int = 0) -> Replicas:
        """What the data directories of its replicas hold, from the leader's end back."""
        state = self.cluster.partitions(topic)[partition]
        numbers = sorted(state.replica_nodes, key=lambda number: number != state.leader_id)
        logs = {f"broker {number}": read_log(self.broker(number).data_dir, topic, partition) for number in numbers}
        return Replicas(topic, partition, None, logs)

    def assert_equal_logs(self, topic: str, *partitions: int) -> None:
        """Nothing is produced any more: every replica comes to hold the same bytes."""
        for partition in partitions or (0,):
            wait_until(
                lambda index=partition: len({ends(log) for log in self.replicas(topic, index).logs.values()}) == 1,
                f"the replicas of {topic}-{partition} end alike",
            )
            found, report = self.replicas(topic, partition), Report()
            compare(found, report)
            assert report.violations == []
            assert len(found.logs) > 1 and ends(next(iter(found.logs.values()))) > 0


def ends(log: bytes) -> int:
    """The offset after the last whole batch; the broker may be writing another."""
    end = 0
    with contextlib.suppress(KafkaError):
        for batch in batches(log, None):
            end = batch.next_offset
    return end
