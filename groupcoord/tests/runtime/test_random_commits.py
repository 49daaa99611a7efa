"""Random requests to a coordinator whose log is slow, refuses and fails: everybody is answered, and memory is what the log says."""

from random import Random
from typing import Any

import pytest
import trio
import trio.testing

from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.tests.fakes import Coordination
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.classic_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.groups import DeleteGroupsRequest
from ottla.wire.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from ottla.wire.tests.effort import first

GROUPS = ("group", "other", "third", "fourth")
REQUESTS = 150
PATIENCE_S = 600


class Talk:
    """A coordinator, and clients that ask whatever comes to their minds."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.coordination = Coordination(group_initial_rebalance_delay_ms=0)
        self.joined: dict[str, Any] = {}
        self.asked = self.answered = 0
        self.acknowledged: dict[str, list[int]] = {group: [] for group in GROUPS}

    async def ask(self, number: int) -> None:
        group = self.random.choice(GROUPS)
        talk, known = self.coordination, self.joined.get(group)
        kind = self.random.choice(
            ("commit", "commit", "commit", "join", "sync", "leave", "fetch", "stable", "delete", "forget")
        )
        self.asked += 1
        if kind == "commit":
            answer = await finished(talk.commit(number, group=group))
            if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
                self.acknowledged[group].append(number)
        elif kind == "join":
            with trio.move_on_after(self.random.choice((1, PATIENCE_S))):
                answer = await finished(talk.join(known.member_id if known else "", group=group))
                if answer.error_code == ErrorCode.NONE:
                    self.joined[group] = answer
        elif kind == "sync" and known is not None:
            await finished(talk.sync(known, group=group, assignment=b"all"))
        elif kind == "leave" and known is not None:
            leave = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=known.member_id)])
            await finished(talk.groups.classic.leave_group(leave, api_version=3))
        elif kind == "delete":
            await finished(talk.groups.delete_groups(DeleteGroupsRequest(groups_names=[group])))
        elif kind == "forget":
            topics = [
                OffsetDeleteRequestTopic(name="topic", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            ]
            await finished(talk.groups.offsets.offset_delete(OffsetDeleteRequest(group_id=group, topics=topics)))
        else:
            await finished(self.fetch(group, is_stable=kind == "stable"))
        self.answered += 1

    def fetch(self, group: str, *, is_stable: bool) -> Any:
        topics = [OffsetFetchRequestTopic(name="topic", partition_indexes=[0])]
        request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=is_stable)
        return self.coordination.groups.offsets.offset_fetch(request, api_version=7)

    async def trouble(self) -> None:
        """The log is quick or slow, refuses or fails, and the partitions move away and back."""
        log = self.coordination.log
        while True:
            log.commit_seconds = self.random.choice((0, 0, 0.01, 0.2))
            log.refusal = self.random.choice((None, None, None, ErrorCode.NOT_ENOUGH_REPLICAS))
            log.failure = self.random.choice((None, None, None, ErrorCode.REQUEST_TIMED_OUT))
            if self.random.random() < 0.1:
                partition = self.random.randrange(log.partition_count())
                self.coordination.groups.on_resignation(partition)
                self.coordination.groups.on_election(partition)
            await trio.sleep(self.random.random())

    async def offsets(self) -> dict[str, int]:
        return {
            group: (await finished(self.fetch(group, is_stable=True))).topics[0].partitions[0].committed_offset
            for group in GROUPS
        }


@pytest.mark.parametrize("seed", first(8, range(40)))
async def test_everybody_is_answered_and_memory_is_what_the_log_says(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery, seed: int
) -> None:
    talk = Talk(seed)
    coordination = talk.coordination
    await coordination.start(nursery)
    async with trio.open_nursery() as troubles:
        troubles.start_soon(talk.trouble)
        with trio.fail_after(PATIENCE_S * 2):
            async with trio.open_nursery() as askers:
                for number in range(REQUESTS):
                    askers.start_soon(talk.ask, number)
                    await trio.sleep(talk.random.choice((0, 0, 0.005, 0.1)))
        troubles.cancel_scope.cancel()
    log = coordination.log
    log.commit_seconds, log.refusal, log.failure = 0, None, None
    await trio.sleep(PATIENCE_S)  # sessions end, loads succeed
    assert talk.answered == talk.asked
    live = await talk.offsets()
    for partition in range(log.partition_count()):
        coordination.groups.on_resignation(partition)
        coordination.groups.on_election(partition)
    await trio.testing.wait_all_tasks_blocked()
    assert await talk.offsets() == live
    # A commit that was answered without an error is in the log.
    written = {
        (record.key.group, record.value.offset)
        for record in log.records()
        if record is not None and hasattr(record.key, "topic") and record.value is not None
    }
    assert {(group, number) for group, numbers in talk.acknowledged.items() for number in numbers} <= written
