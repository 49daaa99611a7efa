"""Consumer in a share group (KIP-932): records are acquired one by one, written, and then acknowledged.

    ShareConsumer     heartbeats, share sessions with the leaders of the assigned partitions, fetches and acknowledgements
    Acquired          records of one partition that this member has acquired, until `acknowledge`

Each leader has one request in flight. The next fetch is sent after the records of the one before are acknowledged, so that no record is
locked while it waits for others. If the command is killed, its unacknowledged records come again when their lock ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.server.cli.client.cluster import (
    Cluster,
    Partition,
    Patience,
    TemporaryFailure,
    by_topic,
    failed,
    leader_of_each,
)
from ottla.server.cli.client.connection import BrokerConnection
from ottla.server.cli.client.consumer import Batch, corrupt, responding
from ottla.server.cli.client.membership import (
    JOINING,
    LEAVE_S,
    LEAVING,
    Coordinator,
    TopicNames,
    new_member_id,
    places_in,
)
from ottla.server.cli.client.output import ConnectionLost, RequestFailed, say
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from ottla.wire.messages.share_group import ShareGroupHeartbeatRequest
from ottla.wire.records import crc_is_valid, iter_batches

GAP, ACCEPT, RELEASE, REJECT = range(4)
"""Types of acknowledgements. A gap is an offset without a record."""

RECORDS_MAX = 500
ACQUIRED_MAX = 100_000
"""Limit of the offsets in one response, ten times the number that a broker may lock in a partition."""

MAX_WAIT_MS = 500
ANSWER_BYTES = 16 << 20
LOCK_MS = 30_000  # for brokers whose response has no timeout of the lock
EMPTY_ROUNDS = 2
BEAT_S, FIRST_BEAT_S = 3.0, 0.2
_ACQUIRE_MODE_VERSION, _RECORD_LIMIT = 2, 1  # not more records than asked for (KIP-1206)
_NEW_SESSION = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)


class Acquired(NamedTuple):
    """Records of a partition that this member has acquired."""

    place: Partition
    leader: int
    offsets: frozenset[int]
    batches: list[Batch]
    """Batches with the acquired records, and maybe others."""
    until_s: float
    """Time by time.monotonic() at which the lock of the records ends."""


@dataclass(slots=True)
class _Session:
    """Share session with one leader. `epoch` 0 begins it."""

    connection: BrokerConnection
    epoch: int = 0
    partitions: set[Partition] = field(default_factory=set)
    is_asked: bool = False

    def next_epoch(self) -> int:
        epoch = self.epoch
        self.epoch = epoch + 1 if epoch < (1 << 31) - 1 else 1
        return epoch


class ShareConsumer:
    """Member of a share group."""

    def __init__(self, cluster: Cluster, group: str, topics: Sequence[str]) -> None:
        self.assigned_s = time.monotonic()
        """Time by time.monotonic() at which partitions were assigned."""
        self._empty_rounds = 0
        self._cluster, self._group, self._topics = cluster, group, sorted(topics)
        self._coordinator = Coordinator(cluster, group)
        self._names = TopicNames(cluster, self._topics)
        self._member_id, self._epoch = new_member_id(), JOINING
        self._may_be_member = False
        """True once a request to join was sent: the coordinator may have carried out one whose response never came."""
        self._assigned: tuple[Partition, ...] = ()
        self._next_beat_s = 0.0
        self._sessions: dict[int, _Session] = {}
        self._leaders: dict[Partition, int] = {}
        self._patience = Patience()

    @property
    def is_idle(self) -> bool:
        """True if all leaders have been asked twice in a row without a record."""
        return self._empty_rounds >= EMPTY_ROUNDS * max(1, len(self._sessions))

    # --- the group

    def beat(self) -> None:
        """Send a heartbeat if one is due. Raises RequestFailed."""
        if time.monotonic() < self._next_beat_s:
            return
        is_new = self._epoch == JOINING
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=self._topics if is_new else None,
        )
        self._may_be_member = True
        answer = self._coordinator.ask(request)
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH) and not is_new:
            self._epoch, self._may_be_member = JOINING, False
            return
        if answer.error_code:
            raise failed(f"group {self._group}", answer.error_code, answer.error_message)
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assigned_s = time.monotonic()
            self._assigned = self._names.partitions(places_in(answer.assignment))
        self._next_beat_s = time.monotonic() + (BEAT_S if self._assigned else FIRST_BEAT_S)

    def end(self) -> None:
        """Release the acquired records, and leave the group. Raises RequestFailed."""
        for session in self._sessions.values():
            # A broker also releases the records when the connection ends, but later.
            if not session.is_asked and session.epoch > 0:
                request = ShareAcknowledgeRequest(
                    group_id=self._group, member_id=self._member_id, share_session_epoch=LEAVING, topics=[]
                )
                with suppress(ConnectionLost):
                    session.connection.ask(request, timeout_s=LEAVE_S)
            session.connection.close()
        self._sessions.clear()
        self._coordinator.hang_up()
        if self._may_be_member:
            leaving = ShareGroupHeartbeatRequest(group_id=self._group, member_id=self._member_id, member_epoch=LEAVING)
            self._coordinator.ask(leaving, answer_s=LEAVE_S, timeout_s=LEAVE_S)

    # --- records

    def round(self, records_max: int) -> Iterator[Acquired]:
        """Yield the records that one round of fetches acquires, `records_max` from each leader at most."""
        self.beat()
        if not self._assigned:
            time.sleep(FIRST_BEAT_S)
            return
        found = 0
        try:
            self._ask_all(records_max)
            asked = {leader: each.connection for leader, each in self._sessions.items() if each.is_asked}
            for leader in responding(asked):
                for each in self._taken(leader):
                    found += 1
                    yield each
        except (TemporaryFailure, ConnectionLost) as error:
            self._wait_for_better(error)
            return
        self._patience.renew()
        self._empty_rounds = 0 if found else self._empty_rounds + 1

    def _ask_all(self, records_max: int) -> None:
        if any(place not in self._leaders for place in self._assigned):
            self._leaders = leader_of_each(self._cluster, self._assigned)
        wanted: dict[int, set[Partition]] = {each: set() for each in self._sessions}
        for place in self._assigned:
            wanted.setdefault(self._leaders[place], set()).add(place)
        for leader, places in wanted.items():
            if leader not in self._sessions:
                self._sessions[leader] = _Session(self._cluster.connected(leader))
            session = self._sessions[leader]
            if not session.is_asked and (places or session.partitions):
                self._ask(session, places, records_max)

    def _ask(self, session: _Session, places: set[Partition], records_max: int) -> None:
        if session.epoch == 0:
            session.partitions.clear()
        added, removed = places - session.partitions, session.partitions - places
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=session.next_epoch(),
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=ANSWER_BYTES,
            max_records=records_max,
            batch_size=records_max,
            topics=[
                FetchTopic(
                    topic_id=self._names.ids[topic],
                    partitions=[FetchPartition(partition_index=each, acknowledgement_batches=[]) for each in numbers],
                )
                for topic, numbers in by_topic(sorted(added)).items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=self._names.ids[topic], partitions=numbers)
                for topic, numbers in by_topic(sorted(removed)).items()
            ],
        )
        if session.connection.version_of(ShareFetchRequest) >= _ACQUIRE_MODE_VERSION:
            request.share_acquire_mode = _RECORD_LIMIT
        session.connection.send(request)
        session.partitions = set(places)
        session.is_asked = True

    def _taken(self, leader: int) -> list[Acquired]:
        session = self._sessions[leader]
        answer = session.connection.receive()
        session.is_asked = False
        if answer.error_code in _NEW_SESSION:
            session.epoch = 0
            return []
        self._cluster.check(f"records of group {self._group}", answer.error_code, answer.error_message)
        until_s = time.monotonic() + (answer.acquisition_lock_timeout_ms or LOCK_MS) / 1000
        found = []
        for topic in answer.responses:
            for part in topic.partitions:
                place = self._names.names.get(topic.topic_id, ""), part.partition_index
                if place not in session.partitions:
                    continue  # this member has lost the partition meanwhile
                self._cluster.check(f"partition {place[0]}-{place[1]}", part.error_code, part.error_message)
                if part.acquired_records:
                    found.append(_acquired(place, leader, part, until_s))
        return found

    def acknowledge(self, acquired: Acquired, types: Mapping[int, int]) -> bool:
        """Acknowledge all records of `acquired`: type by offset. Return False if their lock had ended before.

        Raises RequestFailed.
        """
        topic, number = acquired.place
        too_late = f"records of {topic}-{number} were written too late to be acknowledged: they come again"
        session = self._sessions.get(acquired.leader)
        if session is None:
            say(too_late)
            return False
        part = AcknowledgePartition(partition_index=number, acknowledgement_batches=_runs(types))
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=session.next_epoch(),
            topics=[AcknowledgeTopic(topic_id=self._names.ids[topic], partitions=[part])],
        )
        try:
            answer = session.connection.ask(request)
        except ConnectionLost as error:
            del self._sessions[acquired.leader]
            session.connection.close()
            say(f"{error}; {too_late}")
            return False
        codes = [answer.error_code, *(each.error_code for found in answer.responses for each in found.partitions)]
        code = next(filter(None, codes), 0)
        if code in _NEW_SESSION:
            session.epoch = 0
        if code in (*_NEW_SESSION, ErrorCode.INVALID_RECORD_STATE, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            say(too_late)
            return False
        if code:
            raise failed(f"acknowledging records of {topic}-{number}", code)
        return True

    def _wait_for_better(self, error: Exception) -> None:
        """Pause before leaders are looked up again. Raises RequestFailed if errors last for ANSWER_TIMEOUT_S."""
        for each in self._sessions.values():
            each.connection.close()
        self._sessions.clear()
        self._leaders.clear()
        self._patience.bear(error)


def _acquired(place: Partition, leader: int, part: Any, until_s: float) -> Acquired:
    if sum(max(0, each.last_offset - each.first_offset + 1) for each in part.acquired_records) > ACQUIRED_MAX:
        raise RequestFailed(f"the broker gives more than {ACQUIRED_MAX:,} records at once; is it a Kafka broker?")
    offsets = frozenset(
        offset for each in part.acquired_records for offset in range(each.first_offset, each.last_offset + 1)
    )
    batches = []
    # A copy, because acknowledgements are answered before all of it is written.
    records = memoryview(bytes(part.records or b""))
    try:
        for header, start, end in iter_batches(records):
            if not crc_is_valid(records, start, end):
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset}")
            if not header.is_control:
                batches.append(Batch(place, leader, header, records, start, end, header.base_offset))
    except KafkaError as error:
        raise corrupt(place, error) from None
    return Acquired(place, leader, offsets, batches, until_s)


def _runs(types: Mapping[int, int]) -> list[AcknowledgementBatch]:
    """Join neighbouring offsets of one type."""
    found: list[AcknowledgementBatch] = []
    for offset, kind in sorted(types.items()):
        last = found[-1] if found else None
        if last is not None and last.last_offset == offset - 1 and last.acknowledge_types == [kind]:
            last.last_offset = offset
        else:
            found.append(AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[kind]))
    return found
