"""A member of a cluster keeps clients waiting until a controller has told it of the topics."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import CoordinationUnavailable
from ottla.replication.cluster.metadata_cache import (
    BrokerEndpoint,
    BrokerRegistration,
    MetadataCache,
    PartitionState,
    TopicState,
)
from ottla.server.cluster.member import TOPICS_WAIT_S, ClusterMember

BROKER = 1


class Member(ClusterMember):
    """As much of a member as waits to be told."""

    def __init__(self, cluster: MetadataCache, tree: dict[str, list[str]]) -> None:
        self._broker: Any = SimpleNamespace(node_id=BROKER, cluster=cluster)
        self.session: Any = self
        self.failures = 0
        self._children = tree
        self._tree: Any = SimpleNamespace(is_shared=True)
        self._loaded = Counter[str]()

    async def children(self, path: str) -> list[str]:
        await trio.lowlevel.checkpoint()
        if self.failures:
            self.failures -= 1
            raise CoordinationUnavailable("ZooKeeper is away")
        return self._children[path]


def tell_of_brokers(cluster: MetadataCache) -> None:
    endpoint = BrokerEndpoint(BROKER, "host", 9092, None)
    cluster.put_broker(BrokerRegistration(BROKER, {"PLAINTEXT": endpoint}, None))


def tell_of_topic(cluster: MetadataCache, name: str, partitions: int = 1) -> None:
    state = PartitionState(replicas=(1,), isr=(1,), leader=1, leader_epoch=0)
    cluster.put_topic(TopicState(name, name.encode().ljust(16), (state,) * partitions))


@pytest.mark.parametrize("failures", [0, 3])
async def test_a_member_waits_for_its_topics_but_not_for_those_being_deleted(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery, failures: int
) -> None:
    cluster = MetadataCache()
    member = Member(cluster, {znodes.TOPICS: ["a", "b", "gone"], znodes.DELETED_TOPICS: ["gone"]})
    member.failures = failures
    is_told = trio.Event()

    async def wait() -> None:
        await member.await_metadata()
        is_told.set()

    nursery.start_soon(wait)
    for tell in (lambda: None, lambda: tell_of_brokers(cluster), lambda: tell_of_topic(cluster, "a")):
        tell()
        await trio.sleep(0.5)
        assert not is_told.is_set()
    tell_of_topic(cluster, "b")
    await trio.sleep(0.5)
    assert is_told.is_set()


async def test_a_member_waits_for_all_partitions_of_a_topic_that_it_has_loaded(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    """The controller tells of a large topic in several requests."""
    cluster = MetadataCache()
    member = Member(cluster, {znodes.TOPICS: ["large"], znodes.DELETED_TOPICS: []})
    member._loaded["large"] = 700
    is_told = trio.Event()

    async def wait() -> None:
        await member.await_metadata()
        is_told.set()

    tell_of_brokers(cluster)
    nursery.start_soon(wait)
    for partitions in (500, 699):
        tell_of_topic(cluster, "large", partitions)
        await trio.sleep(0.5)
        assert not is_told.is_set()
    tell_of_topic(cluster, "large", 700)
    await trio.sleep(0.5)
    assert is_told.is_set()


async def test_a_member_does_not_wait_for_its_topics_for_ever(autojump_clock: trio.testing.MockClock) -> None:
    cluster = MetadataCache()
    tell_of_brokers(cluster)
    await Member(cluster, {znodes.TOPICS: ["half created"], znodes.DELETED_TOPICS: []}).await_metadata()
    assert trio.current_time() == pytest.approx(TOPICS_WAIT_S)


@pytest.mark.parametrize(
    ("is_leader", "leader_epoch", "has_begun_epoch", "leads"),
    [(True, 3, True, True), (True, 3, False, False), (True, 2, True, False), (False, 3, True, False)],
)
def test_a_member_keeps_only_the_epochs_that_it_has_begun(
    is_leader: bool, leader_epoch: int, has_begun_epoch: bool, leads: bool
) -> None:
    """What it led before a crash gets another one, by which clients hear of records that the crash has cost."""
    found = SimpleNamespace(is_leader=is_leader, leader_epoch=leader_epoch, has_begun_epoch=has_begun_epoch)
    replicas = SimpleNamespace(partition=lambda *name: found if name == ("t", 0) else None)
    member: Any = SimpleNamespace(_broker=SimpleNamespace(replicas=replicas))
    assert ClusterMember._leads(member, ("t", 0), 3) is leads
    assert ClusterMember._leads(member, ("t", 1), 3) is False
