"""Requests that parse but make no sense: whatever they hold, the shard stays whole and everybody is answered."""

import random
from typing import Any

import pytest

from ottla.groupcoord.effects import TEXT_LENGTH_MAX
from ottla.groupcoord.offsets.manager import DeleteGroup
from ottla.groupcoord.tests.conversation import Asked, Conversation
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.tests.effort import first

INT32 = [-(2**31), -1, 0, 1, 2, 6_000, 2**31 - 1]
INT64 = [-(2**63), -1, 0, 5, 2**63 - 1]
TEXTS = ["", "a", "range", "consumer", "\n", "\ufffd" * 100, "\ufffd" * 32_767, "x" * 32_767]
BLOBS = [b"", b"\0", b"\0\0\xff\xff\xff\xff", b"\0\0\x7f\xff\xff\xff", b"x" * 5_000]


class Attacker:
    """Makes requests out of odd values, and of ids that the coordinator gave out."""

    def __init__(self, chance: random.Random) -> None:
        self.pick = chance.choice
        self.chance = chance
        self.member_ids = ["", "who"]
        self.groups = ["", "a", "b"]

    def group(self) -> str:
        return self.pick(TEXTS) if self.chance.random() < 0.1 else self.pick(self.groups)

    def member(self) -> str:
        return self.pick(TEXTS) if self.chance.random() < 0.1 else self.pick(self.member_ids[-6:])

    def instance(self) -> str | None:
        return self.pick([None, None, None, "one", "two", self.pick(TEXTS)])

    def request(self) -> tuple[Any, int]:
        made = self.pick([self.join, self.join, self.join, self.sync, self.sync, self.leave, self.commit, self.delete])
        return made()

    def join(self) -> tuple[Any, int]:
        names = [self.pick(["range", "range", "range", self.pick(TEXTS)]) for _ in range(self.pick([0, 1, 1, 2, 3]))]
        request = JoinGroupRequest(
            group_id=self.group(),
            session_timeout_ms=self.pick([6_000, 1_800_000]),  # the service has looked at it
            rebalance_timeout_ms=self.pick(INT32),
            member_id=self.member(),
            group_instance_id=self.instance(),
            protocol_type=self.pick(["consumer", "consumer", "consumer", self.pick(TEXTS)]),
            protocols=[JoinGroupRequestProtocol(name=name, metadata=self.pick(BLOBS)) for name in names],
        )
        return request, self.chance.randrange(10)

    def sync(self) -> tuple[Any, int]:
        assignments = [
            SyncGroupRequestAssignment(member_id=self.member(), assignment=self.pick(BLOBS)) for _ in range(3)
        ]
        request = SyncGroupRequest(
            group_id=self.group(),
            generation_id=self.pick([1, 2, 3, 4, self.pick(INT32)]),
            member_id=self.member(),
            group_instance_id=self.instance(),
            protocol_type=self.pick([None, "consumer"]),
            protocol_name=self.pick([None, "range"]),
            assignments=assignments,
        )
        return request, self.chance.randrange(6)

    def leave(self) -> tuple[Any, int]:
        members = [MemberIdentity(member_id=self.member(), group_instance_id=self.instance()) for _ in range(2)]
        return LeaveGroupRequest(group_id=self.group(), members=members), 5

    def commit(self) -> tuple[Any, int]:
        partition = OffsetCommitRequestPartition(
            partition_index=self.pick(INT32),
            committed_offset=self.pick(INT64),
            committed_leader_epoch=self.pick(INT32),
            committed_metadata=self.pick([None, *TEXTS]),
        )
        request = OffsetCommitRequest(
            group_id=self.group(),
            generation_id_or_member_epoch=self.pick(INT32),
            member_id=self.member(),
            group_instance_id=self.instance(),
            retention_time_ms=self.pick(INT64),
            topics=[OffsetCommitRequestTopic(name="topic", partitions=[partition])],
        )
        return request, self.chance.randrange(2, 11)

    def delete(self) -> tuple[Any, int]:
        if self.chance.random() < 0.5:
            return DeleteGroup(self.group()), 2
        partitions = [OffsetDeleteRequestPartition(partition_index=self.pick(INT32))]
        topics = [OffsetDeleteRequestTopic(name="topic", partitions=partitions)]
        return OffsetDeleteRequest(group_id=self.group(), topics=topics), 0

    def heartbeat(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group(),
            generation_id=self.pick([1, 2, 3, self.pick(INT32)]),
            member_id=self.member(),
            group_instance_id=self.instance(),
        )


@pytest.mark.parametrize("seed", first(3, range(15)))
def test_odd_requests_do_no_harm(seed: int) -> None:
    chance = random.Random(seed)
    talk = Conversation(group_initial_rebalance_delay_ms=chance.choice([0, 3_000]))
    attacker = Attacker(chance)
    asked: list[Asked] = []
    for _ in range(400):
        request, version = attacker.request()
        while isinstance(request, JoinGroupRequest) and not 0 < len(request.group_id) <= TEXT_LENGTH_MAX:
            request, version = attacker.request()  # the service has refused that one
        asked.append(talk.ask(request, version, client_id=chance.choice(TEXTS)))
        talk.shard.read(attacker.heartbeat(), now_ms=talk.now_ms)
        response = asked[-1].response
        if getattr(response, "member_id", None) and response.member_id not in attacker.member_ids:
            attacker.member_ids.append(response.member_id)
        if chance.random() < 0.1:
            talk.disconnect(chance.choice(asked))
        talk.advance(chance.choice([0, 1, 1_000, 3_000]))
    talk.advance(2 * 2**31)
    assert all(each.response is not None for each in asked)
    assert {each.group_state for each in talk.listed()} <= {"Empty"}
    talk.restart()
    talk.advance(2 * 2**31)
