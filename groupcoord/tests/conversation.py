"""A shard that several clients talk to, with a log that commits at once and time that moves only when told."""

from collections.abc import Callable, Sequence
from typing import Any

from ottla.groupcoord.classic.manager import DescribeGroup
from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.group_settings import GroupSettings
from ottla.groupcoord.manager import GroupType
from ottla.groupcoord.offsets.manager import DeleteGroup
from ottla.groupcoord.offsets.table import OffsetCommitKey, OffsetCommitValue, OffsetRecord
from ottla.groupcoord.records import GroupRecord
from ottla.groupcoord.runtime.answers import Caller, Reply
from ottla.groupcoord.runtime.coordinator_shard import Job, Outcome
from ottla.groupcoord.service import GROUP_TYPES, GroupTypes, in_listing
from ottla.groupcoord.shard import Shard
from ottla.groupcoord.tests.fakes import FakeImages, settings_of_broker
from ottla.wire.errors import ErrorCode
from ottla.wire.happenings import Happenings
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.groups import ListedGroup
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

GROUP = "group"
TOPIC_ID = bytes(range(16))
START_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 30_000
INITIAL_DELAY_MS = 3_000


class Asked(Caller):
    """One request on its way: `response` is there once it was answered."""

    __slots__ = ("response",)

    def __init__(self, api_version: int, client_id: str) -> None:
        super().__init__(ErrorCode, api_version=api_version, client_id=client_id, client_host="/127.0.0.1")
        self.response: Any = None

    @property
    def error(self) -> ErrorCode:
        assert self.response is not None, "not answered yet"
        return ErrorCode(self.response.error_code)


def subscription(*topics: str) -> bytes:
    """A consumer's subscription, version 0."""
    names = [topic.encode() for topic in topics]
    listed = b"".join(len(name).to_bytes(2, "big") + name for name in names)
    return b"\0\0" + len(names).to_bytes(4, "big") + listed + b"\xff\xff\xff\xff"


def offset_record(offset: int, *, topic: str = "topic", partition: int = 0) -> OffsetRecord:
    value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=START_MS)
    return OffsetRecord(OffsetCommitKey(group=GROUP, topic=topic, partition=partition), value)


class Conversation:
    """What clients say to a shard and hear from it."""

    shard_class = Shard

    def __init__(
        self, kinds: Sequence[GroupType] = GROUP_TYPES, settings: GroupSettings | None = None, **config: Any
    ) -> None:
        self.kinds = kinds
        self.formats = GroupTypes(kinds).formats
        self.config = GroupConfig(**config)
        self.settings = settings or settings_of_broker(self.config)
        self.images = FakeImages(topic=2, other=1)
        self.now_ms = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.refuse_appends: ErrorCode = ErrorCode.NONE
        self.jobs: list[Job] = []
        self.holds_jobs = False
        self._uuids = 0
        self.happenings = Happenings(lambda: START_MS + self.now_ms)
        self.shard = self._new_shard()
        self._carry_out(self.shard.loaded(**self.times()))

    # ------------------------------------------------------------------ the shell's part

    def times(self) -> dict[str, int]:
        return {"now_ms": self.now_ms, "timestamp_ms": START_MS + self.now_ms}

    def _new_shard(self) -> Shard:
        def make_uuid() -> str:
            self._uuids += 1
            return f"uuid{self._uuids}"

        return self.shard_class(
            self.kinds,
            self.config,
            self.images,
            lambda group_id: self.settings,
            make_uuid=make_uuid,
            note=self.happenings.note,
        )

    def _whole(self, outcome: Outcome) -> Outcome:
        """What a call comes to when all its steps are taken."""
        self._send(outcome.replies)
        rest = self.shard.unfinished()
        if rest is None:
            return outcome
        while True:
            try:
                self._send(next(rest))
            except StopIteration as end:
                whole: Outcome = end.value
                self._send(whole.replies)
                return whole

    def _carry_out(self, outcome: Outcome) -> None:
        outcome = self._whole(outcome)
        if not self.refuse_appends:
            for record in outcome.records:
                self.log.append(self.formats.encode_record(record))
                self.shard.replay(record, len(self.log))
        replies = self.shard.settle(outcome.settlements, self.refuse_appends, **self.times())
        settled = self._whole(Outcome([], replies, []))
        assert not settled.records and not settled.settlements
        self.jobs += outcome.jobs
        if not self.holds_jobs:
            self.do_jobs()

    def do_jobs(self) -> None:
        """Compute what is to be computed beside the loop, and give the shard the results."""
        while self.jobs:
            job = self.jobs.pop(0)
            self.ask(job.request(job.compute()), 0)

    def _send(self, replies: list[Reply]) -> None:
        for caller, response in replies:
            caller.is_answered = True
            assert isinstance(caller, Asked)
            assert caller.response is None, "answered twice"
            caller.response = response

    def ask(self, request: Any, version: int, client_id: str = "client") -> Asked:
        asked = Asked(version, client_id)
        self._carry_out(self.shard.handle(request, asked, **self.times()))
        return asked

    def disconnect(self, asked: Asked) -> None:
        self._carry_out(self.shard.abandon(asked, **self.times()))

    def advance(self, milliseconds: int) -> None:
        """Let time pass, with everything that is due on the way happening when it is due."""
        end_ms = self.now_ms + milliseconds
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self._carry_out(self.shard.expire(**self.times()))
        self.now_ms = end_ms

    def listed(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
        """The listed groups of these states and types."""
        parts = self.shard.list_groups(in_listing(states, types), at_once=1)
        return [group for part in parts for group in part]

    def restart(self) -> None:
        """Lose everything but the log."""
        self._send(self.shard.unload(ErrorCode.NOT_COORDINATOR))
        self.shard = self._new_shard()
        for offset, (key, value) in enumerate(self.log):
            record = self.formats.decode_record(key, value)
            if record is not None:
                self.shard.replay(record, offset)
        for _ in self.shard.start_sessions(self.now_ms):
            pass
        self._carry_out(self.shard.loaded(**self.times()))

    def records(self) -> list[GroupRecord | None]:
        return [self.formats.decode_record(key, value) for key, value in self.log]

    # ------------------------------------------------------------------ what clients say

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        version: int = 9,
        instance: str | None = None,
        protocol_type: str = "consumer",
        protocols: dict[str, bytes] | None = None,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client_id: str = "client",
        reason: str | None = None,
    ) -> Asked:
        offered = {"range": subscription("topic")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            reason=reason,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in offered.items()],
        )
        return self.ask(request, version, client_id)

    def join_twice(self, **details: Any) -> Asked:
        """Join as clients do since version 4: ask for a member id, come back with it."""
        first = self.join(**details)
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED
        return self.join(first.response.member_id, **details)

    def sync(
        self,
        joined: Asked,
        assignments: dict[str, bytes] | None = None,
        *,
        version: int = 5,
        instance: str | None = None,
        **details: Any,
    ) -> Asked:
        """Ask for the assignment of the generation that this join was answered with."""
        response = joined.response
        given = {
            "group_id": GROUP,
            "generation_id": response.generation_id,
            "member_id": response.member_id,
            "group_instance_id": instance,
            "protocol_type": response.protocol_type,
            "protocol_name": response.protocol_name,
        }
        listed = [
            SyncGroupRequestAssignment(member_id=each, assignment=data) for each, data in (assignments or {}).items()
        ]
        return self.ask(SyncGroupRequest(**(given | details), assignments=listed), version)

    def heartbeat(self, joined: Asked, **details: Any) -> ErrorCode:
        response = joined.response
        given = {"group_id": GROUP, "generation_id": response.generation_id, "member_id": response.member_id}
        return self.shard.read(HeartbeatRequest(**(given | details)), now_ms=self.now_ms)

    def leave(self, *identities: tuple[str, str | None], group: str = GROUP, reason: str | None = None) -> Asked:
        members = [
            MemberIdentity(member_id=each, group_instance_id=instance, reason=reason) for each, instance in identities
        ]
        return self.ask(LeaveGroupRequest(group_id=group, members=members), 5)

    def commit(
        self,
        offset: int = 5,
        *,
        joined: Asked | None = None,
        group: str = GROUP,
        topic: str = "topic",
        partition: int = 0,
        metadata: str | None = "",
        retention_ms: int = -1,
        version: int = 9,
        topic_id: bytes = TOPIC_ID,
        **details: Any,
    ) -> ErrorCode:
        """Commit one offset, as a member or as nobody; gives the partition's error."""
        given: dict[str, Any] = {"member_id": ""}
        if joined is not None:
            response = joined.response
            given = {"member_id": response.member_id, "generation_id_or_member_epoch": response.generation_id}
        committed = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        topics = [OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[committed])]
        request = OffsetCommitRequest(
            group_id=group, retention_time_ms=retention_ms, topics=topics, **(given | details)
        )
        answer = self.ask(request, version)
        return ErrorCode(answer.response.topics[0].partitions[0].error_code)

    def committed(
        self, *, group: str = GROUP, topic: str = "topic", partition: int = 0, topic_id: bytes = bytes(16)
    ) -> int:
        asked = OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[partition])
        answer = self.shard.read(OffsetFetchRequestGroup(group_id=group, topics=[asked]), now_ms=self.now_ms)
        return answer.topics[0].partitions[0].committed_offset

    def delete_offset(self, topic: str, partition: int = 0, group: str = GROUP) -> Asked:
        partitions = [OffsetDeleteRequestPartition(partition_index=partition)]
        topics = [OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
        return self.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)

    def delete_group(self, group: str = GROUP) -> ErrorCode:
        return self.ask(DeleteGroup(group), 2).error

    def state(self, group: str = GROUP) -> str:
        return self.shard.read(DescribeGroup(group, 5), now_ms=self.now_ms).group_state

    # ------------------------------------------------------------------ whole stories

    def stable_group(self, count: int = 2, **details: Any) -> list[Asked]:
        """A stable group: the joins of its members, the leader's first. Each is assigned its own member id."""
        joins = [self.join_twice(**details) for _ in range(count)]
        self.advance(self.config.group_initial_rebalance_delay_ms)
        while joins[0].response is None:
            self.advance(self.config.group_initial_rebalance_delay_ms)
        return self.settle_generation(joins)

    def settle_generation(
        self, joins: list[Asked], assign: Callable[[str], bytes] = lambda member_id: member_id.encode()
    ) -> list[Asked]:
        """Everybody asks for the assignment, the leader last."""
        joins = sorted(joins, key=lambda each: each.response.leader != each.response.member_id)
        assignments = {each.response.member_id: assign(each.response.member_id) for each in joins}
        syncs = [self.sync(each) for each in joins[1:]]
        syncs.append(self.sync(joins[0], assignments))
        assert all(each.error is ErrorCode.NONE for each in syncs)
        return joins
