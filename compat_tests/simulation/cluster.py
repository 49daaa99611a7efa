"""Three brokers, their ZooKeeper and the clients, as one run of the simulation has them, from the first topic to the check."""

import random
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple

import trio
from compat_tests.simulation.consumers import SimGroup, SimReader
from compat_tests.simulation.group_members import SimClassicMember, SimConsumerMember
from compat_tests.simulation.groups import MEMBERS_SETTINGS, SHARE_GROUP, begin_share_group, is_drained
from compat_tests.simulation.producer import SimProducer
from compat_tests.simulation.share_members import SimShareMember
from compat_tests.simulation.transactions import NEW, OLD, SimProcessor

from ottla.groupcoord.java_hashing import absolute_string_hash
from ottla.replication.cluster import znodes
from ottla.replication.partition.partition import Partition
from ottla.server.testing.client.connections import BACKOFF_S, REQUEST_TIMEOUT_S
from ottla.server.testing.history.checker import check
from ottla.server.testing.history.group_events import Owned, ShareBegan
from ottla.server.testing.history.history import Recorder, TopicBegan
from ottla.server.testing.history.replica_logs import Replicas
from ottla.server.testing.history.rules import Proof
from ottla.server.testing.memory.agenda import Agenda
from ottla.server.testing.memory.coordination_service import MemoryService
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.server.testing.simulation import virtual
from ottla.server.testing.simulation.cluster import SimCluster
from ottla.server.testing.simulation.faults import CLIENTS_MAX, Faults
from ottla.server.testing.simulation.network import Network
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

TOPIC, OFFSETS_TOPIC = "t", "__consumer_offsets"
TRANSACTIONAL_TOPIC, TRANSACTIONS_TOPIC = "transactional", "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
PARTITIONS, OFFSETS_PARTITIONS, TRANSACTIONS_PARTITIONS, SHARE_STATE_PARTITIONS = 3, 2, 2, 2
GROUP = "group"
MORE_CLIENTS_MAX = 40  # with members of groups
CREATE_TOPICS_VERSION = 6
RECOVERY_S = 90.0
AWAY_MAX_S = 5.0  # and the session timeout, and what a client waits for an answer that is lost


class Plan(NamedTuple):
    seed: int
    seconds: float = 600.0
    """Virtual time, from the start of the brokers to the end of the faults."""

    producers: int = 2
    rate: float = 2.0
    """How often a second a producer has something to send."""

    readers: int = 2
    processors: int = 0
    """Producers with a transactional id, which have a topic of their own."""

    members: int = 0
    """Of a share group, a group of KIP-848 and a classic group each."""

    has_faults: bool = True
    only_fault: str = ""
    """The method of `Faults` that goes wrong once, in place of everything else; all is calm after it."""


class Outcome(NamedTuple):
    seed: int
    trace: str
    faults: int
    acknowledged: int
    epochs_raised: int
    transactions_committed: int
    accepted: int
    owned: int
    messages: int
    problems: list[str]
    proofs: list[Proof]

    @property
    def is_good(self) -> bool:
        return not self.problems and not self.proofs


class Stuck(Exception):
    """After all faults were over the cluster did not do its work; says what was waited for."""


class Simulation(SimCluster):
    """See the module's docstring."""

    def __init__(self, plan: Plan, tell: Callable[[str], None] | None = None) -> None:
        super().__init__(plan.seed, tell)
        self.plan = plan
        self.producers: list[SimProducer] = []
        self.processors: list[SimProcessor] = []
        self.share_members: list[SimShareMember] = []
        self.members: list[SimConsumerMember | SimClassicMember] = []

    def run(self) -> Outcome:
        try:
            with self.logged():
                faults, replicas = virtual.run(self._main, self.plan.seed)
        except Exception as bug:  # noqa: BLE001 - one more thing to tell of this seed
            faults, replicas = 0, []
            self.problems.append("".join(traceback.format_exception(bug)))
        return Outcome(
            self.plan.seed,
            str(self.trace),
            faults,
            sum(producer.acknowledged for producer in self.producers),
            sum(producer.epochs_raised for producer in self.producers),
            sum(processor.committed for processor in self.processors),
            sum(member.accepted for member in self.share_members),
            sum(isinstance(event, Owned) for event in self.events),
            self.trace.count,
            self.problems,
            check(self.events, replicas),
        )

    # ------------------------------------------------------------------ the order of things

    async def _main(self, agenda: Agenda) -> tuple[int, list[Replicas]]:
        self.record = Recorder(self._note, trio.current_time)
        self.network = Network(agenda, random.Random(f"network {self.plan.seed}"), self.trace)
        self.zookeeper = MemoryService(random.Random(f"zookeeper {self.plan.seed}"), agenda=agenda)
        with self.network.processors.in_force():
            return await self._run_cluster()

    async def _run_cluster(self) -> tuple[int, list[Replicas]]:
        async with trio.open_nursery() as self.nursery:
            self._make_brokers()
            for broker in self.brokers:
                self.start(broker)
            await self._create_topic(TOPIC)
            self.record.add(TopicBegan, TOPIC, PARTITIONS)
            self._start_clients()
            if self.plan.processors:
                await self._create_topic(TRANSACTIONAL_TOPIC)
                self.record.add(TopicBegan, TRANSACTIONAL_TOPIC, PARTITIONS, False, True)
                self._start_processors()
            if self.plan.members:
                await self._start_members()
            faults = Faults(self, MORE_CLIENTS_MAX if self.plan.members else CLIENTS_MAX)
            self.nursery.start_soon(self._watch_availability, faults)
            try:
                if self.plan.has_faults:
                    await self._harm(faults)
                else:
                    await trio.sleep(self.plan.seconds)
                replicas = await self._finish()
            except Stuck as stuck:
                self.fail(f"stuck: {stuck}")
                replicas = []
            self.nursery.cancel_scope.cancel()
        return faults.count, replicas

    async def _harm(self, faults: Faults) -> None:
        with trio.move_on_after(self.plan.seconds + RECOVERY_S):
            await faults.run(self.plan.seconds, self.plan.only_fault)
            return
        raise Stuck(f"a fault does not end; {self._state()}")

    async def _watch_availability(self, faults: Faults) -> None:
        """While nothing is wrong, no partition and no coordinator is away for longer than clients can explain."""
        timeout_s = self.brokers[0].session_timeout_s
        patience_s = timeout_s + AWAY_MAX_S + REQUEST_TIMEOUT_S
        while not self.group.is_over:
            await trio.sleep(1.0)
            waits_since = {f"the coordinator of {OFFSETS_TOPIC}": self.group.succeeded_at}
            for producer in self.producers:
                waits_since |= {f"{where} for {producer}": since for where, since in producer.waits_since().items()}
            for what, since in waits_since.items():
                calm_since = faults.calm_since
                if calm_since is not None and trio.current_time() - max(since, calm_since) > patience_s:
                    self.fail(f"{what} is away since {since:.1f} though nothing is wrong since {calm_since:.1f}")
                    return

    # ------------------------------------------------------------------ for faults

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """All that is led by somebody, internal topics too."""
        counts = {TOPIC: PARTITIONS, OFFSETS_TOPIC: OFFSETS_PARTITIONS}
        if self.plan.processors:
            counts |= {TRANSACTIONAL_TOPIC: PARTITIONS, TRANSACTIONS_TOPIC: TRANSACTIONS_PARTITIONS}
        if self.plan.members:
            counts[SHARE_STATE_TOPIC] = SHARE_STATE_PARTITIONS
        return [(topic, partition) for topic, count in counts.items() for partition in range(count)]

    @property
    def group_partition(self) -> tuple[str, int]:
        """Where the offsets of the group are kept."""
        return OFFSETS_TOPIC, absolute_string_hash(GROUP) % OFFSETS_PARTITIONS

    def _is_coordinator(self, node_id: int, group: str) -> bool:
        """As ZooKeeper has it."""
        broker = next(each.broker for each in self.brokers if each.node_id == node_id)
        if broker is None:
            return False
        path = znodes.state_path(OFFSETS_TOPIC, broker.groups.partition_for(group))
        return znodes.decode_state(self.zookeeper.tree.get(path).data).leader == node_id

    def _settings(self) -> dict[str, str]:
        chance = self.chance
        settings = {
            "zookeeper.session.timeout.ms": str(chance.choice((3000, 6000))),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
            "offsets.topic.replication.factor": "3",
            "replica.lag.time.max.ms": str(chance.choice((3000, 8000))),
            "replica.socket.timeout.ms": str(chance.choice((3000, 10000))),
            "num.replica.fetchers": str(chance.choice((1, 1, 2))),
            "auto.create.topics.enable": "false",
            "leader.imbalance.check.interval.seconds": str(chance.choice((20, 300))),
            "log.roll.ms": str(chance.choice((10_000, 60_000, 3_600_000))),
            "log.cleaner.enable": "false",
            "controlled.shutdown.max.retries": "1",
            "controlled.shutdown.retry.backoff.ms": "1000",
            "request.timeout.ms": "5000",
            "transaction.state.log.num.partitions": str(TRANSACTIONS_PARTITIONS),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
        }
        if self.plan.members:
            self._delivery_count_limit = random.Random(f"members {self.plan.seed}").choice((3, 10))
            settings |= MEMBERS_SETTINGS | {
                "group.share.delivery.count.limit": str(self._delivery_count_limit),
                "share.coordinator.state.topic.num.partitions": str(SHARE_STATE_PARTITIONS),
            }
        return settings

    async def _create_topic(self, name: str) -> None:
        configs = [CreatableTopicConfig(name="retention.ms", value="-1")]
        topic = CreatableTopic(
            name=name, num_partitions=PARTITIONS, replication_factor=3, assignments=[], configs=configs
        )
        client = self.connections("creator")
        with trio.move_on_after(RECOVERY_S):
            while True:
                request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
                response = await client.ask_any(request, CREATE_TOPICS_VERSION)
                if response is not None:
                    code = ErrorCode(response.topics[0].error_code)
                    if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                        break
                await trio.sleep(BACKOFF_S)

    def _start_clients(self) -> None:
        where = [(TOPIC, partition) for partition in range(PARTITIONS)]
        self.producers = [
            SimProducer(self.connections(f"p{number}"), self.record, where, self.plan.rate, self.fail, bool(number % 2))
            for number in range(self.plan.producers)
        ]
        self.group = SimGroup(self.connections(GROUP), self.record, TOPIC, 0, self._is_coordinator)
        for producer in self.producers:
            self.nursery.start_soon(producer.run)
        self.nursery.start_soon(self.group.run)
        for number in range(self.plan.readers):
            client = self.connections(f"reader {number}")
            for partition in range(PARTITIONS):
                reader = SimReader(client, self.record, TOPIC, partition, knows_epoch=bool(number % 2))
                self.nursery.start_soon(reader.run)
        viewer = SimReader(self.connections("viewer"), self.record, TOPIC, 0, knows_epoch=False)
        self.nursery.start_soon(viewer.watch_end)

    def _start_processors(self) -> None:
        where = [(TRANSACTIONAL_TOPIC, partition) for partition in range(PARTITIONS)]
        for number in range(self.plan.processors):
            client, versions = self.connections(f"x{number}"), (OLD, NEW)[number % 2]
            self.processors.append(SimProcessor(client, self.record, where, self._is_coordinator, versions=versions))
            self.nursery.start_soon(self.processors[-1].run)
        for committed_only in (False, True):
            client = self.connections(f"reader of transactions {committed_only}")
            for place in where:
                reader = SimReader(client, self.record, *place, knows_epoch=True, committed_only=committed_only)
                self.nursery.start_soon(reader.run)

    async def _start_members(self) -> None:
        await begin_share_group(self.connections("administrator of groups"), SHARE_GROUP)
        self.record.add(ShareBegan, SHARE_GROUP, TOPIC, self._delivery_count_limit)
        for number in range(self.plan.members):
            clients = (self.connections(f"s{number}"), self.connections(f"s{number} fetching"))
            self.share_members.append(SimShareMember(*clients, self.record, SHARE_GROUP, TOPIC))
            for kind in (SimConsumerMember, SimClassicMember):
                client = self.connections(f"{kind.__name__} {number}")
                self.members.append(kind(client, self.record, kind.__name__, TOPIC, PARTITIONS))
        for member in (*self.share_members, *self.members):
            self.nursery.start_soon(member.run)

    async def _drain(self) -> None:
        """Let the share group get to the end of the topic."""
        for member in self.members:
            member.is_over = True
        for share_member in self.share_members:
            share_member.is_draining = True
        client = self.connections("administrator of groups")
        while not await is_drained(client, SHARE_GROUP, TOPIC, range(PARTITIONS)):
            await trio.sleep(1.0)

    async def _read_transactions(self) -> None:
        for committed_only in (False, True):
            client = self.connections(f"final reader of transactions {committed_only}")
            for partition in range(PARTITIONS):
                place = (TRANSACTIONAL_TOPIC, partition)
                await SimReader(
                    client, self.record, *place, knows_epoch=True, committed_only=committed_only
                ).read_to_end()

    async def _finish(self) -> list[Replicas]:
        for producer in self.producers:
            producer.is_over = True
        for processor in self.processors:
            processor.is_over = True
        self.group.is_over = True
        writers = [*self.producers, *self.processors]
        await self._until(lambda: all(writer.is_done for writer in writers), self._state)
        with trio.move_on_after(RECOVERY_S) as patience:
            await self.group.fetch_at_last()
        if patience.cancelled_caught:
            raise Stuck(f"the group has no coordinator; {self._state()}")
        with trio.move_on_after(RECOVERY_S) as patience:
            if self.plan.members:
                await self._drain()
        if patience.cancelled_caught:
            raise Stuck(f"the share group does not get to the end; {self._state()}")
        client = self.connections("final reader")
        with trio.move_on_after(RECOVERY_S) as patience:
            for partition in range(PARTITIONS):
                await SimReader(client, self.record, TOPIC, partition, knows_epoch=True).read_to_end()
            if self.processors:
                await self._read_transactions()
        if patience.cancelled_caught:
            raise Stuck(f"the final reader; {self._state()}")
        await self._until(self._are_in_sync, self._state)
        replicas = list(self._replicas())
        self.trace.note("end")
        return replicas

    async def _until(self, condition: Callable[[], bool], words: Callable[[], str]) -> None:
        with trio.move_on_after(RECOVERY_S):
            while not condition():
                await trio.sleep(0.2)
            return
        raise Stuck(words())

    def _are_in_sync(self) -> bool:
        """Whether all replicas hold the same, and know it."""
        for partition in range(PARTITIONS):
            held = self._held(partition)
            leader = _leader(held)
            if leader is None or set(leader.isr) != set(leader.replicas):
                return False
            end = leader.log_end_offset
            for node_id in leader.replicas:
                replica = held.get(node_id)
                if replica is None or replica.log_end_offset != end or replica.high_watermark != end:
                    return False
        return True

    def _held(self, partition: int) -> dict[int, Partition]:
        """The replicas of a partition by broker."""
        held = {}
        for each in self.brokers:
            found = each.broker and each.broker.replicas.partition(TOPIC, partition)
            if found is not None:
                held[each.node_id] = found
        return held

    def _state(self) -> str:
        words = [writer.state() for writer in (*self.producers, *self.processors) if not writer.is_done]
        words += map(str, self.share_members)
        for each in self.brokers:
            if each.broker is None:
                words.append(f"{each} is down")
                continue
            member = each.broker.member
            words.append(
                f"{each}: serving {each.is_serving}, fenced {member.is_fenced}, controller {member.controller_id},"
                f" {list(each.broker.replicas.partitions_of(TOPIC))}"
            )
        return "\n    ".join(words)

    def _replicas(self) -> Iterator[Replicas]:
        """The logs of those that are replicas now; a broker that was cut off may keep what it was told to drop."""
        for partition in range(PARTITIONS):
            held = self._held(partition)
            leader = _leader(held)
            assert leader is not None
            logs = {"leader": self._log(leader)}
            logs |= {
                str(node_id): self._log(held[node_id]) for node_id in leader.replicas if held[node_id] is not leader
            }
            yield Replicas(TOPIC, partition, leader.high_watermark, logs)

    def _log(self, held: Partition) -> bytes:
        disk = held.log.log_directory.storage
        assert isinstance(disk, MemoryStorage)
        folder = held.log.directory + "/"
        segments = sorted(path for path in disk.files() if path.startswith(folder) and path.endswith(".log"))
        return b"".join(disk.read(path) for path in segments)


def _leader(held: dict[int, Partition]) -> Partition | None:
    """Who leads in the latest epoch: one that was cut off may not have heard that it leads no more."""
    return max((each for each in held.values() if each.is_leader), key=lambda each: each.leader_epoch, default=None)
