"""Producers whose clients live on across a restore: none is refused for what it has sent since, and none shares its id.

A client does not know that its records of the last minute never were. It goes on with sequence numbers that the partition of
the snapshot would take for a gap, and some clients never recover from that. So the partition forgets such a producer, and takes
as its next batch any that does not leave out more than the brokers had accepted: while the first of a client's batches on their
way is refused, as by a broker that is no leader yet, a later one must not be taken in its place. One that has sent nothing since
is known as before. One with transactions is known by its present number, because the end of a transaction lets an unknown one
begin at 0. Ids that were given since are not given again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import BadVersion, CoordinationError, SetData
from ottla.replication.log.names import SNAPSHOT_SUFFIX, parse_partition_directory, parse_segment_file
from ottla.replication.log.producers import (
    NO_OFFSET,
    SEQUENCE_MAX,
    BatchMetadata,
    CorruptSnapshot,
    ProducerEntry,
    decode_snapshot,
    encode_producers,
)

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.testing.memory.names import StorageSnapshot

FOR_EVER_MS = 2**62


class Place(NamedTuple):
    """Epoch of a producer and its next sequence number; whether it has transactions."""

    epoch: int
    sequence: int
    is_transactional: bool


Living = Mapping[tuple[str, int], Mapping[int, Place]]
"""Places of producers by topic and partition, and by their ids."""


def living_producers(brokers: Iterable[Broker]) -> Living:
    """Return what brokers that have ended knew of their producers."""
    replicas = [partition for broker in brokers for partition in broker.replicas.partitions()]
    living: dict[tuple[str, int], dict[int, Place]] = {}
    # Leaders come last, the latest leader of a partition at the end: they know more than their followers.
    for partition in sorted(replicas, key=lambda each: (each.is_leader, each.leader_epoch)):
        log = partition.log
        known = living.setdefault((log.topic, log.partition), {})
        # Those that have sent nothing since an earlier restore, and then those that have.
        known |= {
            id: Place(each.epoch, each.lowest_sequence, is_transactional=False)
            for id, each in log.producer_state().verifications.by_producer.items()
        }
        known |= {id: _place_of(each) for id, each in log.producers.items()}
    return living


def _place_of(entry: ProducerEntry) -> Place:
    is_transactional = entry.current_txn_first_offset != NO_OFFSET or entry.coordinator_epoch >= 0
    return Place(entry.epoch, (entry.last_sequence + 1) & SEQUENCE_MAX, is_transactional)


def without_those(disk: StorageSnapshot, living: Living) -> StorageSnapshot:
    """Return a disk whose logs do not know the producers that have sent since it was frozen, unless in a transaction."""
    if not any(living.values()):
        return disk
    changed: dict[str, bytes] = {}
    newest = {path.rpartition("/")[0]: (path, file) for path, file in disk.files() if path.endswith(SNAPSHOT_SUFFIX)}
    for directory, (path, file) in newest.items():
        name = parse_partition_directory(directory.rpartition("/")[2])
        snapshot_file = parse_segment_file(path.rpartition("/")[2])
        if name is not None and snapshot_file is not None and (places := living.get(name[:2])):
            try:
                entries = decode_snapshot(bytes(file.contents), now_ms=0, expiration_ms=FOR_EVER_MS)
            except CorruptSnapshot:  # which the broker removes when it starts
                continue
            kept = (_kept(each, places.get(each.producer_id), snapshot_file.offset) for each in entries)
            changed[path] = encode_producers([each for each in kept if each is not None])
    return disk.with_files(changed, 0)


def _kept(entry: ProducerEntry, place: Place | None, log_end_offset: int) -> ProducerEntry | None:
    """Return what the partition of a snapshot is to know of a producer that is in this place now; None for nothing."""
    if place is None or place[:2] == _place_of(entry)[:2]:
        return entry
    if not place.is_transactional and entry.current_txn_first_offset == NO_OFFSET:
        return None
    if place.epoch == entry.epoch:
        entry.batches = _batches_before(place, log_end_offset, entry.last_timestamp)
    return entry


def _batches_before(place: Place, log_end_offset: int, timestamp: int) -> list[BatchMetadata]:
    return [BatchMetadata(place.sequence - 1, log_end_offset, 0, timestamp)] if place.sequence else []


def expect(broker: Broker, living: Living) -> None:
    """Let the partitions of a broker refuse what comes out of order of the producers that they do not know."""
    now_ms = broker.now_ms()
    for partition in broker.replicas.partitions():
        log = partition.log
        for producer_id, place in living.get((log.topic, log.partition), {}).items():
            if producer_id in log.producers:
                continue
            producers = log.producer_state()
            if place.is_transactional:
                # The end of its transaction would let an unknown producer begin at 0 again.
                entry = producers.producers[producer_id] = ProducerEntry(producer_id)
                entry.epoch, entry.last_timestamp = place.epoch, now_ms
                entry.batches = _batches_before(place, log.log_end_offset, now_ms)
            else:
                # As of the first batches of a transaction, of which the earliest has to be written first.
                producers.verifications.start(
                    producer_id, place.sequence, place.epoch, supports_epoch_bump=False, now_ms=now_ms
                )


async def given_ids(brokers: Iterable[Broker]) -> bytes:
    """Return the block of producer ids that was given last; empty if none of the brokers knows."""
    for broker in brokers:
        try:
            return (await broker.member.session.get(znodes.PRODUCER_ID_BLOCK)).data
        except CoordinationError:  # it is cut off from the tree, so that it gives no ids
            continue
    return b""


async def skip_ids(broker: Broker, block: bytes) -> None:
    """Let a broker's cluster give no producer id of a block that was given before, nor of those before it."""
    session = broker.member.session
    while block:
        node = await session.get(znodes.PRODUCER_ID_BLOCK)
        if node.data and _last_id(node.data) >= _last_id(block):
            return
        try:
            await session.multi([SetData(znodes.PRODUCER_ID_BLOCK, block, node.version)])
            return
        except BadVersion:  # a broker has just reserved a block
            continue


def _last_id(block: bytes) -> int:
    return znodes.decode_producer_id_block(block)[1]
