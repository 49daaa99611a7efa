"""One partition of `__consumer_offsets`: all groups whose id falls to it, their offsets and their deadlines. Sans-IO.

The shell's duties, in this order: replay the partition's records, then `loaded`. For every request `handle`, at
`next_deadline_ms` `expire`; append what an outcome holds, call `settle`, and `replay` it when it is committed. Between an
outcome with records and its settlement only `heartbeat` and reads are allowed, except that outcomes of offset commits
alone may be collected into one append.

Offsets and the end of groups change by `replay` only, so that whoever reads an offset reads a committed one. A living
group is ahead of its own record: most of a rebalance is in no record, and the next request has to find it
(`ottla.groupcoord.groups.classic.rebalancing`). So its records are replayed at load only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.groups.classic.group import DEAD, EMPTY, GROUP_TYPE, JOIN, SESSION, SYNC
from ottla.groupcoord.groups.classic.rebalancing import TEXT_LENGTH_MAX, ClassicGroup, refused_join, refused_sync
from ottla.groupcoord.groups.effects import Effects
from ottla.groupcoord.groups.offsets import Offsets, refused_commit
from ottla.groupcoord.groups.records import GroupRecord, OffsetRecord, group_tombstone, offset_tombstone
from ottla.groupcoord.groups.timers import TimerKey
from ottla.groupcoord.runtime.outcome import Caller, Outcome, Reply, Settlement
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeletableGroupResult
from ottla.wire.messages.describe_groups import DescribedGroup
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ottla.wire.messages.list_groups import ListedGroup
from ottla.wire.messages.offset_commit import OffsetCommitRequest
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from ottla.wire.messages.sync_group import SyncGroupRequest

RETENTION = TimerKey("retention")
RECORDS_PER_CALL = 500
TIMERS_PER_CALL = 100
GROUPS_PER_SCAN = 100
"""What one call may do at most, so that nobody waits long behind it; the rest is due at once."""


FORGETTING_REFUSED = -1
"""In place of how many offsets of deleted topics were dropped."""


class DeleteGroup:
    """The request to delete one group: a DeleteGroups request is split into these."""

    __slots__ = ("group_id",)

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id


class FetchStableOffsets:
    """The request for offsets that takes its place behind the commits before it."""

    __slots__ = ("group",)

    def __init__(self, group: OffsetFetchRequestGroup) -> None:
        self.group = group


class ForgetTopics:
    """The request to drop some of the offsets of deleted topics (name -> topic id); answered with how many that were."""

    __slots__ = ("topics",)

    def __init__(self, topics: Mapping[str, bytes]) -> None:
        self.topics = topics


Request = (
    JoinGroupRequest
    | SyncGroupRequest
    | LeaveGroupRequest
    | OffsetCommitRequest
    | OffsetDeleteRequest
    | DeleteGroup
    | FetchStableOffsets
    | ForgetTopics
)


class Shard:
    """The groups of one partition; see the module's docstring."""

    def __init__(self, config: GroupConfig, *, make_uuid: Callable[[], str]) -> None:
        self._config = config
        self._effects = Effects(config, make_uuid)
        self._groups: dict[str, ClassicGroup] = {}
        self._offsets = Offsets(
            metadata_max=config.offset_metadata_max_bytes,
            retention_ms=config.offsets_retention_minutes * 60_000,
        )
        self._retention_scan: list[str] = []
        self._is_loaded = False
        self._handlers: dict[type, Callable[..., None]] = {
            JoinGroupRequest: self._join,
            SyncGroupRequest: self._sync,
            LeaveGroupRequest: self._leave,
            OffsetCommitRequest: self._commit_offsets,
            OffsetDeleteRequest: self._delete_offsets,
            DeleteGroup: self._delete_group,
            FetchStableOffsets: self._fetch_stable_offsets,
            ForgetTopics: self._forget_topics,
        }

    # ------------------------------------------------------------------ the shell's calls

    def handle(self, request: Request, caller: Caller, *, now_ms: int, timestamp_ms: int) -> Outcome[GroupRecord]:
        """Take a request in. It may be answered by this outcome, by its settlement, or by a later one (if parked)."""
        self._begin(now_ms, timestamp_ms)
        self._handlers[type(request)](request, caller)
        return self._effects.take()

    def abandon(self, caller: Caller, *, now_ms: int, timestamp_ms: int) -> Outcome[GroupRecord]:
        """Nobody waits for the answer of this parked caller any more."""
        self._begin(now_ms, timestamp_ms)
        group = self._groups.get(caller.parked_group_id)
        if group is not None:
            group.abandon(caller)
        return self._effects.take()

    def settle(
        self, settlements: Iterable[Settlement], error: ErrorCode, *, now_ms: int, timestamp_ms: int
    ) -> list[Reply]:
        """The records of these settlements are committed and replayed, or were not appended because of `error`."""
        self._begin(now_ms, timestamp_ms)
        for settlement in settlements:
            settlement(error)
        # A settlement only replies and moves states: nobody would append a record that is made here.
        records, replies, more = self._effects.take()
        assert not records and not more
        return replies

    def next_deadline_ms(self) -> int | None:
        """When `expire` should be called; may be early."""
        return self._effects.timers.next_deadline_ms()

    def stands_alone(self, now_ms: int) -> bool:
        """Whether something is due that looks at committed offsets."""
        deadline_ms = self._effects.timers.deadline_ms(RETENTION)
        return deadline_ms is not None and deadline_ms <= now_ms

    def expire(self, *, now_ms: int, timestamp_ms: int) -> Outcome[GroupRecord]:
        """Do what is due. When much is due, some of it stays due."""
        self._begin(now_ms, timestamp_ms)
        for _ in range(TIMERS_PER_CALL):
            key = self._effects.timers.pop_due(now_ms)
            if key is None:
                break
            self._expire(key)
            if len(self._effects.records) >= RECORDS_PER_CALL:
                break
        return self._effects.take()

    def _begin(self, now_ms: int, timestamp_ms: int) -> None:
        self._effects.now_ms = now_ms
        self._effects.timestamp_ms = timestamp_ms

    # ------------------------------------------------------------------ loading and unloading

    def replay(self, record: GroupRecord, record_offset: int = -1, producer_id: int = -1) -> None:
        """Take over a record of the log, in the order of the log."""
        group_id = record.key.group
        if isinstance(record, OffsetRecord):
            if record.value is not None and group_id not in self._groups:  # offsets without members: a simple group
                self._groups[group_id] = ClassicGroup(group_id, self._effects)
            self._offsets.replay(record, record_offset, producer_id)
        elif record.value is None:
            group = self._groups.pop(group_id, None)
            # Deadlines know a group by its id only. They would hit the next group of that name.
            if group is not None:
                group.cancel_timers()
        # After the load the group in memory is ahead of its records.
        elif not self._is_loaded:
            self._groups[group_id] = ClassicGroup.of_record(group_id, record.value, self._effects)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """Take over the end of a transaction."""
        self._offsets.replay_marker(producer_id, committed=committed)

    def loaded(self, *, now_ms: int, timestamp_ms: int) -> Outcome[GroupRecord]:
        """All records were replayed: start the clocks."""
        self._begin(now_ms, timestamp_ms)
        # From here on `replay` leaves living groups alone.
        self._is_loaded = True
        for _ in self.start_sessions(now_ms):
            pass
        for group in self._groups.values():
            group.shrink_to_size()
        self._effects.timers.schedule(RETENTION, now_ms + self._config.offsets_retention_check_interval_ms)
        return self._effects.take()

    def start_sessions(self, now_ms: int) -> Iterator[None]:
        """Every member gets a whole session; others may have a turn whenever this yields."""
        # A copy, because groups come and go whenever this yields.
        for number, group in enumerate(list(self._groups.values()), 1):
            # Another call may have set its own time since the last yield.
            self._effects.now_ms = now_ms
            group.start_sessions()
            if number % GROUPS_PER_SCAN == 0:
                yield

    def discard(self) -> Outcome[GroupRecord]:
        """What a call that did not end has collected."""
        return self._effects.take()

    def unload(self, error: ErrorCode) -> list[Reply]:
        """This broker no longer coordinates these groups: answer everyone who is parked. The shard is done with."""
        for group in self._groups.values():
            group.unload(error)
        return self._effects.take().replies

    # ------------------------------------------------------------------ reads, allowed at any time

    def heartbeat(self, request: HeartbeatRequest, *, now_ms: int) -> ErrorCode:
        group = self._groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        # The time of day is not needed: a heartbeat writes nothing.
        self._effects.now_ms = now_ms
        return group.heartbeat(request)

    def offset_count(self, group_id: str) -> int:
        """How many offsets a group has committed."""
        return self._offsets.count(group_id)

    def fetch_offsets(self, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        return self._offsets.fetch(request, require_stable=False)

    def describe(self, group_id: str, api_version: int) -> DescribedGroup:
        """Since version 6 an unknown group is an error; before it is a dead group."""
        group = self._groups.get(group_id)
        if group is not None:
            return group.described()
        if api_version < 6:
            return undescribed(group_id, ErrorCode.NONE, state=DEAD.value)
        return undescribed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.", state=DEAD.value)

    @property
    def group_count(self) -> int:
        """How many groups there are."""
        return len(self._groups)

    def list_groups(self, is_wanted: Callable[[ClassicGroup], bool], *, at_once: int) -> Iterator[list[ListedGroup]]:
        """The groups that are wanted, in parts. Groups that come or go between two parts are left out."""
        groups = list(self._groups.values())
        for start in range(0, len(groups), at_once):
            yield [
                group.listed()
                for group in groups[start : start + at_once]
                if is_wanted(group) and self._groups.get(group.group_id) is group
            ]

    # ------------------------------------------------------------------ membership

    def _join(self, request: JoinGroupRequest, caller: Caller) -> None:
        group = self._groups.get(request.group_id)
        if group is not None:
            group.join(request, caller)
        elif request.member_id:
            # Nobody can be a member of a group that does not exist.
            response = refused_join(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID, caller.api_version)
            self._effects.reply(caller, response)
        else:
            self._join_new_group(ClassicGroup(request.group_id, self._effects), request, caller)

    def _join_new_group(self, group: ClassicGroup, request: JoinGroupRequest, caller: Caller) -> None:
        """The group exists from now on, even if this join is refused."""
        # As in Kafka the group is made even if it refuses the join. A refusal with MEMBER_ID_REQUIRED needs it,
        # because the group remembers the id that it hands out.
        group.join(request, caller)

        def settle(error: ErrorCode) -> None:
            if error:
                # The log has refused the group's first record, so there never was a group. Whoever is parked in it
                # hears why.
                group.unload(error)
                group.cancel_timers()
                del self._groups[group.group_id]

        # Not left to `replay`, which does not bring a group to life after the load.
        self._groups[group.group_id] = group
        self._effects.append(group.creation_record(), settle)

    def _sync(self, request: SyncGroupRequest, caller: Caller) -> None:
        group = self._groups.get(request.group_id)
        if group is None:
            self._effects.reply(caller, refused_sync(ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            group.sync(request, caller)

    def _leave(self, request: LeaveGroupRequest, caller: Caller) -> None:
        group = self._groups.get(request.group_id)
        if group is not None:
            group.leave(request, caller)
            return
        members = [
            MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
            for each in request.members
        ]
        self._effects.reply(caller, LeaveGroupResponse(error_code=ErrorCode.NONE, members=members))

    # ------------------------------------------------------------------ offsets and deletion

    def _commit_offsets(self, request: OffsetCommitRequest, caller: Caller) -> None:
        error = self._check_commit(request, caller.api_version)
        if error:
            self._effects.reply(caller, refused_commit(request, error))
            return
        records, response = self._offsets.commit(request, self._effects.timestamp_ms)
        for record in records:
            self._effects.append(record)
        self._effects.answer(caller, response, lambda error: refused_commit(request, error))

    def _check_commit(self, request: OffsetCommitRequest, api_version: int) -> ErrorCode:
        if len(request.group_id) > TEXT_LENGTH_MAX:
            return ErrorCode.INVALID_GROUP_ID
        group = self._groups.get(request.group_id)
        generation_id = request.generation_id_or_member_epoch
        if group is not None:
            return group.check_offset_commit(request.member_id, request.group_instance_id, generation_id)
        if generation_id < 0:
            return ErrorCode.NONE  # somebody who keeps offsets here without being in a group
        return ErrorCode.GROUP_ID_NOT_FOUND if api_version >= 9 else ErrorCode.ILLEGAL_GENERATION

    def _fetch_stable_offsets(self, request: FetchStableOffsets, caller: Caller) -> None:
        # The shell handles this after the commits that came before it are replayed, so what is known now is enough.
        self._effects.reply(caller, self._offsets.fetch(request.group, require_stable=True))

    def _delete_offsets(self, request: OffsetDeleteRequest, caller: Caller) -> None:
        group = self._groups.get(request.group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_delete()
        if group is None or error:
            self._effects.reply(caller, OffsetDeleteResponse(error_code=error, topics=[]))
            return
        topics = [self._delete_topic_offsets(group, topic) for topic in request.topics]
        response = OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics)
        self._effects.answer(caller, response, lambda error: OffsetDeleteResponse(error_code=error, topics=[]))

    def _delete_topic_offsets(self, group: ClassicGroup, topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
        """Offsets of a topic that the group reads at present stay."""
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
        if not error:
            # The group's own tombstone comes last. After a crash in between the group is still there to be deleted
            # again.
            self._append_all(self._offsets.tombstones_of_group(group_id))
            self._effects.append(group_tombstone(group_id))
        response = DeletableGroupResult(group_id=group_id, error_code=error)
        self._effects.answer(caller, response, lambda error: DeletableGroupResult(group_id=group_id, error_code=error))

    def _forget_topics(self, request: ForgetTopics, caller: Caller) -> None:
        # Not all at once: the service asks again until none is left.
        records = self._offsets.tombstones_of_topics(request.topics, RECORDS_PER_CALL)
        self._append_all(records)
        self._effects.answer(caller, len(records), lambda error: FORGETTING_REFUSED)

    def _append_all(self, records: Iterable[OffsetRecord]) -> None:
        for record in records:
            self._effects.append(record)

    # ------------------------------------------------------------------ deadlines

    def _expire(self, key: TimerKey) -> None:
        if key == RETENTION:
            self._scan_for_expired_offsets()
            return
        group = self._groups.get(key.group_id)
        if group is None:
            return
        if key.kind == SESSION:
            group.expire_session(key.member_id)
        elif key.kind == JOIN:
            group.expire_join()
        elif key.kind == SYNC:
            group.expire_sync()

    def _scan_for_expired_offsets(self) -> None:
        """Look at some more groups; when all were looked at, rest for offsets.retention.check.interval.ms."""
        if not self._retention_scan:
            # Ids, not groups: by the time that its turn comes a group may be gone, or another one of the same name.
            self._retention_scan = list(self._groups)
        for _ in range(GROUPS_PER_SCAN):
            if not self._retention_scan or len(self._effects.records) >= RECORDS_PER_CALL:
                break
            group = self._groups.get(self._retention_scan.pop())
            if group is not None:
                self._expire_offsets(group)
        # The one millisecond lets requests pass between two parts of a scan.
        pause_ms = 1 if self._retention_scan else self._config.offsets_retention_check_interval_ms
        self._effects.timers.schedule(RETENTION, self._effects.now_ms + pause_ms)

    def _expire_offsets(self, group: ClassicGroup) -> None:
        """Drop the offsets whose time is up, and an empty group that keeps none."""
        group_id, timestamp_ms = group.group_id, self._effects.timestamp_ms
        # The offsets of an open transaction may still come into force, so their group has to stay.
        kept = self._offsets.has_pending(group_id)
        for topic, partitions in self._offsets.of_group(group_id).items():
            is_subscribed = group.is_subscribed_to(topic)
            for partition, committed in partitions.items():
                since_ms = group.offsets_retained_since(committed.commit_timestamp_ms)
                if (
                    is_subscribed
                    or since_ms is None
                    or not self._offsets.is_expired(committed, since_ms, timestamp_ms)
                    or self._offsets.is_pending(group_id, topic, partition)
                ):
                    kept = True
                else:
                    # `replay` removes the offset when the tombstone is committed.
                    self._effects.append(offset_tombstone(group_id, topic, partition))
        # A client that was handed a member id comes back with it any moment.
        if not kept and group.state is EMPTY and not group.members.pending_join:
            self._effects.append(group_tombstone(group_id))


def undescribed(group_id: str, error: ErrorCode, message: str | None = None, *, state: str = "") -> DescribedGroup:
    """The description of a group about which there is nothing to say."""
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )


def in_listing(states: Iterable[str], types: Iterable[str]) -> Callable[[ClassicGroup], bool]:
    """Whether a group is in one of these states and of one of these types; none given means all. Case does not matter."""
    wanted = {state.strip().lower() for state in states}
    wanted_types = {each.lower() for each in types}
    # All groups here are of the classic type.
    if wanted_types and GROUP_TYPE.lower() not in wanted_types:
        return lambda group: False
    return lambda group: not wanted or group.state.value.lower() in wanted
