"""`Kafka`: a broker or a cluster inside a test, as the test's own thread uses it.

    with Kafka() as kafka:
        kafka.topic("orders", partitions=3)
        run_my_service(bootstrap_servers=kafka.bootstrap)
        assert kafka.records("orders")[-1].value == b"..."

Every method may be called from any thread but the lab's, also from a test that runs asyncio or trio: each takes milliseconds.
"""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

from ottla.server.testing.brokers import LabBroker
from ottla.server.testing.chaos.chaos import SEED_MAX, Chaos, Happened
from ottla.server.testing.errors import LabError
from ottla.server.testing.groups import Group, dismiss_members, list_groups
from ottla.server.testing.in_sync import expand_isr, shrink_isr
from ottla.server.testing.partitions import PartitionState, elect, move, state_of
from ottla.server.testing.profiles.profiles import PROFILE
from ottla.server.testing.records import Record, append, as_bytes, create_topic, partition_counts, read_all
from ottla.server.testing.snapshots.files import Snapshot
from ottla.server.testing.snapshots.snapshots import fork, restore, take
from ottla.server.testing.tls import authority_in, security_in, tls_settings
from ottla.server.testing.transactions import Transaction, fence, list_transactions
from ottla.server.testing.world.lab import Lab
from ottla.server.testing.world.world import World

if TYPE_CHECKING:
    from ottla.server.cli.inspection.fate import Fate
    from ottla.server.testing.lab_history import LabHistory
    from ottla.server.testing.registry import Registry
    from ottla.server.testing.why import Why
    from ottla.server.testing.wire_tap.rules import RuleMaker
    from ottla.server.testing.wire_tap.wire import Wire
    from ottla.wire.schema import Message

CAUSES_REPORTED = LINES_REPORTED = 30
"""Causes and requests in the report of a failing test, the latest of each; `why` and `wire` have all of them."""

Headers = Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]


class Repeat(NamedTuple):
    """Choice of the faults of `kafka.chaos()`: their seed (None: a random one) and their numbers (None: all)."""

    seed: int | None = None
    kept: Collection[int] | None = None


class Clock:
    """Clock of the brokers: `advance` moves it and fires all timers that are due, `freeze` stops it, `speed` changes its speed.

    All brokers in a process share one clock. Clients have their own, which this does not change.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab, self._clock = lab, lab.loop.clock

    @property
    def now_ms(self) -> int:
        """Brokers' time of day, in ms since 1970."""
        return self._clock.now_ms()

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Move the clock forward; return when all timers that were due have fired.

        Brokers of a cluster that reach each other stay alive and in sync. Raises LabError for a negative time, and if clients
        keep the brokers busy for a minute.
        """
        self._lab.world.advance(seconds + 60 * minutes + 3600 * hours + 86400 * days)

    def freeze(self) -> None:
        """Stop the clock. `advance` still moves it; `speed(1)` starts it again, and so does `close`."""
        self.speed(0)

    def speed(self, factor: float) -> None:
        """Run the clock `factor` times as fast as real time, until this Kafka is closed. Raises LabError for a negative factor."""
        self._lab.loop.call_sync(self._lab.world.speed, factor)


class Kafka(Lab):
    """A Kafka in this process: one broker or a cluster, on ports of 127.0.0.1, with its data in memory.

    `brokers`: their number. `settings`: broker settings by Kafka's names, such as {"auto.create.topics.enable": False}.
    `profile`: release or service to behave as, such as "kafka-2.8" or "msk-serverless"; None for Kafka 4.4. `tls`: encrypt
    all connections; clients trust `authority`. Raises LabError, or ConfigError for a setting.
    """

    def __init__(
        self,
        brokers: int = 1,
        settings: Mapping[str, object] | None = None,
        *,
        profile: str | None = None,
        tls: bool = False,
    ) -> None:
        given = dict(tls_settings()) if tls else {}
        self._begin(brokers, given | _as_settings(settings) | ({PROFILE: profile} if profile is not None else {}))
        self.open(self._make_world)

    def _begin(self, brokers: int, settings: Mapping[str, str]) -> None:
        self._brokers, self._settings = brokers, settings
        super().__init__()
        self.repeat = Repeat()
        self.chaoses: list[Chaos] = []
        self._registry: Registry | None = None
        self._history: LabHistory | None = None

    def _make_world(self) -> World:
        return World(self.loop, brokers=self._brokers, settings=self._settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the brokers, and free their ports and memory. A second call does nothing."""
        self._close_registry()
        for each in self.chaoses:
            each.stop()
        super().close()

    def _close_registry(self) -> None:
        if self._registry is not None:
            self._registry.close()
            self._registry = None

    def reset(self) -> None:
        """Replace the brokers by new, empty ones on new ports. Clients of the old ones are disconnected."""
        self.close()
        self.chaoses, self._history = [], None
        self.open(self._make_world)

    @property
    def history(self) -> LabHistory:
        """Record of what clients saw; `kafka.history.check()` raises if Kafka broke a promise to one of them.

        Python's producers and consumers can be wrapped (`History`); other clients are judged by their requests. After
        `reset` and `restore` there is a new, empty history.
        """
        if self._history is None:
            from ottla.server.testing.lab_history import LabHistory

            self._history = LabHistory(self, self.world.restored_after)
        return self._history

    # ------------------------------------------------------------------ snapshots

    @classmethod
    def of(cls, snapshot: Snapshot | str | os.PathLike[str], settings: Mapping[str, object] | None = None) -> Self:
        """Create a Kafka from a snapshot, or from the path of a saved one. Raises LabError.

        `settings`: broker settings by Kafka's names; they override those of the snapshot.
        """
        made, kept = cls.__new__(cls), _snapshot(snapshot)
        kept = replace(kept, settings={**kept.settings, **_as_settings(settings)})
        made._begin(len(kept.nodes), kept.settings)
        made._world = made.call(fork, made.loop, kept)
        try:
            made.call(dismiss_members, made)
        except BaseException:  # nobody else could end its brokers
            made.close()
            raise
        return made

    def snapshot(self) -> Snapshot:
        """Return a snapshot of records, groups, transactions and settings, without stopping. `Snapshot.save` writes it."""
        return self.loop.call_sync(take, self.world)

    def restore(self, snapshot: Snapshot | str | os.PathLike[str], *, connections: str = "cut") -> None:
        """Go back to a snapshot, or to the path of a saved one. Raises LabError.

        Ports stay the same. Brokers that were down in the snapshot are down afterwards. `connections`: "cut" closes all;
        "kept" keeps those whose clients wait for nothing or only for records.
        """
        # It has read the topic of its schemas as it was until now.
        port = None if self._registry is None else self._registry.port
        self._close_registry()
        self.call(restore, self.world, _snapshot(snapshot), connections)
        if port is not None and any(each.is_running for each in self.brokers):
            self._open_registry(port)
        self._history = None

    def fork(self) -> Self:
        """Return a copy of this Kafka, on ports of its own. Neither changes the other."""
        return type(self).of(self.snapshot())

    @property
    def clock(self) -> Clock:
        """Clock of the brokers."""
        return Clock(self)

    @property
    def bootstrap(self) -> str:
        """Addresses for `bootstrap.servers`: HOST:PORT,HOST:PORT."""
        return self.world.bootstrap

    @property
    def authority(self) -> str:
        """Certificate that clients of `Kafka(tls=True)` trust, as PEM: `ssl.create_default_context(cadata=kafka.authority)`.

        Raises LabError without TLS.
        """
        return authority_in(self.world.settings)

    # ------------------------------------------------------------------ topics and records

    def topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic and return its name. Raises KafkaError, such as TOPIC_ALREADY_EXISTS.

        `replication_factor`: None for the broker's default. `settings`: topic settings by Kafka's names.
        """
        texts = {key: _as_text(value) for key, value in (settings or {}).items()}
        self.call(create_topic, self.world, name, partitions, replication_factor, texts)
        return name

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic, without Kafka's internal topics."""
        return self.loop.call_sync(partition_counts, self.world)

    def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        acks: int = -1,
    ) -> list[Record]:
        """Append a record for each value, as one batch; return the records. Raises KafkaError or LabError.

        `partition`: None for the one that Java's producer chooses for `key`; without a key partitions take turns.
        `timestamp`: in ms since 1970, None for now. `acks`: -1 waits for the replicas in sync, 1 for the leader; with 0
        the offsets are unknown (-1).
        """
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        named = tuple((name, as_bytes(each)) for name, each in pairs)
        now = self.clock.now_ms if timestamp is None else timestamp
        if abs(now) >= 2**63:
            raise LabError(f"{now} is no timestamp: it is in ms since 1970, and a record has 64 bits for it.")
        made = [Record(topic, -1, -1, now, as_bytes(key), as_bytes(value), named) for value in values]
        return self.call(append, self.world, topic, made, partition, acks)

    def records(self, topic: str, partition: int | None = None, *, read_committed: bool = False) -> list[Record]:
        """Return the records that a consumer would read, oldest first. Raises LabError if there is no such topic.

        `partition`: None for all, merged by timestamp. `read_committed`: leave out records of open and aborted transactions.
        """
        return self.call(read_all, self.world, topic, partition, read_committed)

    # ------------------------------------------------------------------ partitions, groups, transactions, brokers

    def partition(self, topic: str, partition: int = 0) -> PartitionState:
        """Return leader, replicas, ISR and offsets of a partition. Raises LabError if there is none."""
        return self.call(state_of, self.world, topic, partition)

    def elect(self, topic: str, partition: int, leader: int) -> None:
        """Make broker `leader` the leader of a partition. Raises LabError if it is not in the ISR."""
        self.call(elect, self.world, topic, partition, leader)

    def move(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Move a partition to the brokers `replicas`; return when it is there. Raises LabError or KafkaError."""
        self.call(move, self.world, topic, partition, replicas)

    def shrink_isr(self, topic: str, partition: int = 0, to: Collection[int] | None = None) -> None:
        """Let replicas of a partition fall out of sync, until `expand_isr`; return when the controller knows.

        `to`: ids of the brokers that stay in sync, with the leader; None for the leader alone. The others fetch nothing of
        this partition, also after a restart. Raises LabError.
        """
        self.call(shrink_isr, self.world, topic, partition, to)

    def expand_isr(self, topic: str, partition: int = 0) -> None:
        """Let all replicas catch up after `shrink_isr`; return when those that run are in the ISR. Raises LabError."""
        self.call(expand_isr, self.world, topic, partition)

    def groups(self) -> list[str]:
        """Return the names of all groups."""
        return self.call(list_groups, self.world)

    def group(self, name: str) -> Group:
        """Return a group by its name; it need not exist yet."""
        return Group(self, name)

    def transactions(self) -> dict[str, Transaction]:
        """Return all transactions by transactional id."""
        return self.call(list_transactions, self.world)

    def fence(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id, as a second producer would: its open transaction is aborted."""
        self.call(fence, self.world, transactional_id)

    @property
    def brokers(self) -> list[LabBroker]:
        """Brokers of the cluster, also those that are down."""
        return [LabBroker(self, node_id) for node_id in self.world.nodes]

    def broker(self, node_id: int) -> LabBroker:
        """Return a broker by its id: 0 for a single broker, 1, 2, 3 in a cluster. Raises LabError if there is none."""
        return LabBroker(self, self.world.node(node_id).node_id)

    @property
    def controller(self) -> int | None:
        """Id of the active controller; None while there is none."""
        node = self.loop.call_sync(self.world.controller)
        return None if node is None else node.node_id

    @property
    def registry(self) -> Registry:
        """Schema registry for these brokers, started at first use. Its address is `kafka.registry.url`."""
        return self._registry or self._open_registry()

    def _open_registry(self, port: int = 0) -> Registry:
        from ottla.server.testing.registry import Registry  # here, because few tests use schemas

        self.world.any_node()  # or the registry would wait half a minute for a broker
        self._registry = made = Registry(self.bootstrap, security_in(self.world.settings), port)
        return made

    def chaos(self, seed: int | None = None, faults: Sequence[str] | None = None) -> Chaos:
        """Start making random faults, until the end of `with kafka.chaos():`, `stop` or `close`. Raises LabError.

        `seed`: None for that of `pytest --ottla-seed`, else a random one. `faults`: kinds such as "kill" or "error_answer";
        None for all.
        """
        chosen = self.repeat.seed if seed is None else seed
        made = Chaos(self, random.randrange(SEED_MAX) if chosen is None else chosen, faults, self.repeat.kept)
        self.chaoses.append(made)
        return made

    @property
    def faults(self) -> list[Happened]:
        """Faults that `chaos` has made, oldest first."""
        return [each for chaos in self.chaoses for each in chaos.happened]

    @overload
    def why(self, topic: str, partition: int, offset: int) -> Fate: ...

    @overload
    def why(
        self,
        *,
        group: str | None = None,
        topic: str | None = None,
        client_id: str | None = None,
        transactional_id: str | None = None,
        kind: str | None = None,
    ) -> Why: ...

    def why(
        self,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        *,
        group: str | None = None,
        client_id: str | None = None,
        transactional_id: str | None = None,
        kind: str | None = None,
    ) -> Why | Fate:
        """Return why members were removed, writes refused, connections closed: a sequence of causes to print or search.

        The arguments select causes, such as group="g" or kind="rebalance". why("orders", 0, 17) returns what became of
        offset 17 of orders-0.
        """
        from ottla.server.testing.why import why, why_offset  # here, because most tests do not ask

        if topic is not None and partition is not None and offset is not None:
            return why_offset(self, topic, partition, offset)
        facts = {"group": group, "topic": topic, "client_id": client_id, "transactional_id": transactional_id}
        return why(self, self.wire, facts | {"partition": partition}, kind)

    @property
    def wire(self) -> Wire:
        """All requests that clients sent: `kafka.wire.saw("Produce", acks=-1)`. After `reset` there is a new, empty one."""
        return self.world.wire

    def on(self, api: str | None = None, **conditions: Any) -> RuleMaker:
        """Select requests for a rule: `kafka.on("Produce", topic="orders").fail("NOT_LEADER_OR_FOLLOWER", times=3)`.

        `api` and `conditions` are those of `kafka.wire.requests`. Raises LabError for names that Kafka does not have.
        """
        return self.wire.on(api, **conditions)

    def report(self) -> str:
        """Return the text that a failing test's report has about this Kafka: faults, causes, last requests."""
        if self._world is None or not self.loop.is_usable:
            return "\n".join(map(str, self.chaoses))
        causes = list(self.why())[-CAUSES_REPORTED:]
        return "\n".join(map(str, [*self.chaoses, *causes, *self.wire.lines(last=LINES_REPORTED)]))

    # ------------------------------------------------------------------ anything else

    def ask(self, request: Message, broker: int | None = None, *, version: int | None = None) -> Any:
        """Have a broker serve a request of `ottla.wire.messages`, without a connection; return the response.

        `broker`: its id; None for the controller where Kafka sends the request there, else for any broker. `version`: None
        for the latest.
        """
        node = None if broker is None else self.world.node(broker)
        return self.call(lambda: self.world.ask(request, node, version=version))


def _snapshot(given: Snapshot | str | os.PathLike[str]) -> Snapshot:
    return given if isinstance(given, Snapshot) else Snapshot.load(given)


def _as_settings(settings: Mapping[str, object] | None) -> dict[str, str]:
    """Return settings of brokers as texts. Raises LabError for those that a test does not choose."""
    for name in settings or {}:
        if not isinstance(name, str):
            raise LabError(f"{name!r} is no name of a setting; write it as Kafka does, such as 'num.partitions'.")
        if name == "zookeeper.connect":
            raise LabError(f"{name} is not chosen by a test: Kafka(3) is a cluster with a tree in memory.")
    return {name: _as_text(value) for name, value in (settings or {}).items()}


def _as_text(value: object) -> str:
    """Return a setting's value as Kafka writes it: true and false for booleans."""
    return str(value).lower() if isinstance(value, bool) else str(value)
