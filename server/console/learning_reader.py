"""A consumer for the Learn tab: a member of a classic group that reads slowly, so that its lag can be watched.

It asks the broker's handlers what any consumer asks: JoinGroup, SyncGroup, Heartbeat, OffsetFetch, OffsetCommit, LeaveGroup. Whoever
leads the group deals the partitions out in turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.server.console.asking import ask, refusal
from ottla.server.console.batches import Page
from ottla.wire.errors import ErrorCode, ProtocolViolation
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.console.records import Records

TURN_S = 0.35  # for one record: alone it is slower than the producer, and two keep pace
SESSION_MS = 10_000
LEAVE_S = 2.0
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, COMMIT_VERSION, LEAVE_VERSION, FETCH_VERSION = 3, 3, 3, 7, 1, 9
_VERSION_OF_PROTOCOL = b"\0\0"
_JOIN_AGAIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)


class Reader:
    """One member. `is_lost` before it is cancelled: it goes without a word, and the group waits for the end of its session."""

    def __init__(self, broker: Broker, records: Records, group_id: str, topic: str) -> None:
        self._broker, self._records = broker, records
        self._group_id, self._topic = group_id, topic
        self._generation_id = -1
        self._positions: dict[int, int] = {}
        self.member_id = ""
        self.read_count = 0
        self.is_lost = False
        self.cancel_scope = trio.CancelScope()

    async def run(self) -> None:
        """Read until cancelled. Raises Refused for what the broker refuses for good."""
        try:
            with self.cancel_scope:
                while True:
                    await self._join()
                    await self._read_until_rebalance()
        finally:
            if self.member_id and not self.is_lost:
                with trio.move_on_after(LEAVE_S, shield=True):
                    await self._commit()
                    await self._leave()

    # ------------------------------------------------------------------ the group

    async def _join(self) -> None:
        """Take part in a rebalance, and take up what it gives."""
        subscription = ConsumerProtocolSubscription(topics=[self._topic]).encode(0)
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="roundrobin", metadata=_VERSION_OF_PROTOCOL + subscription)],
        )
        joined: JoinGroupResponse = await ask(self._broker, request, JOIN_VERSION)
        self._positions = {}
        if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""  # its session has ended
        if not self._may_go_on(joined.error_code):
            await trio.sleep(TURN_S)
            return
        self.member_id, self._generation_id = joined.member_id, joined.generation_id
        assignments = self._dealt(joined) if joined.leader == self.member_id else []
        sync = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self._generation_id,
            member_id=self.member_id,
            assignments=assignments,
        )
        synced: SyncGroupResponse = await ask(self._broker, sync, SYNC_VERSION)
        # Else another member has come or gone meanwhile, which the next heartbeat says, too.
        if self._may_go_on(synced.error_code):
            await self._take_up(synced.assignment)

    def _dealt(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """The partitions in turns, as the leader of a group deals them out."""
        topic = self._broker.cluster.topic(self._topic)
        count = 0 if topic is None else len(topic.partitions)
        members = sorted(each.member_id for each in joined.members)
        dealt = []
        for place, member_id in enumerate(members):
            partitions = list(range(place, count, len(members)))
            assigned = [TopicPartition(topic=self._topic, partitions=partitions)] if partitions else []
            blob = _VERSION_OF_PROTOCOL + ConsumerProtocolAssignment(assigned_partitions=assigned).encode(0)
            dealt.append(SyncGroupRequestAssignment(member_id=member_id, assignment=blob))
        return dealt

    async def _take_up(self, assignment: bytes) -> None:
        """Go on where the group has committed, or at the beginning."""
        wanted = self._assigned(assignment)
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self._group_id, topics=None)])
        fetched = await finished(self._broker.groups.offsets.offset_fetch(asked, api_version=FETCH_VERSION))
        committed = {
            each.partition_index: each.committed_offset
            for topic in fetched.groups[0].topics
            if topic.name == self._topic
            for each in topic.partitions
        }
        self._positions = {index: max(0, committed.get(index, 0)) for index in wanted}

    def _assigned(self, assignment: bytes) -> set[int]:
        """The leader may be a client that somebody else has started, and then has sent what it liked."""
        try:
            found = ConsumerProtocolAssignment.decode(assignment, 0, start=2)
        except ProtocolViolation:
            return set()
        topic = self._broker.cluster.topic(self._topic)
        count = 0 if topic is None else len(topic.partitions)
        given = (index for each in found.assigned_partitions if each.topic == self._topic for index in each.partitions)
        return {index for index in given if 0 <= index < count}

    async def _leave(self) -> None:
        leave = LeaveGroupRequest(group_id=self._group_id, member_id=self.member_id)
        await ask(self._broker, leave, LEAVE_VERSION)

    # ------------------------------------------------------------------ reading

    async def _read_until_rebalance(self) -> None:
        """Read a little, commit, and tell the coordinator that this member is alive; until that says that members change."""
        while self.member_id:
            await trio.sleep(TURN_S)
            await self._read_one()
            await self._commit()
            beat = HeartbeatRequest(
                group_id=self._group_id, generation_id=self._generation_id, member_id=self.member_id
            )
            error = (await ask(self._broker, beat, HEARTBEAT_VERSION)).error_code
            if error == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            if not self._may_go_on(error):
                return

    async def _read_one(self) -> None:
        """The next record of the partition that is most behind."""
        ahead = {}
        for index, position in self._positions.items():
            partition = self._broker.partition(self._topic, index)
            start = min(max(position, partition.log_start_offset), partition.high_watermark)
            ahead[index] = (partition.high_watermark - start, start)
        if not ahead or not max(ahead.values())[0]:
            return
        index = max(ahead, key=lambda each: ahead[each][0])
        behind, start = ahead[index]
        page = Page(start, start + behind, limit=1, cut=1)
        await self._records.fill(self._topic, index, page)
        self._positions[index] = page.position
        self.read_count += len(page.records)

    async def _commit(self) -> None:
        """What is refused here, because a rebalance has begun, the heartbeat tells."""
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=position, committed_metadata="")
            for index, position in self._positions.items()
        ]
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=self._generation_id,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=partitions)] if partitions else [],
        )
        await ask(self._broker, request, COMMIT_VERSION)

    def _may_go_on(self, code: int) -> bool:
        """False: the member has to join, now or once the coordinator is there. Raises Refused for what will not pass."""
        error = ErrorCode.of(code)
        if error is not ErrorCode.NONE and not error.retriable and error not in _JOIN_AGAIN:
            raise refusal(error)
        return error is ErrorCode.NONE
