"""Three brokers with three ZooKeepers, or a process that holds their tree, as a system under test: what can be done to them and what has to be there in the end.

Everything that is broken is mended at the end of its fault; what takes longer, that replicas catch up and come back into
sync, may be under way when the next fault begins. The faults themselves are in `compat_tests.history.faults`.
"""

import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from compat_tests.apache.brokers import ApacheKafka3
from compat_tests.history.faults import Fault, FaultMaker
from compat_tests.history.members import ALL, CLASSIC, SHARED_TOPIC
from compat_tests.history.members import SETTINGS as MEMBERS_SETTINGS
from compat_tests.support.brokers import BrokerProcess, wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.network import Network, SmallDisk, has_namespaces
from compat_tests.support.proxies import Proxies

from ottla.server.testing.history.replica_logs import Replicas, read_log

# Whatever waits for a broker that does not answer waits shorter than Kafka would, so that a run sees more.
SETTINGS = {
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "5000",
    "controller.socket.timeout.ms": "5000",
    "request.timeout.ms": "5000",
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "10",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    **MEMBERS_SETTINGS,
}
TRANSACTIONAL_TOPIC = "transactional"  # not "chaos-...": the tails of those are torn
OWN_TOPICS = ("__consumer_offsets", "__transaction_state", "probe", TRANSACTIONAL_TOPIC, SHARED_TOPIC)
SETTLE_S = 120.0


class ThreeBrokers:
    replication_factor = 3
    configs: ClassVar[dict[str, str]] = {"min.insync.replicas": "2"}

    def __init__(
        self,
        directory: Path,
        kinds: Sequence[type[BrokerProcess]],
        wanted: Sequence[str] = (),
        *,
        is_served: bool = False,
    ) -> None:
        """`wanted`: names of faults, or beginnings of names; without them all that this machine allows. `is_served`: no ZooKeeper."""
        network = Network() if has_namespaces() else Proxies()
        self.cluster = Cluster(directory, kinds, SETTINGS, zookeepers=3, network=network, is_served=is_served)
        self._disk = SmallDisk(str(self.cluster.brokers[0].data_dir)) if isinstance(network, Network) else None
        # Brokers of Apache Kafka 3.9 have no share groups, and none of KIP-848 with ZooKeeper.
        self.kinds_of_groups = (CLASSIC,) if ApacheKafka3 in kinds else ALL
        self._topic = ""
        self._leaders: dict[tuple[str, int], BrokerProcess] = {}
        self._maker = FaultMaker(self.cluster, network, self._disk, self.settle)
        self._makers = self._maker.makers(wanted)

    def start(self) -> None:
        self.cluster.start()

    def kill(self) -> None:
        self.cluster.kill()

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def faults(self, topic: str, chance: random.Random) -> Iterator[Fault]:
        self._topic = topic
        while True:
            if chance.random() < 0.4:
                self.settle()
            yield chance.choice(self._makers)(topic, chance)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [(broker.host, broker.port) for broker in self.cluster.brokers]

    def is_well(self) -> bool:
        everybody = set(range(len(self.cluster.brokers)))
        seen = set()
        for broker in self.cluster.brokers:
            told = self.cluster.metadata(broker, self._topic, *OWN_TOPICS) if broker in self.cluster.running else None
            if told is None or {each.node_id for each in told.brokers} != everybody:
                return False
            partitions = [(topic.name, each) for topic in told.topics for each in topic.partitions]
            if not partitions or any(set(each.isr_nodes) != everybody for _, each in partitions):
                return False
            leaders = sorted((name, each.partition_index, each.leader_id) for name, each in partitions)
            seen.add((told.controller_id, *leaders))
        return len(seen) == 1

    def settle(self) -> None:
        """Until every broker runs and all replicas are in sync."""
        wait_until(self._is_settled, "all replicas are in sync", SETTLE_S)
        self.cluster.wait_until_whole(SETTLE_S)

    def _is_settled(self) -> bool:
        self._maker.revive()
        return all(map(self._is_in_sync, (self._topic, *OWN_TOPICS)))

    def _is_in_sync(self, topic: str) -> bool:
        found = self.cluster.partitions(topic).values()
        everybody = set(range(len(self.cluster.brokers)))
        return all(set(each.replica_nodes) == set(each.isr_nodes) == everybody for each in found)

    def stop(self) -> None:
        """In the end; nothing is written any more."""
        self.settle()
        for topic in (self._topic, TRANSACTIONAL_TOPIC, SHARED_TOPIC):
            leaders = self.cluster.partitions(topic).items()
            self._leaders |= {(topic, index): self.cluster.brokers[each.leader_id] for index, each in leaders}
        self.cluster.stop()

    def replicas(self, topic: str, partition: int) -> Replicas:
        leader = self._leaders[topic, partition]
        brokers = sorted(self.cluster.brokers, key=lambda broker: broker is not leader)
        logs = {broker.directory.name: read_log(broker.data_dir, topic, partition) for broker in brokers}
        return Replicas(topic, partition, high_watermark(leader.data_dir, topic, partition), logs)

    def keep(self) -> None:
        """Puts what would be gone with this process beside the rest, to look at."""
        if self._disk is not None:
            data = self.cluster.brokers[0].data_dir
            shutil.copytree(data, data.with_name("data-kept"), dirs_exist_ok=True)

    def discard(self) -> None:
        """Gives up what does not lie in its directory, which can be removed then."""
        if self._disk is not None:
            self._disk.unmount()

    def state(self) -> str:
        """What every broker says of brokers and partitions, for the message of a failure."""
        lines = []
        for number, broker in enumerate(self.cluster.brokers):
            answer = self.cluster.metadata(broker, self._topic, *OWN_TOPICS) if broker in self.cluster.running else None
            lines.append(f"broker {number} ({broker.bootstrap}) says: {'nothing' if answer is None else ''}")
            if answer is not None:
                lines.append(
                    f"    brokers {[each.node_id for each in answer.brokers]}, controller {answer.controller_id}"
                )
                lines += [
                    f"    {topic.name}-{each.partition_index}: leader {each.leader_id} in epoch {each.leader_epoch}, "
                    f"replicas {each.replica_nodes}, in sync {each.isr_nodes}, error {each.error_code}"
                    for topic in answer.topics
                    for each in topic.partitions
                ]
        return "\n".join(lines)


def high_watermark(data_dir: Path, topic: str, partition: int) -> int:
    """As the broker wrote it down when it stopped."""
    for line in (data_dir / "replication-offset-checkpoint").read_text().splitlines()[2:]:
        name, number, offset = line.split()
        if (name, int(number)) == (topic, partition):
            return int(offset)
    raise AssertionError(f"{data_dir}: {topic}-{partition} has no high watermark")
