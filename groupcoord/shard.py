"""One partition of `__consumer_offsets`: the groups whose id falls to it, and their deadlines. `GroupRuntime` finds the shard.

It knows no type of groups. `manager.py` says what a manager is and what it registers here; a request, a record and a deadline
each go to the manager that registered its type.

The runtime's duties, in this order: replay the partition's records, then `loaded`. For every request `handle`, at
`next_deadline_ms` `expire`; append what an outcome holds, call `settle`, and `replay` it when it is committed. Between an
outcome with records and its settlement only `read` is allowed, except that outcomes whose requests may be gathered (alone
offset commits) may be collected into one append.

Offsets, and the end of a classic group, come into force by `replay` only, so that every offset that is read is a committed one.
All other state of a living group is ahead of the log: a classic group is ahead of its record, because most of a
rebalance is in no record; other groups have put their records in force already when they append them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.effects import (
    GROUPS_PER_SCAN,
    RECORDS_PER_CALL,
    TIMERS_PER_CALL,
    WORK_PER_CALL,
    Effects,
    TimerKey,
    Timers,
)
from ottla.groupcoord.group import Group
from ottla.groupcoord.group_settings import GroupSettingsSource
from ottla.groupcoord.manager import GroupType, Handler, MetadataManager, Read, Replay, ShardContext
from ottla.groupcoord.records import GroupRecord
from ottla.groupcoord.runtime.answers import Caller, Reply
from ottla.groupcoord.runtime.coordinator_runtime import Runtime
from ottla.groupcoord.runtime.coordinator_shard import Outcome, Rest, Settlement
from ottla.groupcoord.topic_images import TopicImages
from ottla.wire.errors import ErrorCode
from ottla.wire.happenings import Note, note_nothing
from ottla.wire.messages.groups import ListedGroup

Adopter = TypeVar("Adopter", Handler, Read)


class Shard:
    """Groups of one partition of the offsets topic (Kafka: GroupCoordinatorShard)."""

    def __init__(
        self,
        types: Sequence[GroupType],
        config: GroupConfig,
        topics: TopicImages,
        settings_of: GroupSettingsSource,
        *,
        make_uuid: Callable[[], str],
        note: Note = note_nothing,
    ) -> None:
        self._effects = Effects(config, make_uuid, note)
        self._groups: dict[str, Group] = {}
        self._managers: list[MetadataManager] = []
        self._requests: dict[type, Handler] = {}
        self._reads: dict[type, Read] = {}
        self._adopted: dict[type, dict[str, Handler]] = {}  # by the type of the group
        self._adopted_reads: dict[type, dict[str, Read]] = {}
        self._loads: dict[type, Replay] = {}
        self._commits: dict[type, Replay] = {}
        self._timers: dict[str, Callable[[TimerKey], None]] = {}
        self._lone_timers: list[TimerKey] = []
        self._replays = self._loads  # after the load: `_commits`
        self._rest: Rest | None = None
        context = ShardContext(config, self._effects, self._groups, topics, settings_of)
        for each in types:
            manager = each.make(context)
            self._managers.append(manager)
            self._register(manager)

    def _register(self, manager: MetadataManager) -> None:
        for mine, theirs in (
            (self._requests, manager.requests),
            (self._reads, manager.reads),
            (self._loads, manager.loads),
            (self._commits, manager.commits),
            (self._timers, manager.timers),
        ):
            _add(mine, theirs)
        for request, handler in manager.adopted.items():
            _add(self._adopted.setdefault(request, {}), {manager.group_type: handler})
        for request, read in manager.adopted_reads.items():
            _add(self._adopted_reads.setdefault(request, {}), {manager.group_type: read})
        self._lone_timers += manager.lone_timers
        manager.forget_tables()

    # ------------------------------------------------------------------ the runtime's calls

    def handle(self, request: Any, caller: Caller, *, now_ms: int, timestamp_ms: int) -> Outcome[GroupRecord]:
        """Handle a request.

        The returned outcome holds the reply, or a settlement that makes it. A later call answers a parked request.
        """
        self._begin(now_ms, timestamp_ms)
        self._effects.source = caller.client_host.removeprefix("/")
        handler = self._adopter(self._adopted, request) or self._requests.get(type(request))
        assert handler is not None, f"nobody takes {type(request).__name__}"
        handler(request, caller)
        return self._outcome()

    def abandon(self, caller: Caller, *, now_ms: int, timestamp_ms: int) -> Outcome[GroupRecord]:
        """Forget a parked caller whose connection is closed."""
        self._begin(now_ms, timestamp_ms)
        group = self._groups.get(caller.parked_group_id)
        if group is not None:
            group.abandon(caller)
        return self._outcome()

    def settle(
        self, settlements: Iterable[Settlement], error: ErrorCode, *, now_ms: int, timestamp_ms: int
    ) -> list[Reply]:
        """Call settlements, after their records were committed and replayed or were refused by the log with `error`."""
        self._begin(now_ms, timestamp_ms)
        for settlement in settlements:
            self._effects.then(settlement, error)
        settled = self._outcome()
        # A settlement only replies and moves states: nobody would append a record that is made here.
        assert not settled.records and not settled.settlements
        return settled.replies

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next call of `expire`, possibly too early; None if there are no deadlines."""
        return self._effects.timers.next_deadline_ms()

    def stands_alone(self, now_ms: int) -> bool:
        """Return True if due work reads committed state, so that it must wait until all appends are committed."""
        for key in self._lone_timers:
            deadline_ms = self._effects.timers.deadline_ms(key)
            if deadline_ms is not None and deadline_ms <= now_ms:
                return True
        return False

    def expire(self, *, now_ms: int, timestamp_ms: int) -> Outcome[GroupRecord]:
        """Handle a limited number of due deadlines; other due deadlines wait for the next call."""
        self._begin(now_ms, timestamp_ms)
        for _ in range(TIMERS_PER_CALL):
            key = self._effects.timers.pop_due(now_ms)
            if key is None:
                break
            self._timers[key.kind](key)
            # The next deadline has to find what the steps of this one leave behind.
            if self._effects.advance():
                break
            if len(self._effects.records) >= RECORDS_PER_CALL or self._effects.work >= WORK_PER_CALL:
                break
        return self._outcome()

    def unfinished(self) -> Rest | None:
        """Remove and return the remaining steps of the last call; None if there are none."""
        rest, self._rest = self._rest, None
        return rest

    def _outcome(self) -> Outcome[GroupRecord]:
        """End a call and return its outcome. For a call with further steps that is only the first step's replies.

        `unfinished` returns those further steps.
        """
        if not self._effects.advance():
            return self._effects.take()
        self._rest = self._effects.rest()
        return Outcome([], next(self._rest), [])

    def _adopter(self, adopted: dict[type, dict[str, Adopter]], request: Any) -> Adopter | None:
        """Return the handler that the group's own type has for another manager's request; None if there is none."""
        adopters = adopted.get(type(request))
        if adopters is None:
            return None
        group = self._groups.get(request.group_id)
        return None if group is None else adopters.get(group.group_type)

    def _begin(self, now_ms: int, timestamp_ms: int) -> None:
        self._effects.now_ms = now_ms
        self._effects.timestamp_ms = timestamp_ms
        self._effects.source = ""

    # ------------------------------------------------------------------ loading and unloading

    def replay(self, record: GroupRecord, record_offset: int = -1, producer_id: int = -1) -> None:
        """Apply a record; call this in the order of the log."""
        replay = self._replays.get(type(record.key))
        if replay is not None:
            replay(record, record_offset, producer_id)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """Apply the end of a producer's transaction."""
        for manager in self._managers:
            manager.replay_marker(producer_id, committed=committed)

    def loaded(self, *, now_ms: int, timestamp_ms: int) -> Outcome[GroupRecord]:
        """Finish the load. All records are replayed and all sessions are started; requests may follow."""
        self._begin(now_ms, timestamp_ms)
        self._replays = self._commits
        for manager in self._managers:
            manager.loaded()
        return self._outcome()

    def start_sessions(self, now_ms: int) -> Iterator[None]:
        """Restart all members' sessions at full length; yields so that other tasks can run."""
        # A copy, because groups come and go whenever this yields.
        for number, group in enumerate(list(self._groups.values()), 1):
            # Another call may have set its own time since the last yield.
            self._effects.now_ms = now_ms
            for _ in group.start_sessions():
                yield
                self._effects.now_ms = now_ms
            if number % GROUPS_PER_SCAN == 0:
                yield

    def discard(self) -> Outcome[GroupRecord]:
        """Return the outcome of an unfinished call, before the shard is dropped."""
        return self._effects.stop()

    def unload(self, error: ErrorCode) -> Iterator[Reply]:
        """Answer `error` to all parked callers, before the shard is dropped: groups are coordinated elsewhere now."""
        for group in self._groups.values():
            for _ in group.unload(error):
                yield from self._effects.take_replies()
            yield from self._effects.take_replies()
        # A manager and its parts hold each other, and would hold the groups and their deadlines.
        self._groups.clear()
        self._effects.timers = Timers()

    # ------------------------------------------------------------------ reads, allowed at any time

    def read(self, request: Any, *, now_ms: int) -> Any:
        """Answer a request that changes nothing, except that it may restart a session."""
        # The time of day is not needed, because nothing is written.
        self._effects.now_ms = now_ms
        read = self._adopter(self._adopted_reads, request) or self._reads.get(type(request))
        assert read is not None, f"nobody takes {type(request).__name__}"
        return read(request)

    @property
    def group_count(self) -> int:
        """Number of groups."""
        return len(self._groups)

    def list_groups(self, is_wanted: Callable[[Group], bool], *, at_once: int) -> Iterator[list[ListedGroup]]:
        """Yield matching groups in lists of at most `at_once`. Groups created or deleted meanwhile may be missing."""
        groups = list(self._groups.values())
        for start in range(0, len(groups), at_once):
            yield [
                group.listed()
                for group in groups[start : start + at_once]
                if is_wanted(group) and self._groups.get(group.group_id) is group
            ]


def _add(mine: dict[Any, Any], theirs: Mapping[Any, Any]) -> None:
    assert mine.keys().isdisjoint(theirs), f"registered twice: {mine.keys() & theirs.keys()}"
    mine.update(theirs)


ELEMENTS_PER_SLICE = 500
"""A request about more topics, partitions and members than this is taken in parts."""


class GroupRuntime(Runtime[Shard]):
    """Runtime of the group shards that this broker coordinates."""

    def read(self, group_id: str, request: Any) -> Any:
        """Answer a read-only request. Raises KafkaError if this broker does not coordinate the group now."""
        return self.shard_of(group_id).read(request, now_ms=self.now_ms())


class OffsetRights(Protocol):
    """Rights of a request's client to groups and topics. None in place of an object: the client may see everything."""

    def may_describe(self, group_id: str) -> bool:
        """Return True if the client may describe the group."""

    def denied(self, topics: Collection[str]) -> Collection[str]:
        """Return those of `topics` that the client may not see. Callers pass some hundred names at a time."""
