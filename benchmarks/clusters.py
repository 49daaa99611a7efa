"""Three brokers each with a ZooKeeper of their own: Ottla's, and Apache Kafka 3.9's in ZooKeeper mode with its default heap.

A cluster is one `Broker` to the rows: its work is that of its three brokers. What ZooKeeper does is not counted, the same for
both.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from benchmarks import machine
from benchmarks.brokers import AGAINST, SETTINGS, Before, Broker, Failed, Kafka, Ottla, command_of
from benchmarks.wire_client import Client
from compat_tests.apache.brokers import HEAP, JARS, ApacheKafka3
from compat_tests.support.brokers import BrokerProcess, OttlaProcess
from compat_tests.support.cluster import Cluster
from kazoo.client import KazooClient

SIZE = 3
SESSION_S = 6.0
POLL_S = 0.005


class FullSizeKafka(ApacheKafka3):
    """With the heap of its start script and all else of it, whatever a cluster for tests gives it."""

    is_measured = True

    def __init__(self, directory: Path, settings: dict[str, str], **_: Any) -> None:
        super().__init__(directory, settings, heap=HEAP)


class ThreeBrokers(Broker):
    """See the module's docstring; `name` is that of what they are, so that a row compares them as it does single brokers."""

    replication_factor = SIZE
    kind: type[BrokerProcess]

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        settings = SETTINGS | {"zookeeper.session.timeout.ms": str(int(SESSION_S * 1000))}
        self.cluster = Cluster(directory / "cluster", [self.kind] * SIZE, settings)
        for server in self.cluster.zookeeper.servers:
            server.settings |= {"maxSessionTimeout": "60000"}
        self.port = self.cluster.brokers[0].port

    @classmethod
    def missing(cls) -> str:
        if shutil.which("java") is None:
            return "java is not on this machine"
        return "" if (JARS / "kafka_3" / ".ready").exists() else "ZooKeeper's jars are not in .cache"

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def pids(self) -> list[int]:
        return [broker.process.pid for broker in self.cluster.running]

    @property
    def admin_port(self) -> int:
        return self.cluster.controller().port

    def start(self) -> Self:
        """Returns when all know all, and who is controller."""
        try:
            self.cluster.start()
        except AssertionError as error:
            self.stop()
            raise Failed(f"three brokers of {self.name} did not start: {error}"[-500:]) from None
        return self

    def running(self) -> bool:
        return len(self.cluster.running) == SIZE

    def stop(self) -> None:
        self.cluster.kill()

    def cpu_seconds(self) -> float:
        return sum(map(machine.cpu_seconds, self.pids))


class OttlaCluster(ThreeBrokers):
    name = Ottla.name
    kind = OttlaProcess


class KafkaCluster(ThreeBrokers):
    name = Kafka.name
    kind = FullSizeKafka

    @classmethod
    def version(cls) -> str:
        return next((JARS / "kafka_3").glob("kafka_2.13-*.jar")).stem.removeprefix("kafka_2.13-")


class ProcessBefore(OttlaProcess):
    """One broker of another tree."""

    def command(self) -> list[str]:
        own = super().command()
        return [*command_of(AGAINST), *own[own.index("start") :]]


class ClusterBefore(ThreeBrokers):
    name = Before.name
    kind = ProcessBefore

    @classmethod
    def version(cls) -> str:
        return Before.version()


KINDS: tuple[type[ThreeBrokers], ...] = (OttlaCluster, ClusterBefore if AGAINST else KafkaCluster)


class Watched:
    """What a cluster's ZooKeeper and each of its brokers say, asked for again and again."""

    def __init__(self, three: ThreeBrokers) -> None:
        self.cluster = three.cluster
        self.zookeeper = KazooClient(three.cluster.zookeeper.address)

    def __enter__(self) -> Self:
        self.zookeeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.zookeeper.stop()
        self.zookeeper.close()

    def has(self, path: str) -> bool:
        return self.zookeeper.exists(path) is not None

    def leaders(self, broker: BrokerProcess) -> list[int]:
        """Of all partitions, as one broker knows them."""
        return [part.leader_id for topic in self.topics(broker) for part in topic.partitions]

    def topics(self, broker: BrokerProcess, names: list[str] | None = None) -> list[Any]:
        try:
            with Client(broker.port) as client:
                return client.metadata(names).topics
        except OSError:
            return []

    def wait_for(self, probe: Callable[[], bool], what: str, patience_s: float = 120.0) -> float:
        """When it came to be, by time.perf_counter."""
        deadline = time.monotonic() + patience_s
        while not probe():
            if time.monotonic() > deadline:
                raise Failed(f"not within {patience_s:.0f} s: {what}")
            time.sleep(POLL_S)
        return time.perf_counter()
