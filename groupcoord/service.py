"""The group coordinator (Kafka's GroupCoordinatorService): the services of all group types, over the runtime of their shards.

Each group type has a `service.py`, and `administration.py` serves all of them. Their methods take the wire request and return
the wire response, or a `PendingAnswer` where others must be waited for: the other members, or a commit. A coroutine works off
a request about very many things, piece by piece. Heartbeats and plain fetches of offsets never wait. Checks that need no
group come there, before the question whether this broker is the coordinator at all, as in Kafka.

Another group type enters in `GROUP_TYPES`, and nowhere else in this folder.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import trio

from ottla.groupcoord.administration import GroupAdministration
from ottla.groupcoord.classic.manager import CLASSIC
from ottla.groupcoord.classic.service import ClassicService
from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.consumer.manager import CONSUMER
from ottla.groupcoord.consumer.service import ConsumerService
from ottla.groupcoord.group_settings import GroupSettingsSource
from ottla.groupcoord.manager import GroupType
from ottla.groupcoord.offsets.manager import OFFSETS
from ottla.groupcoord.offsets.service import OffsetService
from ottla.groupcoord.offsets.topics import Topics
from ottla.groupcoord.offsets.transactional import CommitVerifier, TransactionalOffsetService
from ottla.groupcoord.records import RecordFormats
from ottla.groupcoord.runtime.coordinator_runtime import Runtime, wall_clock_ms
from ottla.groupcoord.runtime.coordinator_shard import CoordinatorLog, ShardKind, TransactionEnd
from ottla.groupcoord.shard import GroupShards, Shard
from ottla.groupcoord.share.manager import SHARE
from ottla.groupcoord.share.offset_service import EndOffsets, SharePersister
from ottla.groupcoord.share.service import ShareService
from ottla.groupcoord.streams.manager import STREAMS
from ottla.groupcoord.streams.service import StreamsService
from ottla.groupcoord.topic_images import TopicImages
from ottla.wire.answers import Given
from ottla.wire.errors import ErrorCode

GROUP_TYPES: Final = (OFFSETS, CLASSIC, CONSUMER, SHARE, STREAMS)


class GroupTypes:
    """Record formats and properties of requests of all group types of a coordinator."""

    def __init__(self, types: Sequence[GroupType] = GROUP_TYPES) -> None:
        self.types = types
        self.formats = RecordFormats(record_format for each in types for record_format in each.formats)
        self.overlapping = frozenset(request for each in types for request in each.overlapping)
        self.gathered = frozenset(request for each in types for request in each.gathered)


class GroupCoordinator:
    """The groups of this broker and their committed offsets."""

    def __init__(
        self,
        config: GroupConfig,
        log: CoordinatorLog,
        topics: Topics,
        images: TopicImages,
        verifier: Callable[[], CommitVerifier],
        settings_of: GroupSettingsSource,
        share_ports: Callable[[], tuple[SharePersister, EndOffsets]],
        *,
        make_uuid: Callable[[], str] | None = None,
        wall_clock: Callable[[], int] = wall_clock_ms,
        types: GroupTypes | None = None,
        run_in_thread: Callable[..., Awaitable[Any]] = trio.to_thread.run_sync,
    ) -> None:
        """`share_ports`: the ports of share groups. It and `verifier` are called when they are first needed."""

        known = types or GroupTypes()

        def make() -> Shard:
            uuids = make_uuid or random_uuid
            return Shard(known.types, config, images, settings_of, make_uuid=uuids)

        self._config = config
        self._topics = topics
        self._images = images
        self._verifier = verifier
        self._share_ports = share_ports
        self._runtime = Runtime(shard_kind(known, make), log, wall_clock_ms=wall_clock, run_in_thread=run_in_thread)
        self._shards = GroupShards(self._runtime)
        self.offsets = OffsetService(self._shards, topics)
        self.administration = GroupAdministration(self._shards, lambda: self.share)
        self.classic = ClassicService(self._shards, config)

    # ------------------------------------------------------------------ services that few brokers need

    @cached_property
    def transactional_offsets(self) -> TransactionalOffsetService:
        return TransactionalOffsetService(self._shards, self._topics, self._verifier())

    @cached_property
    def consumer(self) -> ConsumerService:
        return ConsumerService(self._shards, self._config)

    @cached_property
    def share(self) -> ShareService:
        return ShareService(self._shards, self._images, *self._share_ports())

    @cached_property
    def streams(self) -> StreamsService:
        return StreamsService(self._shards)

    # ------------------------------------------------------------------ all kinds

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load, expire and commit until cancelled. Before and after, requests get COORDINATOR_NOT_AVAILABLE."""
        await self._runtime.run(task_status)

    def start_in(self, nursery: trio.Nursery) -> None:
        """Run in a nursery. Requests are served from now on, and not only when the task has begun."""
        self._runtime.start_in(nursery)

    def on_election(self, partition: int) -> None:
        """Load a partition of the offsets topic, which this broker leads from now on."""
        self._runtime.on_election(partition)

    def on_resignation(self, partition: int) -> None:
        """Unload a partition of the offsets topic, which this broker no longer leads."""
        self._runtime.on_resignation(partition)

    def end_transaction(self, partition: int, end: TransactionEnd) -> Given[ErrorCode]:
        """End a transaction that may have committed offsets here: they count from the commit of its marker on."""
        return self._runtime.end_transaction(partition, end)

    def partition_for(self, group_id: str) -> int:
        """The partition of the offsets topic whose leader coordinates the group."""
        return self._shards.partition_for(group_id)

    async def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Forget deleted topics: name -> topic id."""
        await self.offsets.on_topics_deleted(topics)
        await self.share.on_topics_deleted(frozenset(topics.values()))


def shard_kind(types: GroupTypes, make: Callable[[], Shard]) -> ShardKind[Shard]:
    """Shard kind for the runtime, of shards with groups of these types."""
    return ShardKind(
        topic="the offsets topic",
        make=make,
        encode=types.formats.encode_records,
        decode=types.formats.decode_record,
        # All others look at what is in force only at the commit, or end groups.
        may_overlap=lambda request: type(request) in types.overlapping,
        may_share_append=lambda request: type(request) in types.gathered,
        superseding=types.formats.superseding,
    )


def random_uuid() -> str:
    """A random UUID (version 4) in text form."""
    digits = bytearray(os.urandom(16))
    digits[6] = digits[6] & 0x0F | 0x40
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
