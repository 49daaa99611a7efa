"""Small load of the Learn tab: a topic, a producer of a few records a second, and up to three readers.

    asleep --start--> makes the topic, writes and reads --stop, LOAD_S over, or a problem--> asleep

It begins with a click, only with `http.console.write`, and costs next to nothing: RECORDS_PER_S records of a hundred bytes. All its
partitions are led here, and its group is one that this broker coordinates, so that the page sees everything; in a cluster other brokers
hold replicas.

A reader is a member of a classic group that reads slowly, so that its lag can be watched. It calls the broker's handlers as any consumer
does: JoinGroup, SyncGroup, Heartbeat, OffsetFetch, OffsetCommit, LeaveGroup. The leader of the group deals the partitions out round robin.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.admin.console import requests
from ottla.server.admin.console.batches import Page
from ottla.server.admin.console.requests import ask, refusal
from ottla.server.admin.console.settings_view import partition_of_key, produced
from ottla.server.admin.http.routes import Refused
from ottla.server.coordinator_factory import groups_of
from ottla.server.serving_state import NotServing
from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from ottla.wire.records import Record

if TYPE_CHECKING:
    from ottla.server.admin.console.records import Records
    from ottla.server.admin.http.routes import Request
    from ottla.server.broker import Broker

TURN_S = 0.35  # for one record: alone it is slower than the producer, and two keep pace
SESSION_MS = 10_000
LEAVE_S = 2.0
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, COMMIT_VERSION, LEAVE_VERSION, FETCH_VERSION = 3, 3, 3, 7, 1, 9
_VERSION_OF_PROTOCOL = b"\0\0"
_JOIN_AGAIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)


class Reader:
    """Consumer of the demo. If `is_lost`, it ends without LeaveGroup, so the group waits for its session timeout."""

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
        """Read records until cancelled. Raises Refused if the broker returns a permanent error."""
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
        """Assign the partitions round robin to all members; called by the member that leads the group."""
        topic = self._broker.cluster.topics.get(self._topic)
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
        """Start at the committed offsets of the assigned partitions; without a committed offset at 0."""
        wanted = self._assigned(assignment)
        query = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self._group_id, topics=None)])
        fetched = await finished(groups_of(self._broker).offsets.offset_fetch(query, api_version=FETCH_VERSION))
        committed = {
            each.partition_index: each.committed_offset
            for topic in fetched.groups[0].topics
            if topic.name == self._topic
            for each in topic.partitions
        }
        self._positions = {index: max(0, committed.get(index, 0)) for index in wanted}

    def _assigned(self, assignment: bytes) -> set[int]:
        """Decode an assignment. Tolerates any bytes, because the group's leader may be a foreign client."""
        try:
            found = ConsumerProtocolAssignment.decode(assignment, 0, start=2)
        except ProtocolViolation:
            return set()
        topic = self._broker.cluster.topics.get(self._topic)
        count = 0 if topic is None else len(topic.partitions)
        given = (index for each in found.assigned_partitions if each.topic == self._topic for index in each.partitions)
        return {index for index in given if 0 <= index < count}

    async def _leave(self) -> None:
        leave = LeaveGroupRequest(group_id=self._group_id, member_id=self.member_id)
        await ask(self._broker, leave, LEAVE_VERSION)

    # ------------------------------------------------------------------ reading

    async def _read_until_rebalance(self) -> None:
        """Read, commit and send heartbeats until the coordinator reports a rebalance."""
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
        """Read the next record of the partition with the largest lag."""
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
        """Commit the current positions. If a rebalance rejects the commit, the next heartbeat reports the rebalance."""
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
        """Return True if `code` is no error, and False if it is temporary. Raises Refused for permanent errors."""
        error = ErrorCode.of(code)
        if error is not ErrorCode.NONE and not error.retriable and error not in _JOIN_AGAIN:
            raise refusal(error)
        return error is ErrorCode.NONE


logger = logging.getLogger("ottla.console")

TOPIC, GROUP = "ottla-learn", "ottla-learn-readers"
PARTITIONS, REPLICAS_MAX, READERS_MAX = 3, 3, 3
RECORDS_PER_S, LOAD_S, PATIENCE_S = 4, 600.0, 30.0
GROUP_NAMES_TRIED = 500
CONFIGS = {"retention.ms": "600000", "segment.ms": "60000"}
KEYS = ("apple", "banana", "cherry", "fig", "grape", "lemon", "lime", "mango", "pear")  # three of each partition


class Learning:
    """Demo of the Learn tab: its producer and consumers, and the handlers of the tab's buttons."""

    def __init__(self, broker: Broker, records: Records, *, may_start: bool) -> None:
        self._broker, self._records, self._may_start = broker, records, may_start
        self._started = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._readers: list[Reader] = []
        self._written = 0
        self._ends_at = 0.0
        self._problem = ""
        self.group_id = GROUP

    async def run(self) -> None:
        """Run the producer and consumers of the demo whenever it is started, until cancelled."""
        while True:
            await self._started.wait()
            self._problem = ""
            try:
                with self._broker.serving_state.work():
                    await self._load()
            except NotServing:
                self._problem = "The broker stops."
            except (Refused, KafkaError) as error:
                self._problem = str(error)
            except Exception:  # it would end the endpoint, and with it the broker
                logger.exception("bug: the load of the Learn tab")
                self._problem = "It has a bug, which the log of the broker tells of."
            self._nursery, self._readers = None, []
            self._started = trio.Event()

    # ------------------------------------------------------------------ what the page asks

    async def state(self, request: Request) -> dict[str, Any]:
        """Return the state of the demo, for the Learn tab."""
        left = max(0.0, self._ends_at - trio.current_time()) if self._started.is_set() else 0.0
        return {
            "mayStart": self._may_start,
            "isRunning": self._started.is_set(),
            "secondsLeft": round(left),
            "topic": TOPIC,
            "topicExists": TOPIC in self._broker.cluster.topics,
            "group": self.group_id,
            "written": self._written,
            "recordsPerSecond": RECORDS_PER_S,
            "readers": [{"member": each.member_id, "read": each.read_count} for each in self._readers],
            "readersMax": READERS_MAX,
            "problem": self._problem,
        }

    async def change(self, request: Request) -> dict[str, Any]:
        """Perform the demo's `action`: start, stop, add-reader, remove-reader or lose-reader."""
        action = requests.posted(request).get("action")
        if action == "start":
            if not self._started.is_set():
                self._ends_at = trio.current_time() + LOAD_S
                self._started.set()
        elif action in ("stop", "add-reader", "remove-reader", "lose-reader"):
            if self._nursery is None:
                raise Refused(409, "The load does not run.")
            self._change(self._nursery, action)
        else:
            raise Refused(400, "action must be start, stop, add-reader, remove-reader or lose-reader.")
        return await self.state(request)

    def _change(self, nursery: trio.Nursery, action: str) -> None:
        if action == "stop":
            nursery.cancel_scope.cancel()
        elif action == "add-reader":
            if len(self._readers) >= READERS_MAX:
                raise Refused(409, f"There are {READERS_MAX} readers already.")
            self._add_reader(nursery)
        elif not self._readers:
            raise Refused(409, "There is no reader.")
        else:
            reader = self._readers.pop()
            reader.is_lost = action == "lose-reader"
            reader.cancel_scope.cancel()

    # ------------------------------------------------------------------ the load

    async def _load(self) -> None:
        await self._ensure_topic()
        await self._broker.ensure_internal_topic("__consumer_offsets")
        self.group_id = self._own_group()
        problems: list[Exception] = []
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.cancel_scope.deadline = self._ends_at

            async def guarded(work: Any) -> None:
                # A nursery would wrap what is raised in it.
                try:
                    await work()
                except (Refused, KafkaError) as error:
                    problems.append(error)
                    nursery.cancel_scope.cancel()

            self._guarded = guarded
            nursery.start_soon(guarded, self._write)
            self._add_reader(nursery)
        if problems:
            raise problems[0]

    def _add_reader(self, nursery: trio.Nursery) -> None:
        reader = Reader(self._broker, self._records, self.group_id, TOPIC)
        self._readers.append(reader)
        nursery.start_soon(self._guarded, reader.run)

    async def _ensure_topic(self) -> None:
        """Create the demo's topic, with all partitions led by this broker, if it does not exist."""
        if TOPIC in self._broker.cluster.topics:
            return
        others = [each for each in sorted(self._broker.cluster.brokers) if each != self._broker.node_id]
        replicas = [self._broker.node_id, *others][:REPLICAS_MAX]
        topic = NewTopic(name=TOPIC, assignments=[(index, replicas) for index in range(PARTITIONS)], configs=CONFIGS)
        heard = trio.Event()
        refusals: list[KafkaError] = []

        def hear(name: str, error: KafkaError | None) -> None:
            if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                refusals.append(error)
            heard.set()

        self._broker.administration.request_topics([topic], hear)
        with trio.move_on_after(PATIENCE_S):
            await heard.wait()
            while not refusals and TOPIC not in self._broker.cluster.topics:
                await trio.sleep(0.05)
        if refusals:
            raise refusals[0]
        if TOPIC not in self._broker.cluster.topics:
            raise Refused(409, f"The topic {TOPIC} was not made in time.")

    def _own_group(self) -> str:
        names = (GROUP, *(f"{GROUP}-{number}" for number in range(2, GROUP_NAMES_TRIED)))
        for name in names:
            state = self._broker.cluster.partition("__consumer_offsets", groups_of(self._broker).partition_for(name))
            if state is not None and state.leader == self._broker.node_id:
                return name
        raise Refused(409, "This broker coordinates no groups.")

    async def _write(self) -> None:
        while True:
            number = self._written
            key, value = record_of(number)
            topic = self._broker.cluster.topics.get(TOPIC)
            if topic is None:
                raise Refused(409, f"The topic {TOPIC} was deleted.")
            partition = partition_of_key(key, len(topic.partitions))
            await produced(self._broker, TOPIC, partition, [Record(0, self._broker.now_ms(), key, value)])
            self._written += 1
            await trio.sleep(1 / RECORDS_PER_S)


def record_of(number: int) -> tuple[bytes, bytes]:
    """Return key and value of the demo's record number `number`, a sale in a fruit shop."""
    fruit = KEYS[number * 5 % len(KEYS)]
    sale: Mapping[str, object] = {"sale": number, "fruit": fruit, "grams": 100 + number * 37 % 900}
    return fruit.encode(), json.dumps(sale).encode()
