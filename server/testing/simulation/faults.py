"""Faults in a run of the simulation: they begin at random times, last for a while, and overlap.

One rule is kept throughout, because Kafka promises nothing beyond it: what a broker had written when it was killed is still
there when it comes back. So power is lost only by a broker that is in sync nowhere by the time it comes back, while others are:
nothing else goes wrong meanwhile, or the others could be the ones that are left behind, and the broker would never come back.
"""

import random
from collections.abc import Awaitable, Callable, Collection

import trio

from ottla.server.testing.history.fault_kinds import FaultKind
from ottla.server.testing.history.history import FaultBegan, FaultEnded
from ottla.server.testing.simulation.administrator import Administrator
from ottla.server.testing.simulation.brokers import DIRECTORIES, SimBroker
from ottla.server.testing.simulation.cluster import FIRST_CLIENT, SimCluster
from ottla.server.testing.simulation.disk_faults import DiskFaults
from ottla.server.testing.simulation.disk_faults import weighted as disk_faults
from ottla.server.testing.simulation.processors import FACTORS

HOLD_S = (0.05, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
BETWEEN_S = 6.0  # on average
CLIENTS_MAX = 20
Fault = Callable[[], Awaitable[None]]


FAULTS = (
    "kill",
    "kill_all",
    "pause",
    "cut_between_brokers",
    "cut_from_zookeeper",
    "isolate",
    "cut_from_clients",
    "stop_zookeeper",
    "expire_session",
    "reset_session",
    "break_connections",
    "shut_down",
    "fail_disk",
    "lose_power",
    "reassign",
    "elect_preferred",
    "change_level",
    "make_topic",
    "delete_topic",
    "depose_controller",
    "slow_down",
    "elect_fenced",
    "leave_alone",
    "fail_passing_call",
    "fail_call",
    "run_out_of_descriptors",
    "run_out_of_room",
)
"""Names of all faults: those of the methods that cause them."""


def name_of(fault: Fault) -> str:
    """Return the name of a fault by its method."""
    return str(getattr(fault, "__name__", fault)).lstrip("_")


class Faults:
    """Cause of faults at random times."""

    def __init__(self, simulation: SimCluster, clients_max: int = CLIENTS_MAX, names: Collection[str] = FAULTS) -> None:
        """`clients_max`: how many hosts of clients a broker is cut off from when it is cut off from clients.

        `names` of the faults that may happen.
        """
        self.count = 0
        self.calm_since: float | None = trio.current_time()
        """Since when no fault is under way; None while there is one."""

        self._simulation = simulation
        self._chance = random.Random(f"faults {simulation.seed}")
        self._busy: dict[SimBroker, None] = {}  # whose process is being stopped or started
        self._under_way = 0
        self._is_power_lost = False
        self._has_zookeeper_fault = False
        self._administrator = Administrator(simulation, self._chance)
        self._client_hosts = range(FIRST_CLIENT, FIRST_CLIENT + clients_max)
        weighted: list[tuple[int, Fault]] = [
            (6, self._kill),
            (1, self._kill_all),
            (4, self._pause),
            (4, self._cut_between_brokers),
            (4, self._cut_from_zookeeper),
            (3, self._isolate),
            (1, self._cut_from_clients),
            (2, self._stop_zookeeper),
            (3, self._expire_session),
            (1, self._reset_session),
            (2, self._break_connections),
            (3, self._shut_down),
            (1, self._fail_disk),
            (2, self._lose_power),
            (3, self._administrator.reassign),
            (2, self._administrator.elect_preferred),
            (2, self._administrator.change_level),
            (2, self._administrator.make_topic),
            (2, self._administrator.delete_topic),
            (1, self._depose_controller),
            (4, self._slow_down),
            (2, self._elect_fenced),
            (3, self._leave_alone),
            *disk_faults(DiskFaults(simulation, self._chance, self._free_target, self._take_back)),
        ]
        chosen = [each for each in weighted if name_of(each[1]) in names]
        self._weights = [weight for weight, _ in chosen]
        self._faults = [fault for _, fault in chosen]
        self._is_over = False
        self._pausing: trio.CancelScope | None = None

    async def run(self, seconds: float, only_fault: str = "") -> None:
        """Cause faults for some seconds, or only one, the method of this name; return when all of them are over."""
        end = trio.current_time() + seconds
        if only_fault:
            await trio.sleep(BETWEEN_S)
            await self._cause(getattr(self, only_fault))
            await trio.sleep(max(end - trio.current_time(), 0.0))
            return
        async with trio.open_nursery() as nursery:
            while True:
                with trio.CancelScope() as self._pausing:
                    await trio.sleep(self._chance.expovariate(1 / BETWEEN_S))
                if self._is_over or trio.current_time() >= end:
                    break
                (fault,) = self._chance.choices(self._faults, self._weights)
                if not self._is_power_lost:
                    nursery.start_soon(self._cause, fault)

    def stop(self) -> None:
        """Begin no fault any more; `run` returns when those under way are over."""
        self._is_over = True
        if self._pausing is not None:
            self._pausing.cancel()

    async def _cause(self, fault: Fault) -> None:
        self.count += 1
        self._under_way += 1
        self.calm_since = None
        await fault()
        self._under_way -= 1
        if not self._under_way:
            self.calm_since = trio.current_time()

    # ------------------------------------------------------------------ whom it hits

    @property
    def _brokers(self) -> list[SimBroker]:
        return self._simulation.brokers

    def _target(self) -> SimBroker:
        """Choose a broker to be hit: the controller, a leader, or any other."""
        role = self._chance.choice(("controller", "leader", "any"))
        if role == "controller":
            found = [each for each in self._brokers if each.is_controller]
        elif role == "leader" and (partitions := self._simulation.partitions):
            partition = self._chance.choice(partitions)
            found = [each for each in self._brokers if each.leads(*partition)]
        else:
            found = []
        return self._chance.choice(found or self._brokers)

    def _free_target(self) -> SimBroker | None:
        """Choose a running broker, and reserve it for a fault; None if another fault has reserved it."""
        target = self._target()
        if target in self._busy or not target.is_running:
            return None
        self._busy[target] = None
        return target

    def _hold(self) -> float:
        return self._chance.choice(HOLD_S) * self._chance.uniform(0.5, 1.5)

    async def _while(self, kind: FaultKind, target: object, how: object = "") -> None:
        self._began(kind, target, how)
        await trio.sleep(self._hold())
        self._ended(kind, target, how)

    def _began(self, kind: FaultKind, target: object = "", how: object = "") -> None:
        self._simulation.record.add(FaultBegan, f"{kind} {how}".rstrip(), str(target))

    def _ended(self, kind: FaultKind, target: object = "", how: object = "") -> None:
        self._simulation.record.add(FaultEnded, f"{kind} {how}".rstrip(), str(target))

    # ------------------------------------------------------------------ processes

    async def _kill(self) -> None:
        if (target := self._free_target()) is not None:
            await self._kill_one(target)

    async def _kill_all(self) -> None:
        async with trio.open_nursery() as nursery:
            for target in self._brokers:
                if target not in self._busy and target.is_running:
                    self._busy[target] = None
                    nursery.start_soon(self._kill_one, target)

    async def _kill_one(self, target: SimBroker) -> None:
        await target.kill(is_torn=self._chance.random() < 0.5)
        await self._while(FaultKind.KILLED, target)
        self._restart(target)

    def _restart(self, target: SimBroker) -> None:
        self._simulation.start(target)
        del self._busy[target]

    def _take_back(self, target: SimBroker, is_down: bool) -> None:
        """Release a broker that a fault had reserved; `is_down`: start it."""
        if is_down:
            self._restart(target)
        else:
            del self._busy[target]

    async def _shut_down(self) -> None:
        if (target := self._free_target()) is not None:
            with trio.move_on_after(30) as patience:
                await target.stop()
            if patience.cancelled_caught:
                await target.kill()
            await self._while(FaultKind.STOPPED, target)
            self._restart(target)

    async def _pause(self) -> None:
        """Let nothing through that the broker sends or is sent, which others cannot tell from SIGSTOP."""
        target = self._target()
        self._block(target, others=range(self._client_hosts.stop))
        target.cut_from_zookeeper()
        await self._while(FaultKind.PAUSED, target)
        target.heal_way_to_zookeeper()
        self._unblock(target, others=range(self._client_hosts.stop))

    async def _fail_disk(self) -> None:
        if (target := self._free_target()) is not None:
            directory = self._chance.choice(DIRECTORIES)
            target.fail_directory(directory)
            await self._while(FaultKind.DISK_FAILED, target, directory)
            await target.kill()
            await trio.sleep(1.0)
            self._restart(target)

    async def _lose_power(self) -> None:
        if self._under_way > 1 or (target := self._free_target()) is None:
            return
        if not self._simulation.others_are_in_sync(target):
            del self._busy[target]
            return
        self._is_power_lost = True
        await target.lose_power()
        self._began(FaultKind.POWER_LOST, target)
        while not self._simulation.is_out_of_sync(target):
            await trio.sleep(1.0)
        self._ended(FaultKind.POWER_LOST, target)
        self._restart(target)
        self._is_power_lost = False

    async def _slow_down(self) -> None:
        target, factor = self._target(), self._chance.choice(FACTORS)
        processors = self._simulation.network.processors
        processors.slow_down(target.node_id, factor)
        await self._while(FaultKind.SLOW, target, factor)
        processors.speed_up(target.node_id, factor)

    async def _leave_alone(self) -> None:
        """Cut the followers of a slow leader off until they are out of the ISR, then let them come back."""
        partitions = self._simulation.partitions
        topic, partition = self._chance.choice(partitions) if partitions else ("", 0)
        leader = next((each for each in self._brokers if each.is_serving and each.leads(topic, partition)), None)
        if leader is None:
            return
        processors, others = self._simulation.network.processors, range(self._client_hosts.start)
        self._began(FaultKind.LEFT_ALONE, leader)
        processors.slow_down(leader.node_id, FACTORS[-1])
        for _ in range(self._chance.choice((1, 2, 3))):
            self._block(leader, others, outwards=False)
            await self._until_too_few(leader, topic, partition, too_few=True)
            self._unblock(leader, others, outwards=False)
            await self._until_too_few(leader, topic, partition, too_few=False)
        processors.speed_up(leader.node_id, FACTORS[-1])
        self._ended(FaultKind.LEFT_ALONE, leader)

    async def _until_too_few(self, leader: SimBroker, topic: str, partition: int, *, too_few: bool) -> None:
        with trio.move_on_after(15.0):
            while leader.leads(topic, partition) and leader.is_under_min_isr(topic, partition) is not too_few:
                await trio.sleep(0.05)
            await trio.sleep(self._chance.uniform(0.0, 2.0))

    async def _elect_fenced(self) -> None:
        """Let a broker that cannot reach ZooKeeper be elected in place of a leader that stops, before its session ends."""
        successions = self._successions()
        if not successions:
            return
        leader, target = self._chance.choice(successions)
        self._busy[leader] = None
        target.cut_from_zookeeper()
        self._began(FaultKind.ELECTED_WHILE_FENCED, target)
        with trio.move_on_after(6.0):
            while not target.is_fenced:
                await trio.sleep(0.05)
            await leader.stop()
        target.heal_way_to_zookeeper()
        if leader.is_running:
            await leader.kill()
        self._ended(FaultKind.ELECTED_WHILE_FENCED, target)
        self._restart(leader)

    def _successions(self) -> list[tuple[SimBroker, SimBroker]]:
        """Return pairs of a leader and its successor, neither of them the controller; mostly of the group's partition."""
        found = []
        for topic, partition in [*self._simulation.partitions, *[self._simulation.group_partition] * 3]:
            leader = next((each for each in self._brokers if each.is_serving and each.leads(topic, partition)), None)
            if leader is None or leader in self._busy or leader.is_controller:
                continue
            heir = leader.successors(topic, partition)[:1]
            found += [(leader, each) for each in self._brokers if each.node_id in heir and not each.is_controller]
        return found

    # ------------------------------------------------------------------ network

    def _block(self, target: SimBroker, others: range, *, outwards: bool = True, inwards: bool = True) -> None:
        for other in others:
            if other != target.node_id:
                if outwards:
                    self._simulation.network.block(target.node_id, other)
                if inwards:
                    self._simulation.network.block(other, target.node_id)

    def _unblock(self, target: SimBroker, others: range, *, outwards: bool = True, inwards: bool = True) -> None:
        for other in others:
            if other != target.node_id:
                if outwards:
                    self._simulation.network.unblock(target.node_id, other)
                if inwards:
                    self._simulation.network.unblock(other, target.node_id)

    def _ways(self) -> dict[str, bool]:
        outwards, inwards = self._chance.choice(((True, True), (True, True), (True, False), (False, True)))
        return {"outwards": outwards, "inwards": inwards}

    async def _cut_between_brokers(self) -> None:
        target, ways = self._target(), self._ways()
        if len(self._brokers) == 1:
            return
        other = self._chance.choice([each for each in self._brokers if each is not target])
        others = range(other.node_id, other.node_id + 1)
        self._block(target, others, **ways)
        await self._while(FaultKind.CUT_FROM_PEER, target, f"{other}{_way(**ways)}")
        self._unblock(target, others, **ways)

    async def _cut_from_zookeeper(self) -> None:
        target, ways = self._target(), self._ways()
        target.cut_from_zookeeper(**ways)
        await self._while(FaultKind.CUT_FROM_ZOOKEEPER, target, _way(**ways))
        target.heal_way_to_zookeeper()

    async def _isolate(self) -> None:
        """Isolate a broker from all others, and perhaps from ZooKeeper; clients still reach it."""
        target, ways, from_all = self._target(), self._ways(), self._chance.random() < 0.5
        peers = range(self._client_hosts.start)
        self._block(target, peers, **ways)
        if from_all:
            target.cut_from_zookeeper(**ways)
        await self._while(FaultKind.CUT_FROM_BOTH if from_all else FaultKind.CUT_FROM_PEERS, target, _way(**ways))
        if from_all:
            target.heal_way_to_zookeeper()
        self._unblock(target, peers, **ways)

    async def _cut_from_clients(self) -> None:
        target, ways = self._target(), self._ways()
        self._block(target, self._client_hosts, **ways)
        await self._while(FaultKind.CUT_FROM_CLIENTS, target, _way(**ways))
        self._unblock(target, self._client_hosts, **ways)

    async def _break_connections(self) -> None:
        target = self._target()
        self._began(FaultKind.CONNECTIONS_BROKEN, target)
        for other in range(self._client_hosts.stop):
            if other != target.node_id and self._chance.random() < 0.5:
                self._simulation.network.break_connections(target.node_id, other)

    # ------------------------------------------------------------------ ZooKeeper

    async def _stop_zookeeper(self) -> None:
        if self._has_zookeeper_fault:
            return
        self._has_zookeeper_fault = True
        self._simulation.zookeeper.stop()
        await self._while(FaultKind.ZOOKEEPER_RESTARTED, "all ZooKeepers")
        self._simulation.zookeeper.start()
        self._has_zookeeper_fault = False

    async def _expire_session(self) -> None:
        target = self._target()
        self._began(FaultKind.SESSION_EXPIRED, target)
        target.expire_session()

    async def _reset_session(self) -> None:
        target = self._target()
        self._began(FaultKind.SESSION_RESET, target)
        target.reset_session()

    async def _depose_controller(self) -> None:
        """Remove the node /controller, so that the brokers elect another controller."""
        self._began(FaultKind.CONTROLLER_REMOVED)
        self._simulation.remove_controller_node()


def _way(*, outwards: bool, inwards: bool) -> str:
    """As the names of chaos have it: nothing stands for both."""
    return "" if outwards and inwards else " outwards" if outwards else " inwards"
