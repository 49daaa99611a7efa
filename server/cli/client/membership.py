"""Memberships of `ottla consume` in consumer groups, by both of Kafka's protocols. Blocking, in one thread.

    ClassicMember     JoinGroup, SyncGroup, Heartbeat: one member, the leader, assigns the partitions
    ConsumerMember    ConsumerGroupHeartbeat (KIP-848): the broker assigns the partitions

The owner of a member calls `beat` often. If `must_join` is set then, the owner commits and calls `join`, which returns the new assignment.
If `is_lost` is set, other members may have the partitions already, and nothing can be committed any more.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, Protocol

from ottla.server.cli.client.assignment import assigned, join_request, range_assignment, sync_request, topics_in
from ottla.server.cli.client.cluster import Cluster, Partition, TemporaryFailure, failed
from ottla.server.cli.client.connection import ANSWER_TIMEOUT_S, BrokerConnection
from ottla.server.cli.client.groups import NAMES_MAX_VERSION, commit_request
from ottla.server.cli.client.output import ConnectionLost, RequestFailed
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
)
from ottla.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.offsets import OffsetCommitResponse
from ottla.wire.schema import Message
from ottla.wire.text import UUID_BYTES, uuid_text

HEARTBEAT_S, RETRY_S = 3.0, 0.2
REBALANCE_S = 300.0
"""Time that a rebalance waits for a member that is busy with its output; Kafka's max.poll.interval.ms."""

METADATA_S = 30.0
LEAVE_S = 2.0
STALE_MAX = 3
"""Attempts of a commit while the epoch of the member changes."""
_PATIENCE_S = 10.0  # a group that was empty lets its first member wait for three seconds
_MOVED = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_LOST = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
)
"""Errors of a commit after which others may have the partitions."""


class Member(Protocol):
    """Member of a consumer group, with either group protocol."""

    must_join: bool
    is_lost: bool

    @property
    def is_settled(self) -> bool:
        """False if the coordinator may soon assign more partitions, even if the group does not change."""

    def beat(self) -> None:
        """Send a heartbeat if one is due. Raises RequestFailed."""

    def join(self) -> tuple[Partition, ...]:
        """Join the group, or accept a new assignment; return the assigned partitions. Raises RequestFailed.

        `must_join` is still set if it has to be called again. With `is_lost`, earlier positions are not valid any more.
        """

    def commit(self, offsets: Mapping[Partition, int], timeout_s: float = ANSWER_TIMEOUT_S) -> Collection[Partition]:
        """Commit offsets; return the partitions of which they are committed. Raises RequestFailed.

        Partitions whose topic is gone are left out. If the group does not take offsets from this member, the result is empty
        and `is_lost` is set. `timeout_s`: time for further attempts after a failure.
        """

    def leave(self) -> None:
        """Leave the group. Raises RequestFailed."""


class Coordinator:
    """Connection to a group's coordinator. If the coordinator moves, the connection finds it again."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.cluster, self.group = cluster, group
        self._connection: BrokerConnection | None = None

    def ask(
        self,
        request: Message,
        *,
        code_of: Callable[[Any], int] = attrgetter("error_code"),
        at_most: int = 1000,
        answer_s: float = ANSWER_TIMEOUT_S,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> Any:
        """Send a request, with retries, until a coordinator responds; return the response. Raises RequestFailed.

        `code_of` returns a response's error code (default: `error_code`). `answer_s`: seconds for one response; `timeout_s`: for
        retries after a failure.
        """

        def once() -> Any:
            try:
                answer = self._connected(timeout_s).ask(request, at_most=at_most, timeout_s=answer_s)
            except ConnectionLost as error:
                self.hang_up()
                raise TemporaryFailure(str(error)) from None
            if (code := code_of(answer)) in _MOVED:
                self._connection = None
                raise TemporaryFailure(str(failed(f"the coordinator of group {self.group}", code)))
            return answer

        return self.cluster.patiently(once, timeout_s)

    def commit(
        self, offsets: Mapping[Partition, int], member_id: str, epoch: int, timeout_s: float
    ) -> dict[Partition, int]:
        """Commit offsets as a member; return the error code of each partition. Raises RequestFailed."""
        request = commit_request(self.group, offsets, member_id, epoch)
        answer = self.ask(request, code_of=_commit_code, at_most=NAMES_MAX_VERSION, timeout_s=timeout_s)
        return {
            (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
        }

    def hang_up(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._connection is not None:
            self.cluster.drop(self._connection)
            self._connection = None

    def _connected(self, timeout_s: float) -> BrokerConnection:
        if self._connection is None or self._connection.is_closed:
            self._connection = self.cluster.coordinator(self.group, timeout_s=timeout_s)
            self._connection.patience_s = max(self._connection.patience_s, _PATIENCE_S)
        return self._connection


def _commit_code(answer: OffsetCommitResponse) -> int:
    """Return the first error code in a response to a commit; 0 if all offsets were committed."""
    return next((each.error_code for topic in answer.topics for each in topic.partitions if each.error_code), 0)


def _is_lost(codes: Mapping[Partition, int]) -> bool:
    return any(code in _LOST for code in codes.values())


def _committed(group: str, codes: Mapping[Partition, int]) -> list[Partition]:
    """Return the partitions without an error; leave those out whose topic is gone. Raises RequestFailed for others."""
    for (topic, number), code in codes.items():
        if code and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise failed(f"the offset of {topic}-{number} of group {group}", code)
    return [place for place, code in codes.items() if not code]


class ClassicMember:
    """Member of a classic group."""

    def __init__(self, cluster: Cluster, group: str, topics: Sequence[str]) -> None:
        self.must_join, self.is_lost, self.is_settled = True, False, True
        self._coordinator, self._cluster, self._group = Coordinator(cluster, group), cluster, group
        self._topics = sorted(topics)
        self._member_id, self._generation = "", -1
        self._next_beat_s = self._next_look_s = 0.0
        self._counts: dict[str, int] | None = None
        """Number of partitions of each topic when this member assigned them as the leader; None: it is not the leader."""

    def beat(self) -> None:
        now_s = time.monotonic()
        if self.must_join or now_s < self._next_beat_s:
            return
        self._next_beat_s = now_s + HEARTBEAT_S
        request = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id)
        self._note(self._coordinator.ask(request).error_code)
        if self._counts is not None and now_s > self._next_look_s:
            self._next_look_s = now_s + METADATA_S
            self.must_join = self.must_join or self._counted(list(self._counts)) != self._counts

    def _note(self, code: int) -> None:
        """Process the error code of a Heartbeat, JoinGroup or SyncGroup response. Raises RequestFailed."""
        if not code:
            return
        self.must_join = True
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return
        self.is_lost = True
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        elif code != ErrorCode.ILLEGAL_GENERATION:
            raise failed(f"group {self._group}", code)

    def join(self) -> tuple[Partition, ...]:
        try:
            self.must_join = self.is_lost = False
            joined = self._joined()
            partitions = () if self.must_join else self._synced(joined)
        except BaseException:
            self.must_join = self.is_lost = True
            raise
        if self.must_join:
            # In a generation that this member has missed, others may have had its partitions, and have committed more.
            self.is_lost = True
            time.sleep(RETRY_S)
            return ()
        self._next_beat_s = time.monotonic() + HEARTBEAT_S
        return partitions

    def _joined(self) -> JoinGroupResponse:
        while True:
            request = join_request(self._group, self._member_id, self._topics, REBALANCE_S)
            answer: JoinGroupResponse = self._coordinator.ask(request, answer_s=REBALANCE_S + ANSWER_TIMEOUT_S)
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
                continue
            self._note(answer.error_code)
            if not answer.error_code:
                self._member_id, self._generation = answer.member_id, answer.generation_id
            return answer

    def _synced(self, joined: JoinGroupResponse) -> tuple[Partition, ...]:
        self._counts = None
        shares: dict[str, list[Partition]] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            wanted = {each.member_id: topics_in(bytes(each.metadata)) for each in joined.members}
            self._counts = self._counted(sorted({topic for topics in wanted.values() for topic in topics}))
            self._next_look_s = time.monotonic() + METADATA_S
            shares = range_assignment(wanted, self._counts)
        request = sync_request(self._group, joined, shares)
        answer = self._coordinator.ask(request, answer_s=REBALANCE_S + ANSWER_TIMEOUT_S)
        self._note(answer.error_code)
        return assigned(bytes(answer.assignment))

    def _counted(self, topics: Sequence[str]) -> dict[str, int]:
        if not topics:
            return {}
        answer = self._cluster.metadata(topics)
        return {each.name or "": len(each.partitions) for each in answer.topics if not each.error_code}

    def commit(self, offsets: Mapping[Partition, int], timeout_s: float = ANSWER_TIMEOUT_S) -> Collection[Partition]:
        codes = self._coordinator.commit(offsets, self._member_id, self._generation, timeout_s)
        if _is_lost(codes):
            self.must_join = self.is_lost = True
            return ()
        return _committed(self._group, codes)

    def leave(self) -> None:
        self._coordinator.hang_up()
        if not self._member_id:
            return
        identity = MemberIdentity(member_id=self._member_id, reason="ottla consume ends")
        request = LeaveGroupRequest(group_id=self._group, member_id=self._member_id, members=[identity])
        self._coordinator.ask(request, answer_s=LEAVE_S, timeout_s=LEAVE_S)
        self._member_id = ""


_Place = tuple[bytes, int]
"""Id of a topic, and number of a partition."""

JOINING, LEAVING = 0, -1  # member epochs with a meaning of their own


def new_member_id() -> str:
    """Return a random member id in the form of Kafka's clients: a UUID in URL-safe base64."""
    return uuid_text(secrets.token_bytes(UUID_BYTES))


class ConsumerMember:
    """Member of a consumer group of KIP-848."""

    def __init__(self, cluster: Cluster, group: str, topics: Sequence[str]) -> None:
        self.must_join, self.is_lost = True, False
        self._coordinator, self._group = Coordinator(cluster, group), group
        self._topics = sorted(topics)
        self._names = TopicNames(cluster, self._topics)
        self._member_id, self._epoch = new_member_id(), JOINING
        self._may_be_member = False
        """True once a request to join was sent: the coordinator may have carried out one whose response never came."""
        self._owned: frozenset[_Place] = frozenset()
        self._target: frozenset[_Place] = frozenset()
        self._next_beat_s = 0.0
        self._settled_s = 0.0

    @property
    def is_settled(self) -> bool:
        return bool(self._owned) or time.monotonic() > self._settled_s

    def beat(self) -> None:
        if not self.must_join and time.monotonic() >= self._next_beat_s:
            self._send(self._epoch)

    def join(self) -> tuple[Partition, ...]:
        if self.is_lost or self._epoch == JOINING:
            self._owned = self._target = frozenset()
            self.is_lost = False
            self._settled_s = time.monotonic() + 2 * HEARTBEAT_S
            self._send(JOINING, is_whole=True)
        self.must_join = self.is_lost
        if not self.is_lost and self._owned != self._target:
            self._owned = self._target
            self._send(self._epoch, is_whole=True)
        return self._names.partitions(self._owned)

    def _send(self, epoch: int, *, is_whole: bool = False) -> None:
        """Send a heartbeat. `is_whole`: include the subscription and the owned partitions. Raises RequestFailed."""
        owned = [
            TopicPartitions(topic_id=topic_id, partitions=[number for _, number in places])
            for topic_id, places in groupby(sorted(self._owned), key=itemgetter(0))
        ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=int(REBALANCE_S * 1000) if is_whole else -1,
            subscribed_topic_names=self._topics if is_whole else None,
            topic_partitions=owned if is_whole else None,
        )
        self._may_be_member = True
        answer = self._coordinator.ask(request)
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._may_be_member = False
            self.must_join = self.is_lost = True
            self._epoch = JOINING
            time.sleep(RETRY_S)
            return
        if answer.error_code:
            refusal = failed(f"group {self._group}", answer.error_code, answer.error_message)
            is_unknown = answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            raise RequestFailed(f"{refusal}; try --group-protocol classic") if is_unknown else refusal
        self._epoch = answer.member_epoch
        self._next_beat_s = time.monotonic() + min(answer.heartbeat_interval_ms / 1000, HEARTBEAT_S)
        if answer.assignment is not None:
            self._target = places_in(answer.assignment)
            self.must_join = self._target != self._owned

    def commit(self, offsets: Mapping[Partition, int], timeout_s: float = ANSWER_TIMEOUT_S) -> Collection[Partition]:
        for _ in range(STALE_MAX):
            codes = self._coordinator.commit(offsets, self._member_id, self._epoch, timeout_s)
            if ErrorCode.STALE_MEMBER_EPOCH not in codes.values():
                break
            self._send(self._epoch)  # the response has the newer epoch
        if _is_lost(codes):
            self.must_join = self.is_lost = True
            self._epoch = JOINING
            return ()
        return _committed(self._group, codes)

    def leave(self) -> None:
        self._coordinator.hang_up()
        if not self._may_be_member:
            return
        request = ConsumerGroupHeartbeatRequest(group_id=self._group, member_id=self._member_id, member_epoch=LEAVING)
        self._coordinator.ask(request, answer_s=LEAVE_S, timeout_s=LEAVE_S)
        self._epoch, self._may_be_member = JOINING, False


class TopicNames:
    """Names and ids of topics, for protocols that use the ids."""

    def __init__(self, cluster: Cluster, topics: Sequence[str]) -> None:
        self._cluster, self._topics = cluster, topics
        self.ids: dict[str, bytes] = {}
        self.names: dict[bytes, str] = {}

    def partitions(self, found: Collection[_Place]) -> tuple[Partition, ...]:
        """Convert topic ids and numbers to partitions, sorted. Raises RequestFailed if a topic is not known in time."""
        if any(topic_id not in self.names for topic_id, _ in found):
            self._cluster.patiently(lambda: self._learn(found))
        return tuple(sorted((self.names[topic_id], number) for topic_id, number in found))

    def _learn(self, found: Collection[_Place]) -> None:
        for topic in self._cluster.metadata(self._topics).topics:
            if not topic.error_code:
                self.ids[topic.name or ""] = topic.topic_id
                self.names[topic.topic_id] = topic.name or ""
        if any(topic_id not in self.names for topic_id, _ in found):
            raise TemporaryFailure("the group assigns a topic that is not in the metadata of the brokers yet")


def places_in(assignment: Any) -> frozenset[_Place]:
    """Return the partitions of an assignment by their topics' ids."""
    return frozenset((each.topic_id, number) for each in assignment.topic_partitions for number in each.partitions)


def member_of(cluster: Cluster, group: str, topics: Sequence[str], protocol: str) -> Member:
    """Make a member of a group. `protocol`: name of the group protocol, one of PROTOCOLS."""
    return PROTOCOLS[protocol](cluster, group, topics)


PROTOCOLS: dict[str, Callable[[Cluster, str, Sequence[str]], Member]] = {
    "classic": ClassicMember,
    "consumer": ConsumerMember,
}
