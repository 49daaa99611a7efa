"""Producers whose clients live on across a restore: none is refused for what it has sent since, and none shares its id.

A client does not know that its records of the last minute never were. It goes on with sequence numbers that the partition of
the snapshot would take for a gap, and some clients never recover from that. So the partition forgets such a producer, and takes
the next number as it comes, as Kafka does of producers that it does not know. One that has sent nothing since, or whose
transaction is open in the snapshot, is known as before. Ids that were given since are not given again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import BadVersion, CoordinationError, SetData
from ottla.replication.log.names import SNAPSHOT_SUFFIX
from ottla.replication.log.producers import NO_OFFSET, decode_snapshot, encode_producers
from ottla.server.testing.memory.names import FrozenFile, StorageSnapshot

if TYPE_CHECKING:
    from ottla.server.broker import Broker

FOR_EVER_MS = 2**62

Place = tuple[int, int]
"""Epoch and last sequence number of a producer."""


class Living(NamedTuple):
    """Producers of a broker, by the directories of its logs and their ids, and the block of ids that was given last."""

    places: dict[str, dict[int, Place]]
    block: bytes


async def living_producers(broker: Broker) -> Living:
    """Return what a broker knows of its producers."""
    places = {
        partition.log.directory: {each.producer_id: (each.epoch, each.last_sequence) for each in known.values()}
        for partition in broker.replicas.partitions()
        if (known := partition.log.producers)
    }
    try:
        block = (await broker.member.session.get(znodes.PRODUCER_ID_BLOCK)).data
    except CoordinationError:  # it is cut off from the tree, so that it gives no ids
        block = b""
    return Living(places, block)


def without_those(disk: StorageSnapshot, living: Living) -> StorageSnapshot:
    """Return a disk whose logs do not know the producers that have sent since it was frozen."""
    changed: dict[str, bytes] = {}
    for directory, places in living.places.items():
        if (newest := _newest_snapshot(disk, directory)) is not None:
            path, file = newest
            entries = decode_snapshot(bytes(file.contents), now_ms=0, expiration_ms=FOR_EVER_MS)
            kept = [
                each
                for each in entries
                if each.current_txn_first_offset != NO_OFFSET
                or places.get(each.producer_id, (each.epoch, each.last_sequence)) == (each.epoch, each.last_sequence)
            ]
            if len(kept) < len(entries):
                changed[path] = encode_producers(kept)
    return disk.with_files(changed, 0) if changed else disk


def _newest_snapshot(disk: StorageSnapshot, directory: str) -> tuple[str, FrozenFile] | None:
    """Return path and file of a log's newest producer snapshot; None if it has none."""
    node: object = disk.root
    for name in directory.strip("/").split("/"):
        node = node.get(name) if isinstance(node, dict) else None
    names = [name for name in node if name.endswith(SNAPSHOT_SUFFIX)] if isinstance(node, dict) else []
    if not names or not isinstance(node, dict):
        return None
    file = node[max(names)]
    assert isinstance(file, FrozenFile)
    return f"{directory}/{max(names)}", file


async def skip_ids(broker: Broker, living: Living) -> None:
    """Let a broker's cluster give no producer id that was given before."""
    session = broker.member.session
    while living.block:
        node = await session.get(znodes.PRODUCER_ID_BLOCK)
        if node.data and _last_id(node.data) >= _last_id(living.block):
            return
        try:
            await session.multi([SetData(znodes.PRODUCER_ID_BLOCK, living.block, node.version)])
            return
        except BadVersion:  # a broker has just reserved a block
            continue


def _last_id(block: bytes) -> int:
    return znodes.decode_producer_id_block(block)[1]
