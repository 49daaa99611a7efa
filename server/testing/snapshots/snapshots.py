"""Snapshots of worlds: taken in one step of the lab's loop, put back, or made into worlds of their own.

A snapshot has what the disks of the brokers would hold after a clean stop, and of a cluster the tree as it would be then. The
brokers go on meanwhile: they are not stopped, and no request waits. So it has every record that is in a log, the offsets and
generations of groups, transactions that are open, producer ids, settings, access control lists and quotas. It has no
connections, and what a broker keeps in memory alone: sessions of fetches, quotas used up, records acquired in share groups.

A restore lets clients have the answers to what they have produced, ends the brokers as SIGKILL does and starts them on the same
ports with these disks. What clients produce meanwhile is held back until the brokers lead their partitions. They recover nothing,
as after a clean stop. Time goes on: what is older than a retention or a timeout by then is removed or ended as after any restart.
Groups have the members that they had. Clients that were members then go on, others join again; a member whose client is gone
leaves by its session timeout, as after a crash. In a fork no client is a member, so its groups are made empty at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from ottla.replication.cluster.metadata_cache import NO_BROKER_EPOCH
from ottla.replication.log.checkpoints import encode_clean_shutdown, encode_offsets
from ottla.replication.log.names import CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT, path_in
from ottla.replication.replica_manager.directories import CHECKPOINTS
from ottla.replication.replica_manager.flushing import offset_to_note
from ottla.server.testing.errors import LabError
from ottla.server.testing.in_sync import let_catch_up
from ottla.server.testing.memory.names import StorageSnapshot
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.server.testing.snapshots.files import NodeSnapshot, Snapshot
from ottla.server.testing.snapshots.kept_connections import GivenUp, give_up, take_up
from ottla.server.testing.snapshots.living_producers import expect, given_ids, living_producers, skip_ids, without_those
from ottla.server.testing.world.clock import pause
from ottla.server.testing.world.cluster import SILENCE_S
from ottla.server.testing.world.world import PAUSE_S, World

if TYPE_CHECKING:
    from ottla.replication.replica_manager.directories import HeldDirectory
    from ottla.replication.replica_manager.flushing import NotedLog
    from ottla.server.broker import Broker
    from ottla.server.testing.world.loop import LabLoop
    from ottla.server.testing.world.node import Node


CONNECTIONS = ("cut", "kept")
ANSWERED_LOOKS = 500
"""Looks for clients that wait for the answer to a Produce: a second."""


def take(world: World) -> Snapshot:
    """Return a snapshot of a world as it is now. Call this in the lab's loop."""
    return Snapshot(
        nodes={node_id: _of_node(node) for node_id, node in world.nodes.items()},
        settings=dict(world.settings),
        taken_ms=world.loop.clock.now_ms(),
        tree=None if world.tree is None else world.tree.snapshot(),
    )


def _of_node(node: Node) -> NodeSnapshot:
    if node.broker is None:
        return NodeSnapshot(node.storage.snapshot(), is_running=False)
    return NodeSnapshot(closed(node.broker))


async def restore(world: World, snapshot: Snapshot, connections: str = "cut") -> None:
    """Put a snapshot in place of what a world has; return when its brokers serve. Raises LabError.

    If a broker cannot start, the others serve the snapshot all the same.

    `connections`: "cut", or "kept" for those whose clients wait for nothing but records (`kept_connections.py`).
    """
    if connections not in CONNECTIONS:
        raise LabError(f"Connections cannot be {connections!r} by a restore; say 'cut' or 'kept'.")
    if world.nodes.keys() != snapshot.nodes.keys():
        raise LabError(
            f"The snapshot is of {_named(snapshot.nodes)} and this Kafka has {_named(world.nodes)}; "
            "Kafka.of(snapshot) makes a Kafka that fits."
        )
    async with world.restoring:  # two at a time would start the same brokers
        # Half a restore would be no world that ever was.
        with trio.CancelScope(shield=True):
            await _restore(world, snapshot, connections)


async def _restore(world: World, snapshot: Snapshot, connections: str) -> None:
    let_catch_up(world)
    for node_id in world.nodes:
        world.resume(node_id)
        world.heal(node_id)  # a broker that is cut off from the tree would neither tell its producer ids nor start
    # Clients get the answers that they wait for, and send nothing again. Their later requests wait, in order, for brokers that
    # know which partitions they lead.
    held = world.wire.on("Produce").delay(SILENCE_S, times=None, before=True)
    try:
        await _until_answered(world)
        await _restore_silently(world, snapshot, connections)
    finally:
        held.remove()
        for node in world.nodes.values():
            node.is_reserved = False
            node.let_through(held)


async def _until_answered(world: World) -> None:
    """Wait until no client waits for the answer to a Produce, for ANSWERED_LOOKS looks at most."""
    for _ in range(ANSWERED_LOOKS):
        if not any(each.awaits_produce for node in world.nodes.values() for each in node.conversations()):
            return
        await pause(PAUSE_S)


async def _restore_silently(world: World, snapshot: Snapshot, connections: str) -> None:
    brokers = {id: node.broker for id, node in world.nodes.items() if node.broker is not None}
    block = await given_ids(brokers.values())
    given_up: dict[int, list[GivenUp]] = {}
    if connections == "kept":
        given_up = {node_id: give_up(broker) for node_id, broker in brokers.items()}
    failure: Exception | None = None
    try:
        for node in world.nodes.values():
            node.is_reserved = True
        async with trio.open_nursery() as nursery:
            for node in world.nodes.values():
                nursery.start_soon(node.close)
        # Not before: until now they may have served what clients had sent.
        living = living_producers([node.latest for node in world.nodes.values() if node.latest is not None])
        nodes = {id: each._replace(storage=without_those(each.storage, living)) for id, each in snapshot.nodes.items()}
        try:
            await _put_back(world, replace(snapshot, nodes=nodes))
        except Exception as problem:
            if world not in world.loop.worlds:  # it was closed meanwhile
                raise
            failure = problem
        for node in world.nodes.values():
            if node.broker is not None:
                expect(node.broker, living)
                await skip_ids(node.broker, block)
        for node_id, each in given_up.items():
            if (broker := world.nodes[node_id].broker) is not None:
                take_up(broker, each)
                each.clear()
    finally:  # those of brokers that are down now
        for sockets in given_up.values():
            for one in sockets:
                one.sock.close()
    if failure is not None:
        down = [id for id, node in world.nodes.items() if snapshot.nodes[id].is_running and not node.is_running]
        if not down:
            raise failure
        raise LabError(
            f"The snapshot is put back, but {_named(down)} could not start: {failure}; "
            f"kafka.broker({down[0]}).start() tries again, kafka.reset() begins with nothing."
        ) from failure


async def fork(loop: LabLoop, snapshot: Snapshot) -> World:
    """Return another world that begins as a snapshot, with ports of its own. Raises StartupError."""
    world = World(loop, brokers=len(snapshot.nodes), settings=snapshot.settings)
    if world.nodes.keys() != snapshot.nodes.keys():
        raise LabError(f"A world cannot have {_named(snapshot.nodes)}; make the snapshot again.")
    world.begin()
    try:
        await _put_back(world, snapshot)
    except BaseException:  # nobody else could end its brokers
        await world.close()
        raise
    return world


async def _put_back(world: World, snapshot: Snapshot) -> None:
    world.restored_after = next(reversed(world.wire.requests()), None)  # clients come back before all is put back
    world.settings = dict(snapshot.settings)
    for node_id, node in world.nodes.items():
        node.put_back(snapshot.nodes[node_id].storage)
        node.settings = world.settings
    if world.tree is not None and snapshot.tree is not None:
        world.tree.restore(snapshot.tree)
    # A snapshot may come from a lab whose clock was advanced. Brokers never see a time before their records'.
    behind_ms = snapshot.taken_ms - world.loop.clock.now_ms()
    if behind_ms > 0:
        world.loop.clock.jump(behind_ms / 1000)
    running = [node for node_id, node in world.nodes.items() if snapshot.nodes[node_id].is_running]
    await world.start(running, reserved=True)
    # As when a test is interrupted in its restore and closes its Kafka: what was just started would be left behind.
    if world not in world.loop.worlds:
        await world.close()
        raise LabError("This Kafka was closed while a snapshot was put back; make a new Kafka().")
    await world.until_settled()  # the controller of a cluster tells brokers of their partitions after they serve


def _named(nodes: Iterable[int]) -> str:
    ids = sorted(nodes)
    return f"broker {ids[0]}" if len(ids) == 1 else f"brokers {', '.join(map(str, ids))}"


def closed(broker: Broker) -> StorageSnapshot:
    """Return the disk of a broker that serves, as a clean stop would leave it. Call this in the lab's loop."""
    storage = broker.environment.storage
    assert isinstance(storage, MemoryStorage)
    broker_epoch = broker.member.broker_epoch if broker.is_in_cluster else NO_BROKER_EPOCH
    files: dict[str, bytes] = {}
    with storage.without_faults():
        for held in broker.replicas.directories.online():
            files.update(_closing_files(held, list(broker.replicas.noted_logs(held)), broker_epoch))
        return storage.snapshot().with_files(files, broker.now_ms())


def _closing_files(held: HeldDirectory, logs: list[NotedLog], broker_epoch: int) -> Iterator[tuple[str, bytes]]:
    """Yield the files that a clean stop writes into a log directory, each with its path."""
    for log, _, is_future in logs:
        if is_future:  # a thread may be writing to it
            continue
        log.segments[-1].seal()
        if (producers := log.producer_snapshot()) is not None:
            yield producers
        if log.epochs_are_dirty:
            epochs = log.epochs_to_write()
            yield epochs.path, epochs.data
    for name in CHECKPOINTS:
        offsets: dict[tuple[str, int], int] = {}
        for noted in logs:
            # A clean stop syncs all logs to their ends before.
            offset = noted.log.log_end_offset if name == RECOVERY_POINT_CHECKPOINT else offset_to_note(noted, name)
            if offset is not None:
                offsets[noted.log.topic, noted.log.partition] = offset
        yield path_in(held.path, name), encode_offsets(offsets)
    yield path_in(held.path, CLEAN_SHUTDOWN), encode_clean_shutdown(broker_epoch)
