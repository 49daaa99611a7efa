"""The controller over Apache ZooKeeper, with puppets of brokers: elections, failover, and what is lost on the way."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio
import trio.testing
from compat_tests.apache.brokers import ZooKeeper
from compat_tests.coordination.proxy import Proxy

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import BadVersion, Check, Create, Delete, Operation, SetData
from ottla.replication.cluster.metadata_cache import BrokerEndpoint, BrokerRegistration
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.replication.cluster.znodes import TopicAssignment
from ottla.server.cluster.controller.controller_election import ControllerElection
from ottla.server.cluster.coordination.zookeeper import ZooKeeperCoordination
from ottla.server.config.broker_config import load_config
from ottla.server.tests.coordination_promises import settled
from ottla.server.tests.puppets import Puppet, PuppetPeer
from ottla.wire.errors import ErrorCode, KafkaError

CONFIG = load_config({})
OpenSession = Callable[..., Awaitable[ZooKeeperCoordination]]


class Cluster:
    """Puppets registered in ZooKeeper, and candidates with sessions of their own."""

    def __init__(self, nursery: trio.Nursery, operator: ZooKeeperCoordination) -> None:
        self.operator = operator
        self.puppets: dict[int, Puppet] = {}
        self._nursery = nursery
        self._names = itertools.count()

    async def stand(self, node_id: int, session: ZooKeeperCoordination) -> ControllerElection:
        election = ControllerElection(
            session,
            node_id,
            peer=self._peer,
            inter_broker_listener="PLAINTEXT",
            is_unclean=lambda _: False,
            config=lambda: CONFIG,
        )
        await self._nursery.start(election.run)
        return election

    def _peer(self, broker: BrokerRegistration) -> PuppetPeer:
        puppet = self.puppets.get(broker.node_id)
        if puppet is None or puppet.epoch != broker.epoch:
            raise PeerUnavailable(f"there is no broker {broker.node_id}")
        return PuppetPeer(puppet)

    async def up(self, *node_ids: int) -> None:
        for node_id in node_ids:
            broker = BrokerRegistration(node_id, {"PLAINTEXT": BrokerEndpoint(node_id, "localhost", 9000 + node_id)})
            path = znodes.broker_path(node_id)
            await self.operator.multi([Create(path, znodes.encode_broker(broker, 0), ephemeral=True)])
            epoch = (await self.operator.get(path)).creation_id
            self.puppets[node_id] = Puppet(node_id, epoch, random.Random(node_id))

    async def down(self, node_id: int) -> None:
        self.puppets.pop(node_id).is_reachable = False
        await self.operator.multi([Delete(znodes.broker_path(node_id))])

    async def create(self, *replicas: tuple[int, ...]) -> str:
        name = f"topic-{next(self._names)}"
        assignment = TopicAssignment(random.randbytes(16), {index: list(ids) for index, ids in enumerate(replicas)})
        data = znodes.encode_topic(assignment)
        await self.operator.multi([Create(znodes.topic_config_path(name)), Create(znodes.topic_path(name), data)])
        return name

    async def until(self, condition: Callable[[], object]) -> None:
        with trio.fail_after(60):
            while not condition():
                await trio.sleep(0.01)

    async def until_led(self, leader: int, name: str, index: int = 0) -> None:
        """Every live broker knows this leader."""
        await self.until(
            lambda: all(
                (name, index) in puppet.metadata and puppet.metadata[name, index].leader == leader
                for puppet in self.puppets.values()
            )
        )

    async def state(self, name: str, index: int = 0) -> dict:
        return dict(json.loads((await self.operator.get(znodes.state_path(name, index))).data))

    async def until_gone(self, path: str) -> None:
        with trio.fail_after(60):
            while (await self.operator.get_all([path])) != [None]:
                await trio.sleep(0.01)


@pytest.fixture
async def cluster(coordination: ZooKeeperCoordination, nursery: trio.Nursery) -> Cluster:
    await coordination.multi([Create(path) for path in znodes.PERSISTENT_PATHS])
    return Cluster(nursery, coordination)


@pytest.fixture
def connect(zookeeper: ZooKeeper, root: str) -> str:
    return zookeeper.address + root


async def test_two_candidates_and_a_failover(cluster: Cluster, connect: str, open_session: OpenSession) -> None:
    await cluster.up(1, 2, 3)
    sessions = [await open_session(connect), await open_session(connect)]
    first = await cluster.stand(1, sessions[0])
    second = await cluster.stand(2, sessions[1])
    assert first.active is not None
    assert (first.controller_id, second.controller_id, second.active) == (1, 1, None)
    name = await cluster.create((1, 2, 3), (2, 3, 1))
    await cluster.until_led(1, name)
    await cluster.until_led(2, name, 1)
    await sessions[0].multi([Delete(znodes.CONTROLLER)])
    await cluster.until(lambda: any(each.active is not None and each.active.epoch == 2 for each in (first, second)))
    await cluster.until(lambda: {puppet.controller_epoch for puppet in cluster.puppets.values()} == {2})
    await cluster.until(lambda: first.controller_id == second.controller_id)
    assert (await cluster.operator.get(znodes.CONTROLLER_EPOCH)).data == b"2"


async def test_a_topic_is_made_by_its_nodes_and_its_leaders_follow_the_brokers(
    cluster: Cluster, connect: str, open_session: OpenSession
) -> None:
    await cluster.up(1, 2, 3)
    await cluster.stand(1, await open_session(connect))
    name = await cluster.create((1, 2, 3), (3, 1))
    await cluster.until_led(1, name)
    await cluster.until(lambda: cluster.puppets[1].replicas.keys() == {(name, 0), (name, 1)})
    assert cluster.puppets[1].new == {(name, 0), (name, 1)}
    assert await cluster.state(name) == {
        "controller_epoch": 1,
        "leader": 1,
        "version": 1,
        "leader_epoch": 0,
        "isr": [1, 2, 3],
    }
    await cluster.down(1)
    await cluster.until_led(2, name)
    assert (await cluster.state(name))["isr"] == [2, 3]
    await cluster.up(1)
    await cluster.until(lambda: (name, 0) in cluster.puppets[1].replicas)
    assert cluster.puppets[1].replicas[name, 0].leader == 2


async def test_a_deletion_waits_for_a_dead_replica(cluster: Cluster, connect: str, open_session: OpenSession) -> None:
    await cluster.up(1, 2)
    await cluster.stand(1, await open_session(connect))
    name = await cluster.create((1, 2))
    await cluster.until_led(1, name)
    await cluster.down(2)
    await cluster.operator.multi([Create(znodes.deleted_topic_path(name))])
    await cluster.until(lambda: cluster.puppets[1].replicas == {} == cluster.puppets[1].metadata)
    assert await cluster.operator.children(znodes.TOPICS) == [name]
    await cluster.up(2)
    await cluster.until_gone(znodes.deleted_topic_path(name))
    assert await cluster.operator.children(znodes.TOPICS) == []
    assert await cluster.operator.children(znodes.TOPIC_CONFIGS) == []


async def test_a_deposed_controller_cannot_write(
    cluster: Cluster, connect: str, root: str, proxy: Proxy, open_session: OpenSession
) -> None:
    """The first one is cut off from ZooKeeper until its session is over, and is asked before it knows."""
    await cluster.up(1, 2)
    session = await open_session(proxy.address + root, timeout_ms=6_000)
    first = await cluster.stand(1, session)
    second = await cluster.stand(2, await open_session(connect))
    name = await cluster.create((1, 2))
    await cluster.until_led(1, name)
    former = first.active
    assert former is not None
    proxy.cut()
    await cluster.until(lambda: second.active is not None)
    refused: list[int] = []

    async def ask() -> None:
        try:
            await former.reassign({(name, 0): [2, 1]})
        except KafkaError as error:
            refused.append(error.code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        proxy.mend()
    assert refused == [ErrorCode.NOT_CONTROLLER]
    await cluster.until(lambda: first.active is None)
    assert second.active is not None
    assert second.active.epoch == 2
    with pytest.raises(BadVersion):
        await cluster.operator.multi(
            [Check(znodes.CONTROLLER_EPOCH, former.epoch_version), SetData(znodes.TOPICS, b"x")]
        )
    topic = znodes.decode_topic((await cluster.operator.get(znodes.topic_path(name))).data)
    assert topic.partitions == {0: [1, 2]}


async def test_nothing_is_lost_or_done_twice_when_the_connection_breaks_in_mid_write(
    cluster: Cluster, root: str, proxy: Proxy, open_session: OpenSession
) -> None:
    """ZooKeeper does what the controller writes, and its answer is lost."""
    await cluster.up(1, 2, 3)
    session = await open_session(proxy.address + root, timeout_ms=15_000)
    election = await cluster.stand(1, session)
    name = await cluster.create(*[(1, 2, 3)] * 20)
    await cluster.until_led(1, name, 19)
    active = election.active
    assert active is not None
    write = session.multi

    async def lose_the_answer(operations: Sequence[Operation]) -> list:
        proxy.loses_answers = True
        session.multi = write  # type: ignore[method-assign]
        return await write(operations)

    session.multi = lose_the_answer  # type: ignore[method-assign]
    outcomes: list[dict] = []

    async def ask() -> None:
        outcomes.append(await active.reassign({(name, index): [2, 1, 3] for index in range(20)}))

    done = trio.Event()
    cluster.operator.watch_node(znodes.topic_path(name), lambda _: done.set())
    await settled(cluster.operator)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        with trio.fail_after(60):
            await done.wait()
        proxy.break_connections()
        proxy.mend()
    assert set(outcomes[0].values()) == {None}
    assert election.active is active
    assert active.epoch == 1
    for index in range(20):
        known = active.states.partition((name, index))
        written = await cluster.operator.get(znodes.state_path(name, index))
        assert known is not None
        assert (known.partition_epoch, known.replicas) == (written.version, (2, 1, 3))
        await cluster.until(lambda: cluster.puppets[3].metadata[name, index].zk_version == written.version)  # noqa: B023
