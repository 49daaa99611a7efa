"""A broker that is alone starts as the controller of what its own tree says."""

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Check, CoordinationUnavailable, Create, Delete, Operation, SetData
from ottla.replication.controller.partition_states import FIRST_STATES_PER_WRITE
from ottla.replication.controller.topic_planner import NewTopic
from ottla.replication.log.tests.failing_calls import WRITES
from ottla.server.cluster import administration, member
from ottla.server.cluster.coordination.embedded import EmbeddedCoordination
from ottla.server.cluster.session import settle_cluster_id
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.wire.errors import ErrorCode, KafkaError


async def with_topic(directory: Path, partitions: int) -> AdministeredBroker:
    broker = await opened(directory)
    await broker.administration.create_topics([NewTopic(name="t", partition_count=partitions)])
    return broker


async def test_the_nodes_that_kafka_expects_are_made(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    assert None not in await broker.coordination.get_all(znodes.PERSISTENT_PATHS)
    assert (await broker.coordination.get("/controller_epoch")).data == b"1"


async def test_every_start_raises_the_controller_epoch(tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        broker = await opened(tmp_path)
        assert broker.member.controller is not None
        assert broker.member.controller.epoch == epoch
        assert (await broker.coordination.get("/controller_epoch")).data == str(epoch).encode()
        await broker.stop()


async def test_a_new_tree_has_the_controllers_epoch_with_its_first_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whoever is elected first only raises it. A write waits for the disk."""
    writes: list[list[tuple[type, str]]] = []
    multi = EmbeddedCoordination.multi

    async def noted(self: EmbeddedCoordination, operations: Sequence[Operation]) -> list[Any]:
        writes.append([(type(each), each.path) for each in operations])
        return await multi(self, operations)

    monkeypatch.setattr(EmbeddedCoordination, "multi", noted)
    await opened(tmp_path)
    about_it = [
        (number, kind) for number, write in enumerate(writes) for kind, path in write if path == znodes.CONTROLLER_EPOCH
    ]
    assert [each for each in about_it if each[1] is not Check] == [(0, Create), (about_it[1][0], SetData)]


@pytest.mark.parametrize("epoch", [None, b"7"])
async def test_the_epoch_of_a_tree_that_was_there_is_left_and_one_that_it_lacks_is_made(
    tmp_path: Path, epoch: bytes | None
) -> None:
    """A broker of Kafka makes it when the first one stands for controller, so until then a tree has none."""
    broker = await opened(tmp_path)
    await broker.stop()
    tree = EmbeddedCoordination(tmp_path)
    tree.open()
    change = Delete(znodes.CONTROLLER_EPOCH) if epoch is None else SetData(znodes.CONTROLLER_EPOCH, epoch)
    await tree.multi([change])
    version = (await tree.get(znodes.CONTROLLER_EPOCH)).version if epoch else 0
    await settle_cluster_id(tree, lambda: "another")
    node = await tree.get(znodes.CONTROLLER_EPOCH)
    assert (node.data, node.version) == (epoch or b"0", version)
    tree.close()


async def test_the_cluster_id_is_chosen_once(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    assert await settle_cluster_id(broker.coordination, lambda: "another") == broker.cluster.cluster_id


async def test_every_start_gives_its_partitions_a_new_leader_epoch(tmp_path: Path) -> None:
    broker = await with_topic(tmp_path, 3)
    for epoch in (0, 1, 2):
        shown = broker.cluster.topics["t"].partitions
        assert [(each.leader, each.leader_epoch) for each in shown] == [(1, epoch)] * 3
        assert [each.leader_epoch for each in broker.replicas.partitions()] == [epoch] * 3
        node = await broker.coordination.get(znodes.state_path("t", 2))
        assert znodes.decode_state(node.data).leader_epoch == epoch
        await broker.stop()
        broker = await opened(tmp_path)


async def test_a_creation_cut_short_by_a_crash_is_completed(tmp_path: Path) -> None:
    broker = await with_topic(tmp_path, 2)
    lost = ("partitions/1/state", "partitions/1", "partitions/0/state", "partitions/0", "partitions")
    await broker.coordination.multi([Delete(f"/brokers/topics/t/{path}") for path in lost])
    await broker.coordination.multi([Delete("/config/topics/t")])
    await broker.stop()
    again = await opened(tmp_path)
    assert [each.leader for each in again.cluster.topics["t"].partitions] == [1, 1]
    assert None not in await again.coordination.get_all([f"/brokers/topics/t/{path}" for path in lost])
    await again.administration.delete_topics(["t"])
    await trio.testing.wait_all_tasks_blocked()
    assert await again.coordination.children("/brokers/topics") == []
    assert await again.coordination.children("/config/topics") == []


async def test_a_deletion_cut_short_by_a_crash_is_completed(tmp_path: Path) -> None:
    broker = await with_topic(tmp_path, 7)
    await broker.stop()
    # The mark, and the nodes of some partitions gone.
    broker.coordination.open()
    gone = [path for index in (0, 1) for path in (znodes.state_path("t", index), znodes.partition_path("t", index))]
    await broker.coordination.multi([Create(znodes.deleted_topic_path("t")), *map(Delete, gone)])
    broker.coordination.close()
    again = await opened(tmp_path)
    await trio.testing.wait_all_tasks_blocked()
    assert not again.cluster.topics
    assert not again.hosted()
    for path in ("/brokers/topics", "/config/topics", "/admin/delete_topics"):
        assert await again.coordination.children(path) == []


async def test_nodes_of_partitions_that_a_topic_does_not_name_are_in_nobodys_way(tmp_path: Path) -> None:
    """An older Ottla wrote them first when it extended a topic."""
    broker = await with_topic(tmp_path, 2)
    await broker.stop()
    broker.coordination.open()
    unnamed = [Create(znodes.partition_path("t", 2)), Create(znodes.state_path("t", 2), b"{}")]
    await broker.coordination.multi(unnamed)
    broker.coordination.close()
    again = await opened(tmp_path)
    assert len(again.cluster.topics["t"].partitions) == 2
    await again.administration.create_partitions("t", 4)
    assert [each.leader for each in again.cluster.topics["t"].partitions] == [1] * 4
    await again.administration.delete_topics(["t"])
    await trio.testing.wait_all_tasks_blocked()
    assert await again.coordination.children("/brokers/topics") == []


async def test_a_start_on_a_full_disk_ends(tmp_path: Path) -> None:
    storage = MemoryStorage()
    directory = Path("/data")
    broker = await opened(directory, storage=storage)
    await broker.stop()

    def full(operation: str, path: str) -> OSError | None:
        if operation in WRITES and "coordination" in path:
            return OSError(errno.ENOSPC, "no space")
        return None

    storage.fail = full
    with pytest.raises(CoordinationUnavailable, match="journal"):
        await opened(directory, storage=storage)


@pytest.mark.parametrize("room", [0, 100, 2_000])
async def test_a_start_with_little_room_ends_too(room: int) -> None:
    """It would be the controller, and could not give its partitions their new epochs."""
    storage = MemoryStorage()
    broker = await opened(Path("/data"), storage=storage)
    await broker.administration.create_topics([NewTopic(name="t", partition_count=100)])
    await broker.stop()
    storage.space_left = room
    with pytest.raises(CoordinationUnavailable, match="journal"):
        await opened(Path("/data"), storage=storage)
    storage.space_left = None
    again = await opened(Path("/data"), storage=storage)
    assert [each.leader for each in again.cluster.topics["t"].partitions] == [1] * 100


@pytest.mark.thorough
async def test_a_topic_that_was_stored_is_not_refused_if_the_journal_breaks_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of the wait for leaders, who cannot come. What comes before may take its time.
    monkeypatch.setattr(administration.Administration, "_patience_s", lambda self, timeout_s: 0.2)
    storage = MemoryStorage()
    broker = await opened(Path("/data"), storage=storage)
    many = FIRST_STATES_PER_WRITE + 100
    syncs: list[str] = []

    def break_second(operation: str, path: str) -> OSError | None:
        syncs.extend([path] if operation == "sync" and "journal" in path else [])
        return OSError(errno.EIO, "broken") if len(syncs) > 1 else None

    storage.fail = break_second
    (outcome,) = await broker.administration.create_topics([NewTopic(name="t", partition_count=many)])
    assert not isinstance(outcome, KafkaError) or outcome.code is ErrorCode.REQUEST_TIMED_OUT
    storage.kill()
    await broker.stop()
    storage.fail = None
    again = await opened(Path("/data"), storage=storage)
    assert [each.leader for each in again.cluster.topics["t"].partitions] == [1] * many


async def test_clients_wait_however_long_it_takes_to_lead_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await with_topic(tmp_path, 3)
    await broker.stop()
    monkeypatch.setattr(member, "METADATA_WAIT_S", 0.0)
    monkeypatch.setattr(member, "TOPICS_WAIT_S", 0.0)
    again = await opened(tmp_path)
    assert len(again.hosted()) == 3


async def test_a_broken_journal_ends_the_broker(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    reasons: list[Any] = []

    async def watch() -> None:
        reasons.append(await broker.member.until_broken())

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            broker.coordination._journal.failure = OSError(errno.EIO, "broken")
            nursery.start_soon(broker.administration.create_topics, [NewTopic(name="t")])
            await watch()
            nursery.cancel_scope.cancel()
    assert "broken" in reasons[0]


async def test_a_start_uses_the_threads_that_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """On virtual time a real thread takes no time, or all there is; and one that is slow outlives a test that is ended."""
    monkeypatch.setattr(trio.to_thread, "run_sync", None)
    storage = MemoryStorage()
    for _ in range(2):
        broker = await opened(Path("/data"), storage=storage)
        await broker.stop()
