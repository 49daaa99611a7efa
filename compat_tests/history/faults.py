"""What can be done to a cluster at work.

Processes are killed and stopped, packets lost, disks filled, tails of logs torn, brokers restarted in turns, replicas moved, levels of features changed.
Who is hit is found out when the fault begins: the leader of some partition, one of its followers, the controller, all.

One rule is kept throughout, because Kafka promises nothing beyond it: what a broker had written when it was killed is still
there when it comes back, or else another broker that was in sync has it. So a tail is torn only from a log whose replica
has been taken out of sync.
"""

import contextlib
import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from compat_tests.apache.brokers import ApacheKafka3
from compat_tests.support.brokers import BrokerProcess, wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.holders import TreeHolder
from compat_tests.support.network import Network, SmallDisk
from compat_tests.support.proxies import Proxies
from compat_tests.support.wire_client import WireClient

from ottla.server.cluster.features import SAFE_DOWNGRADE, TRANSACTION_VERSION, UPGRADE
from ottla.server.testing.history.fault_kinds import FaultKind
from ottla.wire.messages.cluster import FeatureUpdateKey, UpdateFeaturesRequest

HOLD_S = (0.0, 0.3, 1.0, 2.5, 4.0, 7.0)  # the session timeout is 3 s, as is replica.lag.time.max.ms
ROLES = ("leader", "follower", "controller", "all")
CUTS = {
    FaultKind.CUT_FROM_PEERS: (True, False),
    FaultKind.CUT_FROM_ZOOKEEPER: (False, True),
    FaultKind.CUT_FROM_BOTH: (True, True),
}
"""From the other brokers? From ZooKeeper?"""
SIMPLE = (
    FaultKind.KILLED,
    FaultKind.PAUSED,
    FaultKind.HOLDER_KILLED,
    *CUTS,
)  # what can happen while something else is broken
TORN_MAX = 5000


class Fault(NamedTuple):
    """`begin` breaks something and tells what it hit, `end` mends it; both return when it is done."""

    name: str
    """Begins with its `FaultKind`."""
    begin: Callable[[], str]
    end: Callable[[], None]
    hold_s: float = 0.0
    """How long it is to last."""


Maker = Callable[[str, random.Random], Fault]
"""Of a topic and the choices that are left to chance."""


class FaultMaker:
    def __init__(
        self, cluster: Cluster, network: Network | Proxies, disk: SmallDisk | None, settle: Callable[[], None]
    ) -> None:
        """`disk` is where broker 0 has its data. `settle` waits until all is well."""
        self._cluster = cluster
        self._network = network
        self._disk = disk
        self._settle = settle
        self._has_been_full = False

    def makers(self, wanted: Sequence[str] = ()) -> list[Maker]:
        """Those whose names begin with what is wanted."""
        made: dict[str, Maker] = {f"{FaultKind.KILLED} {role}": self._killer(role) for role in ROLES}
        made |= {f"{FaultKind.PAUSED} {role}": self._stopper(role) for role in ROLES}
        made |= self._of_tree()
        made |= {FaultKind.POWER_LOST: self.tear, FaultKind.ROLLED: self.roll}
        made |= {FaultKind.REASSIGNED: self.reassign, FaultKind.LEADERS_MOVED: self.move_leaders}
        if not any(isinstance(each, ApacheKafka3) for each in self._cluster.brokers):
            made[FaultKind.LEVEL_CHANGED] = self.change_level
        # There is no network between brokers and a process of the same machine.
        kinds = (FaultKind.CUT_FROM_PEERS,) if self._is_served else CUTS
        cuts = itertools.product(kinds, ("", " outwards", " inwards"))
        made |= {f"{kind}{way}": self._cutter(kind, way) for kind, way in cuts}
        if self._disk is not None:
            made[FaultKind.DISK_FULL] = self.fill
        single = [maker for name, maker in made.items() if name.startswith(SIMPLE) and not name.endswith("all")]
        made["two at once"] = _pair(single)
        found = [maker for name, maker in made.items() if name.startswith(tuple(wanted) or "")]
        assert found, f"there is no fault {wanted}; there are {', '.join(made)}"
        return found

    @property
    def _is_served(self) -> bool:
        return isinstance(self._cluster.zookeeper, TreeHolder)

    def _of_tree(self) -> dict[str, Maker]:
        if self._is_served:
            return {FaultKind.HOLDER_KILLED: self.kill_holder, FaultKind.HOLDER_PAUSED: self.pause_holder}
        return {
            FaultKind.ZOOKEEPERS_LEADER_KILLED: self.kill_zookeepers_leader,
            FaultKind.ZOOKEEPER_RESTARTED: self.restart_zookeepers,
        }

    # --- processes ----------------------------------------------------------------------------------------------------

    def _hit(self, role: str, topic: str, chance: random.Random) -> list[BrokerProcess]:
        if role == "all":
            return list(self._cluster.brokers)
        if role == "controller":
            return [self._cluster.controller()]
        partition = chance.choice(sorted(self._cluster.partitions(topic)))
        leader = self._cluster.leader(topic, partition)
        others = [broker for broker in self._cluster.brokers if broker is not leader]
        return [leader if role == "leader" else chance.choice(others)]

    def _killer(self, role: str) -> Maker:
        def make(topic: str, chance: random.Random) -> Fault:
            hit: list[BrokerProcess] = []

            def begin() -> str:
                hit.extend(self._hit(role, topic, chance))
                for broker in hit:
                    broker.kill()
                return _names(hit)

            return Fault(f"{FaultKind.KILLED} {role}", begin, lambda: _start(hit), chance.choice(HOLD_S))

        return make

    def _stopper(self, role: str) -> Maker:
        def make(topic: str, chance: random.Random) -> Fault:
            hit: list[BrokerProcess] = []

            def begin() -> str:
                hit.extend(self._hit(role, topic, chance))
                for broker in hit:
                    broker.pause()
                return _names(hit)

            def end() -> None:
                for broker in hit:
                    broker.resume()

            return Fault(f"{FaultKind.PAUSED} {role}", begin, end, chance.choice(HOLD_S))

        return make

    def roll(self, topic: str, chance: random.Random) -> Fault:
        """Controlled shutdowns, one broker after the other, each when the one before is in sync again."""

        def begin() -> str:
            for broker in chance.sample(self._cluster.brokers, len(self._cluster.brokers)):
                self._settle()
                broker.stop()
                _start([broker])
            return "all in turns"

        return Fault(FaultKind.ROLLED, begin, lambda: None)

    def kill_zookeepers_leader(self, topic: str, chance: random.Random) -> Fault:
        ensemble = self._cluster.zookeeper

        def begin() -> str:
            leader = ensemble.leader()
            leader.stop()
            return leader.address

        return Fault(FaultKind.ZOOKEEPERS_LEADER_KILLED, begin, ensemble.start, chance.choice(HOLD_S))

    def restart_zookeepers(self, topic: str, chance: random.Random) -> Fault:
        ensemble = self._cluster.zookeeper

        def begin() -> str:
            ensemble.stop()
            return "all ZooKeepers"

        return Fault(FaultKind.ZOOKEEPER_RESTARTED, begin, ensemble.start, chance.choice(HOLD_S))

    def kill_holder(self, topic: str, chance: random.Random) -> Fault:
        holder = self._cluster.zookeeper

        def begin() -> str:
            holder.stop()
            return holder.address

        return Fault(FaultKind.HOLDER_KILLED, begin, holder.start, chance.choice(HOLD_S))

    def pause_holder(self, topic: str, chance: random.Random) -> Fault:
        holder = self._cluster.zookeeper

        def begin() -> str:
            holder.pause()
            return holder.address

        return Fault(FaultKind.HOLDER_PAUSED, begin, holder.resume, chance.choice(HOLD_S))

    # --- network ------------------------------------------------------------------------------------------------------

    def _cutter(self, kind: FaultKind, way: str) -> Maker:
        def make(topic: str, chance: random.Random) -> Fault:
            role = chance.choice(ROLES[:3])

            def begin() -> str:
                [hit] = self._hit(role, topic, chance)
                own = hit.directory.name
                from_peers, from_zookeeper = CUTS[kind]
                others = [each.directory.name for each in self._cluster.brokers if from_peers and each is not hit]
                for other in [*others, "zookeeper"] if from_zookeeper else others:
                    if way != " inwards":
                        self._network.lose(own, other)
                    if way != " outwards":
                        self._network.lose(other, own)
                return f"{own}, {role}"

            return Fault(f"{kind}{way}", begin, self._network.mend, chance.choice(HOLD_S))

        return make

    # --- disks --------------------------------------------------------------------------------------------------------

    def revive(self) -> None:
        """A broker ends by itself when it has had no disk to write to, maybe only when there is room again."""
        if self._has_been_full and self._cluster.brokers[0].died():
            self._has_been_full = False
            _start(self._cluster.brokers[:1])

    def fill(self, topic: str, chance: random.Random) -> Fault:
        broker = self._cluster.brokers[0]

        def begin() -> str:
            self._has_been_full = True
            self._disk.fill()
            return _names([broker])

        def end() -> None:
            self._disk.free()
            self.revive()

        return Fault(FaultKind.DISK_FULL, begin, end, chance.choice(HOLD_S[2:]))

    def tear(self, topic: str, chance: random.Random) -> Fault:
        """As after a loss of power: the last pages of some active segments are not there, or are somebody else's."""
        hit: list[BrokerProcess] = []

        def begin() -> str:
            self._settle()
            hit.extend(self._hit(chance.choice(("leader", "follower")), topic, chance))
            hit[0].kill()
            number = self._cluster.brokers.index(hit[0])
            wait_until(lambda: self._is_out_of_sync(topic, number), "the others go on without it", 60)
            torn = [tear(log, chance) for log in _active_segments(hit[0].data_dir, topic)]
            return f"{_names(hit)}: {', '.join(torn)}"

        return Fault(FaultKind.POWER_LOST, begin, lambda: _start(hit))

    def _is_out_of_sync(self, topic: str, number: int) -> bool:
        found = self._cluster.partitions(topic).values()
        return all(number not in each.isr_nodes and each.leader_id not in (-1, number) for each in found)

    # --- replicas -----------------------------------------------------------------------------------------------------

    def reassign(self, topic: str, chance: random.Random) -> Fault:
        """Takes some partitions' replicas from a broker, and later gives it new ones."""
        everybody = list(range(len(self._cluster.brokers)))

        def begin() -> str:
            partitions = sorted(self._cluster.partitions(topic))
            chosen = chance.sample(partitions, chance.randint(1, len(partitions)))
            targets = {index: chance.sample(everybody, len(everybody) - 1) for index in chosen}
            self._cluster.reassign(topic, targets)
            return ", ".join(f"{index} to {replicas}" for index, replicas in targets.items())

        def end() -> None:
            partitions = self._cluster.partitions(topic)
            self._cluster.reassign(topic, {index: chance.sample(everybody, len(everybody)) for index in partitions})

        return Fault(FaultKind.REASSIGNED, begin, end, chance.choice(HOLD_S))

    def move_leaders(self, topic: str, chance: random.Random) -> Fault:
        everybody = list(range(len(self._cluster.brokers)))

        def begin() -> str:
            targets = {
                index: chance.sample(everybody, len(everybody)) for index in sorted(self._cluster.partitions(topic))
            }
            self._cluster.reassign(topic, targets)
            self._cluster.elect_preferred(topic, list(targets))
            return ", ".join(f"{index} to {replicas[0]}" for index, replicas in targets.items())

        return Fault(FaultKind.LEADERS_MOVED, begin, lambda: None)

    def change_level(self, topic: str, chance: random.Random) -> Fault:
        """transaction.version goes down, as before a way back to an older release, and up again."""
        level = chance.choice((0, 1))

        def begin() -> str:
            return f"to {level}: {self._set_level(level, SAFE_DOWNGRADE)}"

        def end() -> None:
            self._set_level(2, UPGRADE)

        return Fault(FaultKind.LEVEL_CHANGED, begin, end, chance.choice(HOLD_S))

    def _set_level(self, level: int, kind: int) -> str:
        """The words of who answers; while others fail nobody may. A level that has stayed low does no harm."""
        update = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=level, upgrade_type=kind)
        request = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=5_000)
        for broker in self._cluster.running:
            with (
                contextlib.suppress(OSError, EOFError),
                WireClient((broker.host, broker.port), client_id="levels", timeout_s=10) as client,
            ):
                answer = client.ask(request, 2)
                return "done" if not answer.error_code else str(answer.error_message)
        return "nobody answers"


def _names(brokers: Sequence[BrokerProcess]) -> str:
    return ", ".join(broker.directory.name for broker in brokers)


def _pair(makers: Sequence[Maker]) -> Maker:
    def make(topic: str, chance: random.Random) -> Fault:
        one, other = (maker(topic, chance) for maker in chance.sample(makers, 2))

        def begin() -> str:
            return f"{one.begin()}; {other.begin()}"

        def end() -> None:
            # Processes are started last: a broker that starts and finds no tree ends, as Kafka's does.
            for fault in sorted(
                chance.sample((one, other), 2), key=lambda each: each.name.startswith(FaultKind.KILLED)
            ):
                fault.end()

        return Fault(f"{one.name} and {other.name}", begin, end, one.hold_s)

    return make


def _start(brokers: Sequence[BrokerProcess]) -> None:
    """Those of them that do not run."""
    dead = [broker for broker in brokers if broker.died()]
    for broker in dead:
        broker.launch()
    for broker in dead:
        broker.wait_until_serving()


def _active_segments(data_dir: Path, topic: str) -> list[Path]:
    return [max(folder.glob("*.log")) for folder in data_dir.glob(f"{topic}-*") if any(folder.glob("*.log"))]


def tear(log: Path, chance: random.Random) -> str:
    """Cuts off the end, puts something behind it, or turns it into zeros; tells what it did."""
    data = log.read_bytes()
    count = min(chance.randint(1, TORN_MAX), len(data))
    kind = chance.choice(("cut", "rubbish", "zeros"))
    rest = data if kind == "rubbish" else data[: len(data) - count]
    log.write_bytes(rest + {"cut": b"", "rubbish": chance.randbytes(count), "zeros": bytes(count)}[kind])
    return f"{log.parent.name} {kind} {count}"
