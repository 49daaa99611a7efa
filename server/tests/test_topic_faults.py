"""Topics are created, extended, configured and deleted while each call to the disk fails once: each change is whole or undone.

A broker that is alone, with its journal and its logs on one disk in memory. After the fault it goes on, and is started again
in order, after a kill and after a power cut.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.replication.cluster import znodes
from ottla.replication.cluster.state import BrokerEndpoint, BrokerRegistration, ClusterState
from ottla.replication.control import topics as controller_module
from ottla.replication.control.topics import Controller, NewTopic
from ottla.replication.hosting.manager import ReplicaManager
from ottla.replication.log.memory_storage import MemoryStorage
from ottla.replication.log.tests.failing_calls import (
    ERRNOS,
    Case,
    FailingCalls,
    run_every_case,
    run_pairs,
    single_faults,
)
from ottla.replication.log.tests.failing_calls import run_case as run_one
from ottla.replication.log.tests.logs import batch
from ottla.server.administration import TopicAdministration
from ottla.server.coordination.embedded import EmbeddedCoordination
from ottla.server.coordinators.coordinators import Coordinators
from ottla.server.hosting import PartitionHosting
from ottla.server.settings.broker_config import load_config
from ottla.server.settings.repository import ConfigRepository
from ottla.server.start.becoming_controller import settle_cluster_id, take_over
from ottla.wire.errors import ErrorCode, KafkaError

DATA = "/data"
OLD = 2  # partitions of the topic that is there before
NEW = 3  # more than go into one multi


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return function(*arguments)


class Life:
    """One life of a broker on a disk."""

    def __init__(self, storage: MemoryStorage) -> None:
        self.configs = ConfigRepository(load_config({"node.id": "1", "log.dirs": DATA}))
        self.cluster = ClusterState(controller_id=1)
        self.cluster.put_broker(BrokerRegistration(1, {"PLAINTEXT": BrokerEndpoint(1, "h", 9092, None)}, None))
        self.coordination = EmbeddedCoordination(Path(DATA), run_in_thread=at_once, storage=storage)
        self.replicas = ReplicaManager(
            [DATA], node_id=1, config=self.configs.current.replication, storage=storage, run_in_thread=at_once
        )
        self.hosting = PartitionHosting(self.replicas, Coordinators({}))
        self.controller = Controller(self.cluster)
        self.administration = TopicAdministration(
            coordination=self.coordination, controller=self.controller, configs=self.configs, partitions=self.hosting
        )

    async def start(self) -> Life:
        await self.replicas.open()
        self.coordination.open()
        cluster_id = await settle_cluster_id(self.coordination, lambda: "cluster")
        await take_over(self.coordination, self.controller, self.configs)
        await self.hosting.load(self.administration.hosted_partitions(), cluster_id=cluster_id)
        return self

    async def stop(self) -> None:
        await self.replicas.shutdown()
        self.coordination.close()

    def topics(self) -> dict[str, int]:
        """What clients are shown: the number of partitions by topic."""
        return {name: len(topic.partitions) for name, topic in self.cluster.topics.items()}

    def hosted(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for partition in self.replicas.partitions():
            counts[partition.topic] = counts.get(partition.topic, 0) + 1
        return counts

    async def in_the_tree(self) -> dict[str, int]:
        """What a restart would find."""
        found = {}
        for name, node in (await self.coordination.children_data(znodes.TOPICS)).items():
            (mark,) = await self.coordination.get_all([znodes.deleted_topic_path(name)])
            if mark is None:
                found[name] = len(znodes.decode_topic(node.data).partitions)
        return found


# ---------------------------------------------------------------------- what is done while calls fail


async def create(life: Life) -> None:
    outcomes = await life.administration.create_topics(
        [NewTopic(name="new", partition_count=NEW), NewTopic(name="two")]
    )
    for outcome in outcomes:
        if isinstance(outcome, KafkaError):
            raise outcome


async def delete(life: Life) -> None:
    (error,) = await life.administration.delete_topics(["old"])
    if error is not None:
        raise error


async def extend(life: Life) -> None:
    await life.administration.create_partitions("old", NEW)


async def configure(life: Life) -> None:
    await life.administration.alter_topic("old", lambda _: {"retention.ms": "77"})


Operation = Callable[[Life], Awaitable[None]]
AFTER: dict[Operation, dict[str, int]] = {
    create: {"old": OLD, "new": NEW, "two": 1},
    delete: {},
    extend: {"old": NEW},
    configure: {"old": OLD},
}
# codes that tell a client that its change was made before
AGAIN = {
    create: ErrorCode.TOPIC_ALREADY_EXISTS,
    delete: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    extend: ErrorCode.INVALID_PARTITIONS,
}


async def attempt(operation: Operation, life: Life) -> ErrorCode:
    try:
        await operation(life)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def check_visible(life: Life, operation: Operation, code: ErrorCode) -> None:
    """The topics that clients see are hosted, and agree with the answer."""
    assert life.topics() == life.hosted()
    if code is ErrorCode.NONE:
        assert life.topics() == AFTER[operation]
    elif operation is create:  # each topic by itself
        assert life.topics().items() <= AFTER[create].items() and life.topics() != AFTER[create]
    else:
        assert code is ErrorCode.KAFKA_STORAGE_ERROR
        assert life.topics() == {"old": OLD}
    assert (life.configs.log_config("old").retention_ms == 77) == (operation is configure and code is ErrorCode.NONE)


Restart = Callable[[MemoryStorage, Life], Awaitable[None]]


async def in_order(storage: MemoryStorage, life: Life) -> None:
    await life.stop()


async def killed(storage: MemoryStorage, life: Life) -> None:
    storage.kill()


async def powered_off(storage: MemoryStorage, life: Life) -> None:
    storage.crash(Random(1))


async def run_case(operation: Operation, restart: Restart, calls: FailingCalls, *, goes_on: bool) -> None:
    storage = MemoryStorage()
    life = await Life(storage).start()
    await life.administration.create_topics([NewTopic(name="old", partition_count=OLD)])
    for index in range(OLD):
        partition = life.replicas.partition("old", index)
        assert partition is not None
        partition.append_as_leader(batch(1000 + index), required_acks=-1, now_ms=1)
        partition.log.flush()
    storage.sync_directory(DATA)
    storage.fail = calls
    code = await attempt(operation, life)
    storage.fail = None
    is_broken = life.coordination._journal.failure is not None
    check_visible(life, operation, code)
    if not is_broken:
        assert await life.in_the_tree() == life.topics()
    if goes_on and not is_broken and life.replicas.log_directories[0].is_online:
        again = await attempt(operation, life)
        assert again in (ErrorCode.NONE, AGAIN.get(operation))
        code = ErrorCode.NONE if again is ErrorCode.NONE or code is ErrorCode.NONE else code
        if operation is not create:
            check_visible(life, operation, ErrorCode.NONE)
    shown, retention_ms = life.topics(), life.configs.log_config("old").retention_ms
    await restart(storage, life)
    after = await Life(storage).start()
    if is_broken and after.topics() != shown:  # nobody was told, and the broker has stopped
        assert after.topics().items() <= AFTER[operation].items()
        shown, retention_ms = after.topics(), after.configs.log_config("old").retention_ms
    assert after.topics() == after.hosted() == await after.in_the_tree() == shown
    assert is_broken or after.configs.log_config("old").retention_ms == retention_ms
    for index in range(OLD if "old" in shown else 0):
        survivor = after.replicas.partition("old", index)
        assert survivor is not None and survivor.log_end_offset == 1
    known = {f"{name}-{index}" for name, count in shown.items() for index in range(count)}
    present = {name for name in storage.names(DATA) if storage.is_directory(f"{DATA}/{name}") and "." not in name}
    assert present == known
    assert await attempt(operation, after) in (ErrorCode.NONE, AGAIN.get(operation))


def in_trio(operation: Operation, restart: Restart, *, goes_on: bool) -> Case:
    def case(calls: FailingCalls) -> None:
        async def run() -> None:
            await run_case(operation, restart, calls, goes_on=goes_on)

        trio.run(run, clock=MockClock(autojump_threshold=0))

    return case


@pytest.mark.parametrize("restart", [in_order, killed, powered_off])
@pytest.mark.parametrize("operation", list(AFTER))
def test_every_call_fails_once(operation: Operation, restart: Restart, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_module, "PARTITIONS_PER_MULTI", 2)

    count = 0
    for goes_on in (False, True) if restart is killed else (False,):
        errnos = ERRNOS if goes_on else (errno.ENOSPC,) if restart is in_order else (errno.ENOSPC, errno.EIO)
        count += run_every_case(in_trio(operation, restart, goes_on=goes_on), errnos, lasting=goes_on)
    assert count >= 4


@pytest.mark.parametrize("operation", [create, extend])
def test_what_undoes_a_failed_change_may_fail_too(operation: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_module, "PARTITIONS_PER_MULTI", 2)
    case = in_trio(operation, killed, goes_on=True)
    first = single_faults(run_one(case).made, (errno.ENOSPC,))
    assert run_pairs(case, first, errno.ENOSPC, within=3) > 30
