"""Several brokers and their ZooKeeper in one process, on virtual time and a network in memory.

`serving` starts them for tests that bring their own story. Whoever needs other settings or clients extends `SimCluster`.
"""

import contextlib
import logging
import random
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import CoordinationError, Delete
from ottla.server.testing.client.connections import Connections
from ottla.server.testing.history.history import Event, Recorder
from ottla.server.testing.memory.agenda import Agenda
from ottla.server.testing.memory.coordination_service import MemoryService
from ottla.server.testing.simulation.brokers import Setting, SimBroker
from ottla.server.testing.simulation.network import Network
from ottla.server.testing.simulation.processors import whose_task
from ottla.server.testing.simulation.trace import Trace

BROKERS = (1, 2, 3)
FIRST_CLIENT = 100
"""Hosts from this number on are clients; smaller ones are brokers."""

OFFSETS_TOPIC = "__consumer_offsets"
_PARTITION = re.compile(r"/([^/]+)/partitions/(\d+)/state$")


class BrokersLog(logging.Handler):
    """Log handler that reports logged exceptions as problems, and writes other lines to the trace if somebody reads it."""

    def __init__(self, fail: Callable[[str], None], tell: Callable[[str], None] | None) -> None:
        super().__init__(logging.INFO)
        self._thread = threading.get_ident()
        self._fail = fail
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread:  # such as a lab's
            return
        words = logging.Formatter().format(record)
        if record.exc_info:
            self._fail(f"broker {whose_task.get()} logged: {words}")
        elif self._tell is not None:
            self._tell(f"{trio.current_time():12.6f} LOG {whose_task.get() or ''} {words}")


class SimCluster:
    """Brokers, ZooKeeper and network of one run, its history, and the problems that were noticed.

    `seed` decides everything that happens by chance. `tell` gets a line for everything that happens; None: nobody reads it.
    """

    network: Network
    zookeeper: MemoryService
    record: Recorder
    nursery: trio.Nursery
    brokers: list[SimBroker]

    def __init__(
        self, seed: int, tell: Callable[[str], None] | None = None, *, node_ids: Sequence[int] = BROKERS
    ) -> None:
        self.seed = seed
        self.node_ids = tuple(node_ids)
        self.problems: list[str] = []
        self.trace = Trace(tell)
        self.events: list[Event] = []
        self.chance = random.Random(f"simulation {seed}")
        self._tell = tell
        self._clients = 0

    def fail(self, words: str) -> None:
        """Note a problem."""
        self.problems.append(words)
        self.trace.note(f"PROBLEM {words}")

    @contextlib.contextmanager
    def logged(self) -> Iterator[None]:
        """Pass the brokers' log lines to `BrokersLog` within this block."""
        handler = BrokersLog(self.fail, self._tell)
        logger = logging.getLogger("ottla")
        level = logger.level
        logger.addHandler(handler)
        if self._tell is not None:
            logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)

    @contextlib.asynccontextmanager
    async def serving(self, agenda: Agenda) -> AsyncIterator[None]:
        """Start the brokers, without clients and faults, and wait until all of them serve."""
        self.record = Recorder(self._note, trio.current_time)
        self.network = Network(agenda, self.chance, self.trace)
        self.zookeeper = MemoryService(self.chance, agenda=agenda)
        async with trio.open_nursery() as self.nursery:
            self._make_brokers()
            for broker in self.brokers:
                self.start(broker)
            while not all(broker.is_serving for broker in self.brokers):
                await trio.sleep(1)
            yield
            self.nursery.cancel_scope.cancel()

    def start(self, broker: SimBroker) -> None:
        self.nursery.start_soon(broker.run)

    def connections(self, name: str) -> Connections:
        """Make the connections of a client on a host of its own."""
        self._clients += 1
        return Connections(self.network, self.nursery, FIRST_CLIENT + self._clients, name, self.node_ids)

    def _note(self, event: Event) -> None:
        self.events.append(event)
        self.trace.note(repr(event))

    def _settings(self) -> Mapping[str, str]:
        """Settings of all brokers, by Kafka's names."""
        return {}

    def _make_brokers(self) -> None:
        settings = self._settings()
        setting = Setting(self.network, self.zookeeper, random.Random(f"brokers {self.seed}"), self.fail)
        self.brokers = [SimBroker(node_id, setting, settings) for node_id in self.node_ids]

    # ------------------------------------------------------------------ for faults

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """Partitions whose leaders faults are aimed at, those of internal topics too."""
        found = (_PARTITION.search(path) for path in self._states())
        return sorted((each[1], int(each[2])) for each in found if each is not None)

    @property
    def group_partition(self) -> tuple[str, int]:
        """Partition whose leader is a coordinator that faults are aimed at most often."""
        return OFFSETS_TOPIC, 0

    def remove_controller_node(self) -> None:
        """Let the brokers elect another controller."""
        with contextlib.suppress(CoordinationError):
            self.zookeeper.write([Delete(znodes.CONTROLLER)], 0)

    def others_are_in_sync(self, broker: SimBroker) -> bool:
        """Return True if every partition has two more in-sync replicas on brokers at work."""
        at_work = {each.node_id for each in self.brokers if each.is_serving and each is not broker}
        return all(len(at_work & set(isr)) >= 2 for isr in self._in_sync().values())

    def is_out_of_sync(self, broker: SimBroker) -> bool:
        """Return True if the broker is an in-sync replica of no partition."""
        return not any(broker.node_id in isr for isr in self._in_sync().values())

    def _states(self) -> list[str]:
        return [path for path in self.zookeeper.tree.nodes if path.endswith("/state")]

    def _in_sync(self) -> dict[str, list[int]]:
        """Return the in-sync replicas of every partition, as ZooKeeper has them."""
        nodes = self.zookeeper.tree.nodes
        return {path: znodes.decode_state(nodes[path].data).isr for path in self._states()}
