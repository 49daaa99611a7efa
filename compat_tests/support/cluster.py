"""A cluster for tests: one ZooKeeper, an ensemble or a process that holds a tree, and brokers that are Ottla, Apache Kafka 3.9, or some of each.

    with Cluster(tmp_path, [OttlaProcess] * 3) as cluster:
        Producer({"bootstrap.servers": cluster.bootstrap})
        cluster.brokers[1].kill()
        cluster.brokers[1].restart()
        cluster.wait_until_whole()

A broker's number in `brokers` is its id. Every broker keeps its address and its data over restarts.
"""

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from compat_tests.apache.brokers import ApacheKafka3
from compat_tests.support.brokers import BrokerProcess, OttlaProcess, free_port, wait_until
from compat_tests.support.holders import TreeHolder
from compat_tests.support.network import Network
from compat_tests.support.proxies import Proxies
from compat_tests.support.raw import Peer, message_class
from compat_tests.support.zookeepers import Ensemble

SMALL_HEAP = ("-Xmx256m", "-Xms128m")
# The cleaner's map is one array; half of a small heap is not always free in one piece.
SMALL_MAP = {"log.cleaner.dedupe.buffer.size": str(16 << 20)}
SHOWN_OF_A_LOG = 4000


def settings_of(size: int) -> dict[str, str]:
    """What a cluster of so many brokers should have that are to be watched by tests: short waits, and copies of all."""
    copies = str(min(3, size))
    return {
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": str(min(2, size)),
        "transaction.state.log.num.partitions": "4",
        "zookeeper.session.timeout.ms": "3000",
        "zookeeper.connection.timeout.ms": "60000",
        "controlled.shutdown.max.retries": "3",
        "controlled.shutdown.retry.backoff.ms": "200",
        "auto.leader.rebalance.enable": "false",
    }


class Cluster:
    def __init__(
        self,
        directory: Path,
        kinds: Sequence[type[BrokerProcess]] = (OttlaProcess,) * 3,
        settings: dict[str, str] | None = None,
        *,
        zookeepers: int = 1,
        chroot: str = "",
        each: Sequence[dict[str, str]] = (),
        network: Network | Proxies | None = None,
        is_served: bool = False,
    ) -> None:
        """`settings` are for all brokers, `each` for one each, by Apache Kafka's names.

        `is_served`: a process of this machine holds the tree, and there is no ZooKeeper. In a `network` the ZooKeepers have the place "zookeeper", and each broker has its own, "broker-0" and so on.
        """
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self._turns = itertools.count()  # at being asked
        self._network = network
        place = network.add("zookeeper") if isinstance(network, Network) else None
        self.settings = settings_of(len(kinds)) | (settings or {})
        # Else the first of Ottla's brokers might finalize levels of features before one of Kafka's comes, which then would not start.
        if OttlaProcess in kinds and ApacheKafka3 in kinds:
            self.settings.setdefault("inter.broker.protocol.version", "3.9")
        self.zookeeper: Ensemble | TreeHolder
        if is_served:
            self.zookeeper = TreeHolder(directory / "tree")
            self.settings |= self.zookeeper.settings
        else:
            self.zookeeper = Ensemble(directory / "zookeeper", zookeepers, place=place)
            self.settings["zookeeper.connect"] = self.zookeeper.address + chroot
        self.brokers = [self._broker(kind, number, each[number] if each else {}) for number, kind in enumerate(kinds)]

    def _broker(self, kind: type[BrokerProcess], number: int, more: dict[str, str]) -> BrokerProcess:
        directory = self.directory / f"broker-{number}"
        directory.mkdir(exist_ok=True)
        is_kafka = issubclass(kind, ApacheKafka3)
        options: dict[str, Any] = {"heap": SMALL_HEAP} if is_kafka else {}
        settings = (SMALL_MAP if is_kafka else {}) | self.settings | {"node.id": str(number)} | more
        broker = kind(directory, settings, **options)
        broker.port = free_port()
        if isinstance(self._network, Network):
            broker.host, broker.inside = self._network.add(directory.name)
        elif self._network is not None:
            zookeepers = [(server.host, server.port) for server in self.zookeeper.servers]
            broker.settings |= self._network.connect(directory.name, broker, zookeepers)
        return broker

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.kill()
            raise

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        """Stops what still runs; after a failure with SIGKILL, so that the first failure is the one that is told."""
        if failure is None:
            self.stop()
        else:
            print(self.logs())
            self.kill()

    # --- all of them --------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        self.zookeeper.start()
        self.start_brokers(self.brokers)
        return self

    def start_brokers(self, brokers: Sequence[BrokerProcess]) -> None:
        """At the same time; returns when the cluster is whole."""
        for broker in brokers:
            broker.launch()
        for broker in brokers:
            broker.wait_until_serving()
        self.wait_until_whole()

    def stop(self) -> None:
        """SIGTERM to all brokers at the same time; all have to end cleanly. Then ZooKeeper goes."""
        running = self.running
        try:
            for broker in running:
                broker.terminate()
            for broker in running:
                broker.wait_for_clean_end()
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL for all, also for those that are paused."""
        for broker in self.running:
            broker.kill()
        self.zookeeper.stop()

    @property
    def running(self) -> list[BrokerProcess]:
        return [broker for broker in self.brokers if broker.process is not None and not broker.died()]

    @property
    def bootstrap(self) -> str:
        """host:port,host:port,... of all brokers, whether they run or not."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def logs(self) -> str:
        """The end of each broker's log, for a failure's message."""
        return "\n".join(
            f"--- broker {number}, {broker.log_path}\n{broker.log[-SHOWN_OF_A_LOG:]}"
            for number, broker in enumerate(self.brokers)
            if broker.log_path.exists()
        )

    # --- what they say ------------------------------------------------------------------------------------------------

    def wait_until_whole(self, timeout_s: float = 60) -> None:
        """Until every running broker knows all running brokers, names the same of them as controller and knows the same topics."""
        try:
            wait_until(self._is_whole, "all brokers are registered, know a controller and the same topics", timeout_s)
        except AssertionError as failure:
            raise AssertionError(f"{failure}\n{self.logs()}") from None

    def _is_whole(self) -> bool:
        expected = {number for number, broker in enumerate(self.brokers) if broker in self.running}
        told = [self._metadata(broker, None) for broker in self.running]
        if any(answer is None for answer in told):
            return False
        controllers = {answer.controller_id for answer in told}
        known = [{each.node_id for each in answer.brokers} for answer in told]
        topics = [{each.name: each.topic_id for each in answer.topics} for answer in told]
        is_agreed = len(controllers) == 1 and controllers <= expected and all(each == topics[0] for each in topics)
        return is_agreed and all(ids == expected for ids in known)

    def metadata(self, broker: BrokerProcess, *topics: str) -> Any | None:
        """A broker's own view: `brokers`, `controller_id` and `topics`; None if it does not answer."""
        asked = [message_class("MetadataRequest").MetadataRequestTopic(version=12, name=topic) for topic in topics]
        return self._metadata(broker, asked)

    def _metadata(self, broker: BrokerProcess, asked: list[Any] | None) -> Any | None:
        """`asked`: None for all topics."""
        with contextlib.suppress(AssertionError, OSError), Peer((broker.host, broker.port), timeout_s=5) as peer:
            return peer.call("Metadata", 12, topics=asked)
        return None

    def anyones_metadata(self, *topics: str) -> Any:
        """Of the first broker that answers."""
        return wait_until(
            lambda: next(filter(None, (self.metadata(broker, *topics) for broker in self.running)), None),
            "a broker answers",
        )

    def controller(self) -> BrokerProcess:
        found = wait_until(lambda: self.anyones_metadata().controller_id + 1, "there is a controller", 60)
        return self.brokers[found - 1]

    def partitions(self, topic: str) -> dict[int, Any]:
        """By index: `leader_id`, `leader_epoch`, `replica_nodes`, `isr_nodes`, as the first broker that answers has them."""
        [found] = self.anyones_metadata(topic).topics
        return {each.partition_index: each for each in found.partitions}

    def leader(self, topic: str, partition: int = 0) -> BrokerProcess:
        """As soon as there is one."""
        found = wait_until(lambda: self._leader_id(topic, partition) + 1, f"{topic}-{partition} has a leader", 60)
        return self.brokers[found - 1]

    def _leader_id(self, topic: str, partition: int) -> int:
        found = self.partitions(topic).get(partition)
        return -1 if found is None else found.leader_id

    # --- what they are asked for --------------------------------------------------------------------------------------

    def reassign(self, topic: str, targets: Mapping[int, list[int]]) -> None:
        """Asks until the controller agrees; it goes on moving replicas afterwards."""
        named = message_class("AlterPartitionReassignmentsRequest").ReassignableTopic
        partitions = [
            named.ReassignablePartition(version=0, partition_index=index, replicas=replicas)
            for index, replicas in targets.items()
        ]
        asked = [named(version=0, name=topic, partitions=partitions)]

        def is_agreed(answer: Any) -> bool:
            errors = [each.error_code for found in answer.responses for each in found.partitions]
            return answer.error_code == 0 and len(errors) == len(targets) and not any(errors)

        self._ask("AlterPartitionReassignments", 0, is_agreed, timeout_ms=5000, topics=asked)

    def elect_preferred(self, topic: str, partitions: Sequence[int]) -> None:
        """Moves leaders to the first of their replicas, where that is in sync; it need not be."""
        named = message_class("ElectLeadersRequest").TopicPartitions
        asked = [named(version=1, topic=topic, partitions=list(partitions))]
        self._ask("ElectLeaders", 1, lambda answer: True, election_type=0, topic_partitions=asked, timeout_ms=5000)

    def _ask(self, name: str, version: int, is_done: Callable[[Any], bool], **fields: Any) -> None:
        """Ask one broker after the other, or the controller where some are Kafka 3.9's, which hand nothing on."""
        is_anybodys = all(isinstance(broker, OttlaProcess) for broker in self.brokers)

        def ask() -> bool:
            running = self.running
            broker = running[next(self._turns) % len(running)] if is_anybodys else self.controller()
            with contextlib.suppress(AssertionError, OSError), Peer((broker.host, broker.port), timeout_s=30) as peer:
                return is_done(peer.call(name, version, **fields))
            return False

        wait_until(ask, f"{name} is agreed to", 60)
