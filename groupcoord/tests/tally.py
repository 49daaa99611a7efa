"""A tiny kind of groups, which only tests have: it shows that a kind enters a shard without a change to the shell.

A member of a tally group adds to its own number. Each number is a keyed record. A group exists while it has a number, and
a member that was silent for too long loses its number.
"""

from typing import Any, NamedTuple

from ottla.groupcoord.effects import Effects, Steps, TimerKey, in_pieces
from ottla.groupcoord.group import LastRebalance, PartitionCheck
from ottla.groupcoord.manager import GroupType, MetadataManager, ShardContext
from ottla.groupcoord.records import GroupRecord, KeyedRecord, RecordFormat
from ottla.groupcoord.runtime.answers import Caller
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.classic_group import JoinGroupRequest
from ottla.wire.messages.groups import ListedGroup
from ottla.wire.schema import Int32, String, Struct, field

SESSION = "tally-session"
SESSION_MS = 10_000
FORBIDDEN_PARTITION = 1


class TallyKey(Struct, versions="0", flexible="0+"):
    group_id: str = field(String)
    member_id: str = field(String)


class TallyValue(Struct, versions="0", flexible="0+"):
    number: int = field(Int32)


class Add(NamedTuple):
    """The request of members to add to their numbers, all or none; answered with the sums."""

    group_id: str
    numbers: dict[str, int]
    is_cuttable: bool = False


class Sum(NamedTuple):
    """The question what the numbers of a group add up to."""

    group_id: str


class TallyGroup:
    """The numbers of one group, by member."""

    group_type = "tally"

    def __init__(self, group_id: str, part: "TallyManager", effects: Effects) -> None:
        self.group_id = group_id
        self.numbers: dict[str, TallyValue] = {}
        self.told: list[str] = []
        self.last_rebalance: LastRebalance | None = None
        self._part = part
        self._effects = effects

    @property
    def members(self) -> dict[str, TallyValue]:
        return self.numbers

    @property
    def state_name(self) -> str:
        return "Counting"

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id, protocol_type="tally", group_state=self.state_name, group_type=self.group_type
        )

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> ErrorCode | PartitionCheck:
        if member_id not in self.numbers:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return lambda topic_id, topic, partition: (
            ErrorCode.STALE_MEMBER_EPOCH if partition == FORBIDDEN_PARTITION else ErrorCode.NONE
        )

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.NONE if member_id is None or member_id in self.numbers else ErrorCode.UNKNOWN_MEMBER_ID

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def is_subscribed_to(self, topic: str) -> bool:
        return topic == "topic"

    def offsets_retained_since(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    @property
    def is_forgettable(self) -> bool:
        return False

    def delete(self) -> None:
        for member_id in list(self.numbers):
            self._part.put(self.group_id, member_id, None)

    def start_sessions(self) -> Steps:
        return in_pieces(list(self.numbers), self.start_session)

    def start_session(self, member_id: str) -> None:
        key = TimerKey(SESSION, self.group_id, member_id)
        self._effects.timers.schedule(key, self._effects.now_ms + SESSION_MS)

    def cancel_timers(self) -> None:
        for member_id in self.numbers:
            self._effects.timers.cancel(TimerKey(SESSION, self.group_id, member_id))

    def abandon(self, caller: Caller) -> None:
        self.told.append("abandoned")

    def unload(self, error: ErrorCode) -> Steps:
        self.told.append(error.name)
        return iter(())


class TallyManager(MetadataManager):
    """All tally groups of a shard."""

    group_type = TallyGroup.group_type

    def __init__(self, context: ShardContext) -> None:
        super().__init__()
        self._effects = context.effects
        self._groups = context.groups
        self.topics = context.topics
        self.requests = {Add: self._add}
        self.adopted = {JoinGroupRequest: self._join}
        self.reads = {Sum: self._sum}
        self.loads = {TallyKey: self._load}
        self.timers = {SESSION: self._expire}

    def _add(self, request: Add, caller: Caller) -> None:
        sums = {}
        if request.is_cuttable:
            self._effects.be_cuttable()
        for member_id, number in request.numbers.items():
            before = self.value_of(TallyKey(group_id=request.group_id, member_id=member_id))
            sums[member_id] = number + (0 if before is None else before.number)
            self.put(request.group_id, member_id, TallyValue(number=sums[member_id]))
            group = self._groups[request.group_id]
            assert isinstance(group, TallyGroup)
            group.start_session(member_id)
        self._effects.answer(caller, sums, lambda error: error)

    def _join(self, request: JoinGroupRequest, caller: Caller) -> None:
        self._effects.reply(caller, "a tally group counts its members itself")

    def _sum(self, asked: Sum) -> int:
        group = self._groups.get(asked.group_id)
        return sum(each.number for each in group.numbers.values()) if isinstance(group, TallyGroup) else -1

    def _expire(self, key: TimerKey) -> None:
        self.put(key.group_id, key.member_id, None)

    # ------------------------------------------------------------------ the keyed state

    def put(self, group_id: str, member_id: str, value: TallyValue | None) -> None:
        self._effects.put(self, KeyedRecord(TallyKey(group_id=group_id, member_id=member_id), value))

    def _load(self, record: GroupRecord, record_offset: int, producer_id: int) -> None:
        self.replay(record)

    def value_of(self, key: Any) -> TallyValue | None:
        group = self._groups.get(key.group_id)
        return group.numbers.get(key.member_id) if isinstance(group, TallyGroup) else None

    def replay(self, record: GroupRecord) -> None:
        key, value = record.key, record.value
        group = self._groups.get(key.group_id)
        if not isinstance(group, TallyGroup):
            if value is None:
                return
            group = self._groups[key.group_id] = TallyGroup(key.group_id, self, self._effects)
        if value is not None:
            group.numbers[key.member_id] = value
        elif group.numbers.pop(key.member_id, None) is not None and not group.numbers:
            del self._groups[key.group_id]


TALLY = GroupType(
    make=TallyManager, formats=(RecordFormat(99, TallyKey, TallyValue),), overlapping=frozenset({Add, JoinGroupRequest})
)
