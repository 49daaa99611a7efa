"""How long single pieces of work hold the event loop: `python -m benchmarks.longest_hold [look_ups cuts offsets ...]`.

A probe task asks for its turn every millisecond, while another task does what is measured. It notes the longest time it
had to wait, and the most processor time the event loop's thread used between two turns, which says the same on a machine that
has other work to do. It needs some 200 MB in the system's temporary directory.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import trio

from ottla.groupcoord.classic.members import (
    GroupMetadataKey,
    GroupMetadataRecord,
    GroupMetadataValue,
    MemberMetadata,
)
from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.group_settings import GroupSettings
from ottla.groupcoord.offsets.table import OffsetCommitKey, OffsetCommitValue, OffsetRecord
from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.runtime.coordinator_shard import Outcome, whole_batch
from ottla.groupcoord.runtime.loading import replay_log
from ottla.groupcoord.service import GroupCoordinator, GroupTypes, random_uuid, shard_kind
from ottla.groupcoord.shard import Shard
from ottla.groupcoord.topic_images import TopicImage
from ottla.replication.cluster.metadata_cache import BrokerEndpoint, BrokerRegistration
from ottla.replication.config import LogConfig
from ottla.replication.controller.decisions import Decision, Sender, Steps
from ottla.replication.controller.partition_states import PartitionStates
from ottla.replication.log.cleaner import LogCleaner
from ottla.replication.log.compaction import Limits
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.recovery import LoadOptions
from ottla.replication.log.storage import LogDirectory, OsStorage
from ottla.replication.partition.partition import Partition
from ottla.server.api.handlers.list_offsets import list_offsets
from ottla.server.cluster.controller.controller_channel_manager import VERSIONS
from ottla.server.coordinators.coordinator_log import InternalTopicLog
from ottla.server.dispatch.context import RequestContext
from ottla.server.launch.running import settle_interpreter
from ottla.wire.compression import Compression
from ottla.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record
from ottla.wire.time_slice import TimeSlice

NOW_MS = 1_700_000_000_000
SEGMENTS = 2_000
PRODUCERS = 100_000
OFFSETS = 1_000_000
MEMBERS = 10_000
Work = Callable[[], Awaitable[object]]


async def measure(what: str, work: Work) -> None:
    """Print how long `work` took and held the loop at most."""
    longest = busiest = 0.0
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def probe() -> None:
                nonlocal longest, busiest
                while True:
                    before, worked = time.perf_counter(), time.thread_time()
                    await trio.sleep(0.001)
                    longest = max(longest, time.perf_counter() - before - 0.001)
                    busiest = max(busiest, time.thread_time() - worked)

            nursery.start_soon(probe)
            await trio.sleep(0.01)
            started, computed = time.perf_counter(), time.process_time()
            await work()
            took, computed = time.perf_counter() - started, time.process_time() - computed
            await trio.sleep(0.002)
            scope.cancel()
    print(
        f"{what:75} {took * 1000:8.1f} ms, {computed * 1000:8.1f} of a processor;"
        f" longest wait {longest * 1000:6.1f} ms, of which work {busiest * 1000:5.1f} ms"
    )


def new_log(root: Path, name: str, **config: Any) -> PartitionLog:
    """An empty log on the disk."""
    return PartitionLog.create(
        LogDirectory(str(root), OsStorage()), name, 0, LogConfig(**config), topic_id=None, now_ms=NOW_MS
    )


def append(log: PartitionLog, *records: Record, **options: Any) -> None:
    """Append one batch."""
    log.append_as_leader(memoryview(bytearray(encode_batch(records, **options))), leader_epoch=0, now_ms=NOW_MS)


async def look_ups(root: Path) -> None:
    """Ask 100 partitions with ordinary compressed batches for a time."""
    records = [Record(n, NOW_MS + n // 200, b"key%d" % n, b"value %08d " % n * 6) for n in range(9_000)]
    partitions = []
    for index in range(100):
        log = new_log(root, f"times{index}")
        append(log, *records, compression=Compression.ZSTD)
        partition = Partition("t", index, log, local_id=1)
        partition.make_leader(leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,))
        partitions.append(partition)
    broker = SimpleNamespace(partition=lambda topic, index: partitions[index])
    for what, timestamp in (("by time", NOW_MS + 40), ("max timestamp", -3)):
        wishes = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in range(100)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=wishes)])

        async def ask(request: ListOffsetsRequest = request) -> None:
            await cast(Any, list_offsets(request, RequestContext(cast(Any, broker), api_version=7)))

        await measure(f"ListOffsets {what}: 100 partitions, batches of 9,000 records, zstd", ask)


async def cuts(root: Path) -> None:
    """Cut one record off a log of idempotent batches."""
    log = new_log(root, "cut")
    for sequence in range(100_000):
        append(log, Record(0, NOW_MS, b"k", b"v" * 300), producer_id=7, producer_epoch=0, base_sequence=sequence)

    async def cut() -> None:
        truncation = log.prepare_truncation(99_999, now_ms=NOW_MS)
        assert truncation is not None
        await trio.to_thread.run_sync(truncation.run)
        log.truncate_to(99_999, now_ms=NOW_MS, truncation=truncation)

    await measure(f"Truncation: {log.size_in_bytes >> 20} MB, 100,000 idempotent batches in one segment", cut)


async def producers(root: Path) -> None:
    """Roll and expire with very many producers."""
    log = new_log(root, "producers")
    for producer_id in range(PRODUCERS):
        append(log, Record(0, NOW_MS, b"k", b"v"), producer_id=producer_id, producer_epoch=0, base_sequence=0)

    async def roll() -> None:
        log.roll(NOW_MS)
        job = log.prepare_flush(include_active=False)
        assert job is not None
        await trio.to_thread.run_sync(job.run)
        log.finish_flush(job)

    async def expire() -> None:
        time_slice = TimeSlice()
        for _ in log.remove_expired_producers(NOW_MS, 86_400_000):
            await time_slice.yield_if_over()

    await measure(f"Roll and flush with {PRODUCERS:,} producers", roll)
    await measure(f"Looking for expired ones among {PRODUCERS:,} producers", expire)


async def retention(root: Path) -> None:
    """Give up very many segments, after a restart."""
    log = new_log(root, "segments", retention_ms=1000)
    for _ in range(SEGMENTS):
        append(log, Record(0, NOW_MS, b"k", b"v"))
        log.roll(NOW_MS)
    log.flush()
    log.close()
    options = LoadOptions(had_clean_shutdown=True, recovery_point=log.log_end_offset, now_ms=NOW_MS)
    log = PartitionLog.load(LogDirectory(str(root), OsStorage()), "segments-0", log.config, options)

    async def give_up() -> None:
        time_slice = TimeSlice()
        while log.delete_old_segments(NOW_MS + 10_000_000, log.log_end_offset, limit=16):
            await time_slice.yield_if_over()

    await measure(f"Retention of {SEGMENTS:,} expired segments, first look", give_up)


async def compaction(root: Path) -> None:
    """Compact very many small segments, small batches, and large ones."""
    settings = {"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.0, "max_message_bytes": 100 << 20}
    for segments, batches, records in ((SEGMENTS, 1, 1), (3, 50_000, 1), (3, 2, 100_000)):
        log = new_log(root, f"compacted-{batches}-{records}", **settings)
        for number in range(segments):
            for batch in range(batches):
                keys = range(batch * records + number, (batch + 1) * records + number)
                append(log, *(Record(0, NOW_MS, b"key %d" % key, b"v" * 60) for key in keys))
            log.roll(NOW_MS)
        log.flush()
        cleaner = LogCleaner(trio.to_thread.run_sync, lambda: NOW_MS)

        async def clean(cleaner: LogCleaner = cleaner, log: PartitionLog = log) -> None:
            found = cleaner.look_at(log, log.log_end_offset, log.log_end_offset)
            assert found is not None
            assert await cleaner.clean(found, Limits(100 << 20, 256 << 10))

        what = f"Compaction: segments: {segments:,}, batches of each: {batches:,}, records of each: {records:,}"
        await measure(what, clean)


async def offsets(root: Path) -> None:
    """Load very many committed offsets, as a broker does that becomes the coordinator of their groups."""
    types = GroupTypes()
    for batch_records, of_group in ((500, 1000), (1, 1000), (1, 1)):
        log = new_log(root, f"offsets-{batch_records}-{of_group}")
        encoded = (types.formats.encode_record(committed(number, of_group)) for number in range(OFFSETS))
        records = [Record(number, NOW_MS, *each) for number, each in enumerate(encoded)]
        for first in range(0, OFFSETS, 1000):
            starts = range(first, first + 1000, batch_records)
            batches = [encode_batch(records[each : each + batch_records], base_offset=each) for each in starts]
            log.append_as_follower(memoryview(bytearray(b"".join(batches))), now_ms=NOW_MS)
        broker = SimpleNamespace(
            partition=lambda topic, index, log=log: SimpleNamespace(log=log),
            environment=SimpleNamespace(run_in_thread=trio.to_thread.run_sync),
        )
        topic = InternalTopicLog(
            cast(Any, broker),
            "__consumer_offsets",
            partitions_wanted=int,
            commit_timeout_ms=int,
            load_codecs=types.formats.load_codecs,
        )
        # Offsets ask neither for topics nor for the settings of groups.
        nobody = cast(Any, None)
        make_shard = partial(Shard, types.types, GroupConfig(), nobody, nobody, make_uuid=random_uuid)
        kind = shard_kind(types, make_shard)

        async def load(kind: Any = kind, topic: InternalTopicLog = topic) -> None:
            shard = kind.make()
            await replay_log(kind, shard, topic.partition(0), trio.to_thread.run_sync)
            time_slice = TimeSlice()
            for _ in shard.start_sessions(0):
                await time_slice.yield_if_over()
            shard.loaded(now_ms=0, timestamp_ms=NOW_MS)

        del records
        groups = OFFSETS // of_group
        what = f"Loading {OFFSETS:,} offsets of {groups:,} groups, {batch_records} in a batch, {log.size_in_bytes >> 20} MB"
        await measure(what, load)


async def controlling(root: Path) -> None:
    """Decide about 10,000 partitions as a controller does, and make what is sent to three brokers."""
    states = PartitionStates(controller_epoch=1, is_unclean=lambda topic: False)
    for node_id in (1, 2, 3):
        states.load_broker(member_of_cluster(node_id, 1))
    for number in range(100):
        replicas = [[1 + index % 3, 1 + (index + 1) % 3, 1 + (index + 2) % 3] for index in range(100)]
        states.commit(Decision(changes=(states.create_topic(f"topic{number}", bytes(16), replicas, {}),)))
    ids = dict.fromkeys(states.topics, bytes(16))
    sender = Sender(controller_id=1, controller_epoch=1, listener="PLAINTEXT", brokers=states.brokers, topic_ids=ids)
    for what, decide in (
        ("a new controller", states.start),
        ("a controlled shutdown", lambda: states.controlled_shutdown(2, -1)),
        ("a broker that goes", lambda: states.brokers_down([2])),
        ("a broker that comes", lambda: states.brokers_up([member_of_cluster(2, 2)])),
    ):

        async def carry_out(decide: Callable[[], Steps[Decision]] = decide) -> None:
            for part in (await TimeSlice().take(decide())).parts():
                part.operations(1)
                await trio.lowlevel.checkpoint()
                batch = states.commit(part)
                for receiver in batch.receivers():
                    for request in await TimeSlice().take(sender.requests(batch, receiver)):
                        await trio.lowlevel.checkpoint()
                        request.encode(VERSIONS[type(request)])

        await measure(f"10,000 partitions: {what}", carry_out)


async def groups(root: Path) -> None:
    """Let one very large group go over to another protocol and back, and give its members their partitions."""
    log = new_log(root, "groups")
    types = GroupTypes()
    batch = whole_batch(Outcome([classic_members(MEMBERS)], [], []), types.formats.encode_records, NOW_MS)
    log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=0, now_ms=NOW_MS)
    partition = Partition("__consumer_offsets", 0, log, local_id=1)
    partition.make_leader(leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,))
    broker = SimpleNamespace(
        partition=lambda topic, index: partition,
        cluster=SimpleNamespace(topics={}),
        is_in_cluster=False,
        member=SimpleNamespace(is_fenced=False),
        now_ms=lambda: NOW_MS,
        environment=SimpleNamespace(run_in_thread=trio.to_thread.run_sync),
    )
    topic = InternalTopicLog(
        cast(Any, broker),
        "__consumer_offsets",
        partitions_wanted=lambda: 1,
        commit_timeout_ms=int,
        load_codecs=types.formats.load_codecs,
    )
    image = TopicImage("t", bytes(15) + b"t", (frozenset(),) * MEMBERS)
    images = SimpleNamespace(
        version=1, image=lambda name: image, image_by_id=lambda topic_id: image, topic_names=lambda: ["t"]
    )
    nobody = cast(Any, None)
    coordinator = GroupCoordinator(
        GroupConfig(group_initial_rebalance_delay_ms=0),
        topic,
        nobody,
        cast(Any, images),
        nobody,
        lambda group_id: GroupSettings(),
        nobody,
        wall_clock=lambda: NOW_MS,
        run_in_thread=trio.to_thread.run_sync,
        types=types,
    )

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():
            await trio.sleep(0.001)

    def beat(epoch: int) -> Awaitable[object]:
        request = ConsumerGroupHeartbeatRequest(group_id="group", member_id="new", member_epoch=epoch)
        request.rebalance_timeout_ms, request.subscribed_topic_names, request.topic_partitions = 60_000, ["t"], []
        return finished(coordinator.consumer.heartbeat(request, api_version=1, client_id="", client_host="/"))

    async with trio.open_nursery() as nursery:
        await nursery.start(coordinator.run)
        coordinator.on_election(0)
        served = coordinator._runtime.led_partition(0)
        await measure(f"A classic group of {MEMBERS:,} members is loaded", partial(until, lambda: not served.absent))

        async def come() -> None:
            await beat(0)
            group: Any = served.shard(0)._groups["group"]
            await until(lambda: group.assignment_epoch == group.group_epoch)

        await measure("It becomes a consumer group, and its members are assigned", come)
        await measure("It becomes a classic group again", partial(beat, -1))
        assert served.shard(0)._groups["group"].group_type == "classic"
        nursery.cancel_scope.cancel()


def classic_members(count: int) -> GroupMetadataRecord:
    """The record of a stable classic group whose members have a partition each."""
    subscription = b"\0\1" + ConsumerProtocolSubscription(topics=["t"]).encode(1)
    members = []
    for number in range(count):
        shares = [TopicPartition(topic="t", partitions=[number])]
        members.append(
            MemberMetadata(
                member_id=f"consumer-{random_uuid()}",
                client_id="consumer",
                client_host="/127.0.0.1",
                rebalance_timeout=60_000,
                session_timeout=60_000,
                subscription=subscription,
                assignment=b"\0\1" + ConsumerProtocolAssignment(assigned_partitions=shares).encode(1),
            )
        )
    value = GroupMetadataValue(
        protocol_type="consumer", generation=5, protocol="range", leader=members[0].member_id, members=members
    )
    return GroupMetadataRecord(GroupMetadataKey(group="group"), value)


def member_of_cluster(node_id: int, epoch: int) -> BrokerRegistration:
    endpoint = BrokerEndpoint(node_id, f"host{node_id}", 9092)
    return BrokerRegistration(node_id, {"PLAINTEXT": endpoint}, None, epoch, {"PLAINTEXT": 0})


def committed(number: int, of_group: int) -> OffsetRecord:
    key = OffsetCommitKey(
        group=f"group {number // of_group}", topic=f"topic {number // 100 % 10}", partition=number % 100
    )
    return OffsetRecord(key, OffsetCommitValue(offset=number, metadata="", commit_timestamp=NOW_MS))


WORK = {
    work.__name__: work for work in (look_ups, cuts, producers, retention, compaction, offsets, groups, controlling)
}


async def main(*names: str) -> None:
    settle_interpreter()  # as the broker's process does
    with tempfile.TemporaryDirectory() as root:
        for name in names or WORK:
            await WORK[name](Path(root))


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
