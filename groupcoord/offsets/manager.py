"""The manager of a shard's committed offsets, of groups of every type, and of the end of groups.

A commit, a deletion and the retention ask the group whether they may (`Group`); without a group offsets belong to somebody
who keeps them here without being a member. Offsets come into force when they are committed, never before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from ottla.groupcoord.causes import note_commit_refused
from ottla.groupcoord.classic.rebalancing import ClassicGroup
from ottla.groupcoord.effects import (
    GROUPS_PER_SCAN,
    OFFSETS_PER_CALL,
    PIECE,
    RECORDS_PER_CALL,
    TEXT_LENGTH_MAX,
    Steps,
    TimerKey,
)
from ottla.groupcoord.group import Group, PartitionCheck, counted_members
from ottla.groupcoord.manager import GroupType, MetadataManager, ShardContext
from ottla.groupcoord.offsets.pending import CommittedOffset, Place
from ottla.groupcoord.offsets.table import (
    FORMATS,
    OffsetCommitKey,
    OffsetRecord,
    Offsets,
    OffsetsSnapshot,
    offset_tombstone,
    refused_commit,
)
from ottla.groupcoord.runtime.answers import Caller
from ottla.groupcoord.runtime.coordinator_shard import FORGETTING_REFUSED, Transaction
from ottla.wire.errors import ErrorCode
from ottla.wire.happenings import cut
from ottla.wire.messages.groups import DeletableGroupResult
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)

RETENTION = TimerKey("retention")
SETTLING = TimerKey("settling")

TXN_TOPIC_ID_VERSION = 6  # of TxnOffsetCommit
NEWER_FENCES = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.STALE_MEMBER_EPOCH})

_LOOKED, _NEXT_CALL = object(), object()


class DeleteGroup(NamedTuple):
    """Internal request to delete one group; a DeleteGroups request is split into these."""

    group_id: str


class FetchStableOffsets(NamedTuple):
    """Internal request for stable offsets. It is handled when all earlier commits are committed and replayed."""

    group: OffsetFetchRequestGroup

    @property
    def group_id(self) -> str:
        return self.group.group_id


class SnapshotOffsets(NamedTuple):
    """Internal request for a snapshot of all offsets of a group. The response is the snapshot, or an error response."""

    group: OffsetFetchRequestGroup
    require_stable: bool

    @property
    def group_id(self) -> str:
        return self.group.group_id


class CountOffsets(NamedTuple):
    """Internal request for the number of a group's committed offsets."""

    group_id: str


class ListCommitted:
    """Internal request for the committed offsets of all groups. `Offsets.all_committed` gives the response."""


class AskCommitted(NamedTuple):
    """Internal request for a group's committed offsets; the response is the live table: callers must not modify it."""

    group_id: str


class CommitInTransaction(NamedTuple):
    """Internal request to commit offsets in a verified transaction. They take effect when the transaction commits."""

    commit: OffsetCommitRequest
    transaction: Transaction

    @property
    def group_id(self) -> str:
        return self.commit.group_id


class ForgetTopics:
    """Internal request to delete some offsets of deleted topics (name -> id).

    The response is the number of offsets checked. Submit the same object again until it is 0: the object remembers how
    far it came.
    """

    __slots__ = ("topics", "walk")

    def __init__(self, topics: Mapping[str, bytes]) -> None:
        self.topics = topics
        self.walk: Iterator[Place | None] | None = None


class OffsetMetadataManager(MetadataManager):
    """Manager of a shard's committed offsets; also deletes groups of all types."""

    def __init__(self, context: ShardContext) -> None:
        self._config = context.config
        self._effects = context.effects
        self._groups = context.groups
        self._offsets = Offsets(
            metadata_max=context.config.offset_metadata_max_bytes,
            retention_ms=context.config.offsets_retention_minutes * 60_000,
        )
        self._retention_scan: list[str] = []
        self._expiry: Iterator[object] | None = None  # of the group that the scan has come to
        self._scans = 0
        self.requests = {
            OffsetCommitRequest: self._commit,
            CommitInTransaction: self._commit_in_transaction,
            OffsetDeleteRequest: self._delete,
            # The runtime handles these after the commits that came before are replayed, so what is known now is enough.
            FetchStableOffsets: lambda request, caller: self._effects.reply(
                caller, self._fetch(request.group, require_stable=True)
            ),
            SnapshotOffsets: lambda request, caller: self._effects.reply(caller, self._snapshot(request)),
            ForgetTopics: self._forget_topics,
            DeleteGroup: self._delete_group,
        }
        self.reads = {
            OffsetFetchRequestGroup: self._fetch,
            SnapshotOffsets: self._snapshot,
            CountOffsets: lambda asked: self._offsets.count(asked.group_id),
            AskCommitted: lambda asked: self._offsets.of_group(asked.group_id),
            ListCommitted: lambda _: self._offsets.all_committed(),
        }
        self.loads = self.commits = {OffsetCommitKey: self._replay}
        self.timers = {RETENTION.kind: self._scan_for_expired_offsets, SETTLING.kind: self._settle}
        self.lone_timers = (RETENTION,)

    def loaded(self) -> None:
        self._schedule_scan(self._config.offsets_retention_check_interval_ms)

    def _replay(self, record: OffsetRecord, record_offset: int, producer_id: int) -> None:
        group_id = record.key.group
        if record.value is not None and group_id not in self._groups:
            # Offsets without members: a simple group. Any kind of group may take its place.
            self._groups[group_id] = ClassicGroup(group_id, self._effects)
        self._offsets.replay(record, record_offset, producer_id)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        if self._offsets.replay_marker(producer_id, committed=committed):
            self._settle_soon()

    def _settle(self, key: TimerKey) -> None:
        """Settle a limited number of offsets of ended transactions, and schedule the next call if some are left."""
        if self._offsets.settle():
            self._settle_soon()

    def _settle_soon(self) -> None:
        # The one millisecond lets requests pass. A deadline that is there is kept, so that markers do not put it off.
        if self._effects.timers.deadline_ms(SETTLING) is None:
            self._effects.timers.schedule(SETTLING, self._effects.now_ms + 1)

    # ------------------------------------------------------------------ commit

    def _commit(self, request: OffsetCommitRequest, caller: Caller) -> None:
        self._commit_if(self._check_commit(request, caller.api_version), request, caller)

    def _commit_in_transaction(self, request: CommitInTransaction, caller: Caller) -> None:
        self._effects.transaction = request.transaction
        error = self._check_commit(request.commit, caller.api_version, is_transactional=True)
        # Producers know these errors since the version that has topic ids (KIP-1319).
        if error in NEWER_FENCES and caller.api_version < TXN_TOPIC_ID_VERSION:
            error = ErrorCode.ILLEGAL_GENERATION
        self._commit_if(error, request.commit, caller)

    def _commit_if(self, error: ErrorCode, request: OffsetCommitRequest, caller: Caller) -> None:
        if error:
            why = self._why_refused(request, error)
            is_known = request.group_id in self._groups
            note_commit_refused(self._effects, request.group_id, request.member_id, error, why, is_known=is_known)
            self._effects.reply(caller, refused_commit(request, error))
            return
        records, response = self._offsets.commit(request, self._effects.timestamp_ms)
        self._append_all(records)
        self._effects.answer(caller, response, lambda error: refused_commit(request, error))

    def _why_refused(self, request: OffsetCommitRequest, error: ErrorCode) -> str:
        """Return why a commit is refused, as the end of a sentence."""
        group, named = self._groups.get(request.group_id), request.generation_id_or_member_epoch
        if group is None:
            return f"it names generation {named}, and this coordinator knows no such group"
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            who = "its member is not in the group any more" if request.member_id else "it names no member"
            return f"{who}, and the group has {counted_members(len(group.members))}"
        if error is ErrorCode.FENCED_INSTANCE_ID:
            return f"its group.instance.id {cut(request.group_instance_id or '')!r} belongs to another member now"
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            return "the group rebalances, and the member does not know its partitions yet"
        current = getattr(group, "generation_id", None) or getattr(group, "group_epoch", named)
        return f"it names generation {named} where the group is at {current}"

    def _check_commit(
        self, request: OffsetCommitRequest, api_version: int, *, is_transactional: bool = False
    ) -> ErrorCode:
        if len(request.group_id) > TEXT_LENGTH_MAX:
            return ErrorCode.INVALID_GROUP_ID
        group = self._groups.get(request.group_id)
        generation_id = request.generation_id_or_member_epoch
        if group is None:
            if generation_id < 0:
                return ErrorCode.NONE  # somebody who keeps offsets here without being in a group
            is_told = is_transactional or api_version >= 9
            return ErrorCode.GROUP_ID_NOT_FOUND if is_told else ErrorCode.ILLEGAL_GENERATION
        checked = group.check_offset_commit(
            request.member_id,
            request.group_instance_id,
            generation_id,
            api_version=api_version,
            is_transactional=is_transactional,
        )
        return checked if isinstance(checked, ErrorCode) else self._check_partitions(request, checked)

    def _check_partitions(self, request: OffsetCommitRequest, check: PartitionCheck) -> ErrorCode:
        """Return the error of the first refused partition, else NONE. As in Kafka, an error fails the whole request."""
        for topic in request.topics:
            for partition in topic.partitions:
                # What is refused for its metadata is not committed anyway.
                if not self._offsets.is_too_large(partition.committed_metadata or "") and (
                    error := check(topic.topic_id, topic.name, partition.partition_index)
                ):
                    return error
        return ErrorCode.NONE

    # ------------------------------------------------------------------ fetch

    def _fetch(self, request: OffsetFetchRequestGroup, *, require_stable: bool = False) -> OffsetFetchResponseGroup:
        return self._refused_fetch(request) or self._offsets.fetch(request, require_stable=require_stable)

    def _refused_fetch(self, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup | None:
        group = self._groups.get(request.group_id)
        error = ErrorCode.NONE
        if group is not None:
            error = group.check_offset_fetch(request.member_id, request.member_epoch)
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=[], error_code=error) if error else None

    def _snapshot(self, request: SnapshotOffsets) -> OffsetsSnapshot | OffsetFetchResponseGroup:
        refused = self._refused_fetch(request.group)
        return refused or self._offsets.snapshot(request.group_id, require_stable=request.require_stable)

    # ------------------------------------------------------------------ deletion

    def _delete(self, request: OffsetDeleteRequest, caller: Caller) -> None:
        group = self._groups.get(request.group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_delete()
        if group is None or error:
            self._effects.reply(caller, OffsetDeleteResponse(error_code=error, topics=[]))
            return
        topics = [self._delete_topic(group, topic) for topic in request.topics]
        response = OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics)
        self._effects.answer(caller, response, lambda error: OffsetDeleteResponse(error_code=error, topics=[]))

    def _delete_topic(self, group: Group, topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
        """Delete the group's offsets of a topic, unless a member subscribes to the topic."""
        is_subscribed = group.is_subscribed_to(topic.name)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
        partitions = []
        for partition in topic.partitions:
            index = partition.partition_index
            partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))
            # Only what exists gets a tombstone. Otherwise a request could make the log grow at will.
            if not is_subscribed and self._offsets.has(group.group_id, topic.name, index):
                self._effects.append(offset_tombstone(group.group_id, topic.name, index))
        return OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)

    def _delete_group(self, request: DeleteGroup, caller: Caller) -> None:
        group_id = request.group_id
        group = self._groups.get(group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete()
        if group is not None and not error:
            self._effects.be_cuttable()
            self._effects.carry_on(self._delete_whole(group))
        response = DeletableGroupResult(group_id=group_id, error_code=error)
        self._effects.answer(caller, response, lambda error: DeletableGroupResult(group_id=group_id, error_code=error))

    def _delete_whole(self, group: Group) -> Steps:
        """Append the offsets' tombstones, then the group's. After a crash in between, the deletion can be repeated."""
        for number, place in enumerate(self._offsets.all_places_of(group.group_id), 1):
            self._effects.append(offset_tombstone(*place))
            if number % PIECE == 0:
                yield
        group.delete()

    def _forget_topics(self, request: ForgetTopics, caller: Caller) -> None:
        walk = request.walk or self._offsets.places_of_topics(request.topics)
        looked_at = 0
        # An offset that is committed and pending comes twice. One tombstone ends both.
        found: dict[Place, None] = {}
        for place in islice(walk, OFFSETS_PER_CALL):
            looked_at += 1
            if place is not None:
                found[place] = None
            if len(found) >= RECORDS_PER_CALL:
                break
        request.walk = walk if looked_at else None
        self._append_all(offset_tombstone(*place) for place in found)
        self._effects.answer(caller, looked_at, lambda error: FORGETTING_REFUSED)

    def _append_all(self, records: Iterable[OffsetRecord]) -> None:
        for record in records:
            self._effects.append(record)

    # ------------------------------------------------------------------ retention

    def _scan_for_expired_offsets(self, key: TimerKey) -> None:
        """Check some offsets for expiry. When all are checked, pause for offsets.retention.check.interval.ms."""
        if not self._retention_scan and self._expiry is None:
            # Ids, not groups: by the time that its turn comes a group may be gone, or another one of the same name.
            self._retention_scan = list(self._groups)
        self._scans += 1
        work = 0
        while work < OFFSETS_PER_CALL and len(self._effects.records) < RECORDS_PER_CALL:
            if self._expiry is None:
                if not self._retention_scan:
                    break
                self._expiry = self._expire_offsets(self._retention_scan.pop())
            step = next(self._expiry, None)
            if step is None:
                self._expiry = None
                work += OFFSETS_PER_CALL // GROUPS_PER_SCAN
            elif step is _NEXT_CALL:
                break
            else:
                work += 1
        is_done = not self._retention_scan and self._expiry is None
        # The one millisecond lets requests pass between two parts of a scan.
        self._schedule_scan(self._config.offsets_retention_check_interval_ms if is_done else 1)

    def _schedule_scan(self, pause_ms: int) -> None:
        self._effects.timers.schedule(RETENTION, self._effects.now_ms + pause_ms)

    def _expire_offsets(self, group_id: str) -> Iterator[object]:
        """Delete the group's expired offsets, then the group if it has no offsets left.

        Each step checks one offset, so that requests are handled in between.
        """
        group = self._groups.get(group_id)
        if group is None:
            return
        first_scan, kept = self._scans, False
        for _, topic, partition in self._offsets.places_of(group_id):
            committed = self._offsets.of_group(group_id).get(topic, {}).get(partition)
            if committed is None:
                continue
            if self._is_expired(group, topic, partition, committed):
                # `replay` removes the offset when the tombstone is committed.
                self._effects.append(offset_tombstone(group_id, topic, partition))
            else:
                kept = True
            yield _LOOKED
            # By now the group may be gone, or another one of the same name.
            if self._groups.get(group_id) is not group:
                return
        if self._scans != first_scan:
            # Offsets may have come since the first look. The next scan finds them, or that none is left.
            yield _NEXT_CALL
            kept = kept or bool(self._offsets.of_group(group_id)) or self._groups.get(group_id) is not group
        # The offsets of an open transaction may still come into force, so their group has to stay.
        if not kept and not self._offsets.has_pending(group_id) and group.is_forgettable:
            group.delete()

    def _is_expired(self, group: Group, topic: str, partition: int, committed: CommittedOffset) -> bool:
        since_ms = group.offsets_retained_since(committed.commit_timestamp_ms)
        return not (
            since_ms is None
            or not self._offsets.is_expired(committed, since_ms, self._effects.timestamp_ms)
            or group.is_subscribed_to(topic)
            or self._offsets.is_pending(group.group_id, topic, partition)
        )


OFFSETS = GroupType(
    make=OffsetMetadataManager,
    formats=FORMATS,
    # A commit looks at members alone, and changes none. So several may go into one append; but one that is part of a
    # transaction has a batch of its own.
    overlapping=frozenset({OffsetCommitRequest, CommitInTransaction}),
    gathered=frozenset({OffsetCommitRequest}),
)
