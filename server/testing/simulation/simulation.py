"""A run of a scenario: its cluster, brokers in the scenario's hands, clients, time and chance."""

import inspect
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import trio

from ottla.server.testing.client.client import Client
from ottla.server.testing.errors import LabError
from ottla.server.testing.history.history import FaultBegan, FaultEnded, Recorder, told
from ottla.server.testing.history.narration import FinalRead
from ottla.server.testing.history.wrapping import History
from ottla.server.testing.memory.agenda import Agenda
from ottla.server.testing.memory.coordination_service import MemoryService
from ottla.server.testing.simulation.brokers import SimBroker
from ottla.server.testing.simulation.cluster import FIRST_CLIENT, SimCluster
from ottla.server.testing.simulation.faults import Faults
from ottla.server.testing.simulation.network import Network
from ottla.server.testing.simulation.virtual import Standstill
from ottla.wire.messages.describe_transactions import ListTransactionsRequest

Scenario = Callable[["Simulation"], Awaitable[Any]]
CLIENT_TIMEOUT_S = 120.0
SHIELDED_S = 600.0
"""So long after its end a scenario may still wait within a shielded CancelScope."""

OPEN_STATES = ["Ongoing", "PrepareCommit", "PrepareAbort"]
EVENTS_MAX = 10_000
SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "log.cleaner.enable": "false",
    "request.timeout.ms": "5000",
    "replica.socket.timeout.ms": "5000",
    "controlled.shutdown.max.retries": "1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""Settings of simulated brokers where they differ from Kafka's defaults: fewer internal partitions make runs quicker."""


class CheckFailed(AssertionError):
    """Raised by `Simulation.check`."""


class Happened(NamedTuple):
    """Something that happened in a run. `at`: seconds of virtual time since the start of the run."""

    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.at:10.3f} {self.text}"


class SimulatedBroker:
    """Broker of a simulation: its state, and what a scenario can do to it."""

    def __init__(self, simulation: "Simulation", broker: SimBroker) -> None:
        self.node_id = broker.node_id
        self._simulation = simulation
        self._broker = broker
        self._paused: list[list[int]] = []  # hosts that each pause cuts off
        self._cut_from: list[int] = []

    def __repr__(self) -> str:
        return f"broker {self.node_id}"

    @property
    def is_running(self) -> bool:
        """True if the process runs, though it may not serve yet."""
        return self._broker.is_running

    @property
    def is_controller(self) -> bool:
        """True if it is the active controller."""
        return self._broker.is_controller

    def leads(self, topic: str, partition: int = 0) -> bool:
        """Return True if the broker leads a partition, as it believes."""
        return self._broker.leads(topic, partition)

    async def kill(self, *, lose_power: bool = False) -> None:
        """End the process at once, as SIGKILL does. `lose_power`: what was not synced may be lost, too."""
        self._simulation.tell(f"{self} killed{' by a power cut' * lose_power}")
        await (self._broker.lose_power() if lose_power else self._broker.kill())

    async def stop(self) -> None:
        """End the process in order, as SIGTERM does."""
        self._simulation.tell(f"{self} stopped")
        if self._broker.is_running:
            await self._broker.stop()

    async def start(self) -> None:
        """Start the process again and wait until it serves."""
        if self._broker.is_running:
            raise LabError(f"{self} runs already: kill or stop it first")
        self._simulation.tell(f"{self} started")
        self._simulation.start(self._broker)
        while not self._broker.is_serving:
            await trio.sleep(0.1)

    async def restart(self) -> None:
        """Stop the process if it runs, and start it again."""
        await self.stop()
        await self.start()

    def pause(self) -> None:
        """Let nothing through that the broker sends or is sent, which others cannot tell from SIGSTOP."""
        self._simulation.tell(f"{self} paused")
        self._paused.append(self._simulation._all_hosts())
        self._simulation._block(self.node_id, self._paused[-1])
        self._broker.cut_from_zookeeper()

    def resume(self) -> None:
        """End a pause."""
        if not self._paused:
            raise LabError(f"{self} is not paused: call pause() first")
        self._simulation.tell(f"{self} resumed")
        self._simulation._unblock(self.node_id, self._paused.pop())
        self._broker.heal_way_to_zookeeper()

    def isolate(self, from_: int | Iterable[int] | None = None, *, from_zookeeper: bool | None = None) -> None:
        """Cut the broker off from others until `heal`. Clients still reach it.

        `from_`: other brokers; None: all of them. `from_zookeeper`: None for whether `from_` is None.
        """
        others = self._simulation._others_of(self.node_id, from_)
        self._simulation.tell(f"{self} cut off from {others or 'no broker'}")
        self._simulation._block(self.node_id, others)
        self._cut_from += others
        if from_ is None if from_zookeeper is None else from_zookeeper:
            self._broker.cut_from_zookeeper()
            self._cut_from.append(0)

    def heal(self) -> None:
        """End all isolations of this broker."""
        self._simulation.tell(f"{self} reached by all again")
        for other in self._cut_from:
            if other:
                self._simulation._unblock(self.node_id, [other])
            else:
                self._broker.heal_way_to_zookeeper()
        self._cut_from.clear()

    def expire_session(self) -> None:
        """End the broker's session with ZooKeeper."""
        self._simulation.tell(f"{self}: session expired")
        self._broker.expire_session()

    def slow_down(self, factor: int = 10) -> None:
        """Let the broker's processor be slow from now on."""
        self._simulation.tell(f"{self} slow by {factor}")
        self._simulation.network.processors.slow_down(self.node_id, factor)


class Simulation(SimCluster):
    """A run of a scenario: the cluster, its clients, time and chance.

    `chance` is a random.Random of the seed. `history` notes what clients of `client` see.
    """

    def __init__(
        self,
        seed: int,
        *,
        node_ids: Sequence[int],
        settings: Mapping[str, str],
        faults: Sequence[str] = (),
        tell: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(seed, tell, node_ids=node_ids)
        self.happened: deque[Happened] = deque(maxlen=EVENTS_MAX)  # the last ones, as a report shows these
        self.history = History(trio.current_time)
        self.chance = random.Random(f"scenario {seed}")
        self._given = dict(settings)
        self._fault_names = tuple(faults)
        self._in_hand: dict[int, SimulatedBroker] = {}
        self._made: list[Client] = []
        self._faults: Faults | None = None
        self._calm = trio.Event()

    # ------------------------------------------------------------------ for scenarios

    def client(self, name: str = "", *, timeout_s: float = CLIENT_TIMEOUT_S) -> Client:
        """Make a client on a host of its own. `timeout_s`: virtual seconds until NoAnswer."""
        connections = self.connections(name or f"client {len(self._made) + 1}")
        made = Client(connections, timeout_s, self.history)
        self._made.append(made)
        return made

    def broker(self, node_id: int) -> SimulatedBroker:
        """Return a broker by its id; they count from 1. Raises LabError."""
        if node_id not in self._in_hand:
            found = next((each for each in self.brokers if each.node_id == node_id), None)
            if found is None:
                raise LabError(f"there is no broker {node_id}: ids are {', '.join(map(str, self.node_ids))}")
            self._in_hand[node_id] = SimulatedBroker(self, found)
        return self._in_hand[node_id]

    @property
    def controller(self) -> SimulatedBroker | None:
        """The broker that is the active controller; None if there is none at present."""
        found = next((each.node_id for each in self.brokers if each.is_serving and each.is_controller), None)
        return None if found is None else self.broker(found)

    def now(self) -> float:
        """Return the virtual time, in seconds since the start of the run."""
        return trio.current_time()

    async def sleep(self, seconds: float) -> None:
        """Wait for some virtual seconds, which take no real time."""
        await trio.sleep(seconds)

    async def until(self, condition: Callable[[], bool], within_s: float = 60.0, text: str = "") -> None:
        """Wait until a condition holds. Raises CheckFailed with `text` if it does not in time."""
        with trio.move_on_after(within_s):
            while not condition():
                await trio.sleep(0.1)
            return
        self.check(False, text or f"not within {within_s:g} s: {inspect.getdoc(condition) or condition}")

    def check(self, holds: object, text: str = "a check does not hold") -> None:
        """Let the run fail unless something holds."""
        if not holds:
            raise CheckFailed(text)

    def tell(self, text: str) -> None:
        """Add an event to what is shown of a run that fails."""
        self.happened.append(Happened(trio.current_time(), text))
        self.trace.note(text)

    async def settle(self) -> None:
        """End all faults, start brokers that are down, and wait until all serve."""
        if self._faults is not None:
            self._faults.stop()
            await self._calm.wait()
        for each in self.brokers:
            found = self.broker(each.node_id)
            while found._paused:
                found.resume()
            if found._cut_from:
                found.heal()
            if not each.is_running:
                self.tell(f"{found} started")
                self.start(each)
        await self.until(lambda: all(each.is_serving for each in self.brokers), 600.0, "a broker does not come back")

    async def check_promises(self, *topics: str) -> None:
        """Settle, read topics to their ends (all that clients of this run wrote to, if none is named), and check all promises."""
        await self.settle()
        reader, count = Client(self.connections("final reader"), CLIENT_TIMEOUT_S), len(self.history)
        final = [each for topic in topics or sorted(self.history.topics()) for each in await final_reads(reader, topic)]
        self.history._check_until(count, final)

    # ------------------------------------------------------------------ the run

    async def _run(self, scenario: Scenario, agenda: Agenda, limit_s: float) -> None:
        """Start the cluster and run the scenario once."""
        self.record = Recorder(self._note, trio.current_time)
        self.network = Network(agenda, random.Random(f"network {self.seed}"), self.trace)
        self.zookeeper = MemoryService(random.Random(f"zookeeper {self.seed}"), agenda=agenda)
        with self.network.processors.in_force():
            async with trio.open_nursery() as self.nursery:
                self._make_brokers()
                for broker in self.brokers:
                    self.start(broker)
                while not all(broker.is_serving for broker in self.brokers):
                    await trio.sleep(0.1)
                if self._fault_names:
                    self.nursery.start_soon(self._cause)
                agenda.at(trio.current_time() + limit_s + SHIELDED_S, _give_up)
                with trio.move_on_after(limit_s) as patience:
                    await scenario(self)
                text = f"the scenario is not over after {limit_s:g} virtual seconds: give limit_s for more"
                self.check(not patience.cancel_called, text)
                self.nursery.cancel_scope.cancel()

    async def _cause(self) -> None:
        self._faults = Faults(self, names=self._fault_names)
        await self._faults.run(math.inf)
        self._calm.set()

    def _settings(self) -> dict[str, str]:
        count = len(self.node_ids)
        replicas = str(min(3, count))
        counts = {
            "default.replication.factor": replicas,
            "min.insync.replicas": str(min(2, count)),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(2, count)),
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": str(min(2, count)),
        }
        return SETTINGS | counts | self._given

    def _note(self, event: Any) -> None:
        super()._note(event)
        if isinstance(event, FaultBegan | FaultEnded):
            text = f"{event.fault}: {event.target}" if event.target else event.fault
            self.happened.append(Happened(event.at, f"{text}{' over' * isinstance(event, FaultEnded)}"))

    def _all_hosts(self) -> list[int]:
        """Return the numbers of all hosts that there are."""
        return [*self.node_ids, *range(FIRST_CLIENT, FIRST_CLIENT + self._clients + 64)]

    def _others_of(self, node_id: int, named: int | Iterable[int] | None) -> list[int]:
        """Return ids of other brokers. Raises LabError if one is unknown."""
        chosen = self.node_ids if named is None else (named,) if isinstance(named, int) else tuple(named)
        for each in chosen:
            self.broker(each)
        return [each for each in chosen if each != node_id]

    def _block(self, node_id: int, others: Iterable[int]) -> None:
        """Let nothing through between a broker and other hosts."""
        for other in others:
            if other != node_id:
                self.network.block(node_id, other)
                self.network.block(other, node_id)

    def _unblock(self, node_id: int, others: Iterable[int]) -> None:
        """Undo a `block`."""
        for other in others:
            if other != node_id:
                self.network.unblock(node_id, other)
                self.network.unblock(other, node_id)


def _give_up() -> None:
    raise Standstill("the scenario does not end when it is cancelled, because it waits within a shielded CancelScope")


async def final_reads(client: Client, topic: str) -> list[FinalRead]:
    """Read a topic to its present end, once for each kind of readers."""
    partitions = await client.partitions_of(topic)
    ends = {each: await client.end(topic, each) for each in partitions}
    found = []
    for committed_only in (False, True):
        stable = {each: await client.end(topic, each, committed_only=committed_only) for each in partitions}
        records = await client.read_all(topic, committed_only=committed_only)
        for partition, log_end in ends.items():
            end, start = min(log_end, stable[partition]), await client.start(topic, partition)
            named = [
                (each.offset, told(each.value)) for each in records if each.partition == partition and each.offset < end
            ]
            is_open = end < log_end and await _is_open(client, topic, partition, end)
            found.append(FinalRead(topic, partition, min(start, end), end, named, committed_only, is_open))
    return found


async def _is_open(client: Client, topic: str, partition: int, stable: int) -> bool:
    """Return True if open transactions explain why read_committed readers do not get past an offset."""
    request = ListTransactionsRequest(state_filters=OPEN_STATES, producer_id_filters=[])
    for broker in client.connections.brokers:
        response = await client.ask(request, broker=broker)
        if response.error_code or response.transaction_states:
            return True
    return await client.end(topic, partition, committed_only=True) != stable
