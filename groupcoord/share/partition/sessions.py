"""Share sessions (KIP-932): a member names its partitions once, then only what has changed. Sans-IO.

A member has one session with each broker that leads partitions for it. A ShareFetch sets its epoch:

| epoch  | there is a session                         | there is none           |
|--------|--------------------------------------------|-------------------------|
| 0      | a new one in its place                     | a new one               |
| the next | goes on                                  | SHARE_SESSION_NOT_FOUND |
| another  | INVALID_SHARE_SESSION_EPOCH              | SHARE_SESSION_NOT_FOUND |
| -1     | it ends with this request                  | SHARE_SESSION_NOT_FOUND |

A ShareAcknowledge goes on with a session or ends it, and may not begin one. A session ends as well when its connection
is closed. A session belongs to the principal that began it: another one gets SHARE_SESSION_NOT_FOUND, also
for epoch 0. When a session ends, `on_end` releases the records of its member. A session that another one replaces does not
end in this sense.

Every partition is in the first answer. Later answers have a partition only if it has records or an error, if it is new
in the session, or if the answer before had an error for it. A partition that gave records moves to the end of the order.

The number of sessions is limited (group.share.max.share.sessions), and that of partitions in one and in all of them.
A member that names too many gets no session, or loses the one that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.wire.errors import ErrorCode, KafkaError

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
SESSION_PARTITIONS_MAX = 5_000
PARTITIONS_MAX = 100_000
"""Partitions in all sessions together, including those of unknown topics."""

_EPOCH_MAX = (1 << 31) - 1


class SessionKey(NamedTuple):
    """Key of a share session: the group, the member, and the principal of the member's client."""

    group_id: str
    member_id: str
    principal: str

    @property
    def member(self) -> tuple[str, str]:
        """Group id and member id."""
        return self.group_id, self.member_id


class TopicPartition(NamedTuple):
    """Partition that a member has named. `topic` is None if its topic id is unknown."""

    topic: str | None
    topic_id: bytes
    partition: int


class ShareSession:
    """Share session of one member: its partitions, in the order in which they are served."""

    __slots__ = ("connection", "due", "epoch", "is_over", "key", "partitions")

    def __init__(self, key: SessionKey, connection: object) -> None:
        self.key = key
        self.connection = connection
        self.epoch = 1
        self.is_over = False
        self.partitions: dict[tuple[bytes, int], TopicPartition] = {}
        self.due: set[tuple[bytes, int]] = set()  # the next response has them in any case

    def update(self, wanted: Iterable[TopicPartition], forgotten: Iterable[TopicPartition]) -> None:
        """Add the partitions `wanted` and remove the partitions `forgotten`."""
        for each in wanted:
            key = each.topic_id, each.partition
            if key not in self.partitions:
                self.partitions[key] = each
                self.due.add(key)
        for each in forgotten:
            key = each.topic_id, each.partition
            self.partitions.pop(key, None)
            self.due.discard(key)

    def must_include(self, partition: TopicPartition, *, has_records: bool, has_error: bool) -> bool:
        """Return True if the next response must include the partition: it is due, or has records or an error.

        This makes it no longer due, except after an error: the response after that must show that the error is over. A
        partition with records becomes the last to be served.
        """
        key = partition.topic_id, partition.partition
        must = has_records or has_error or key in self.due
        # The response after an error has to say that it is over.
        if has_error and key in self.partitions:
            self.due.add(key)
        else:
            self.due.discard(key)
        if has_records and (moved := self.partitions.pop(key, None)) is not None:
            self.partitions[key] = moved
        return must


class ShareSessions:
    """All share sessions of a broker. `on_end` is called with each session that ends."""

    def __init__(self, limit: Callable[[], int], on_end: Callable[[ShareSession], None]) -> None:
        self._limit = limit
        self._on_end = on_end
        self._sessions: dict[tuple[str, str], ShareSession] = {}  # by group and member
        self._by_connection: dict[object, dict[SessionKey, None]] = {}
        self._members: dict[str, int] = {}  # number of sessions by group
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def has_group(self, group_id: str) -> bool:
        """Return True if any member of the group has a session."""
        return group_id in self._members

    def get(self, key: SessionKey) -> ShareSession:
        """Return the member's session. Raises KafkaError if there is none."""
        session = self._session_of_same(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def _session_of_same(self, key: SessionKey) -> ShareSession | None:
        session = self._sessions.get(key.member)
        return session if session is not None and session.key == key else None

    def check_size(self, key: SessionKey, epoch: int, count: int) -> None:
        """End the session and raise KafkaError if a request names too many partitions. Call this before other work."""
        if count > SESSION_PARTITIONS_MAX:
            self.end(key)
            is_first = epoch == INITIAL_EPOCH
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED if is_first else ErrorCode.SHARE_SESSION_NOT_FOUND)

    def begin(self, key: SessionKey, wanted: Iterable[TopicPartition], connection: object) -> ShareSession:
        """Begin a session in place of the member's former one. Raises KafkaError if limits are exceeded."""
        session = ShareSession(key, connection)
        session.update(wanted, ())
        session.due.clear()  # the first response has them all anyway
        before = self._session_of_same(key)
        if before is None and key.member in self._sessions:
            # Records are held by the member id alone.
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        others, more = len(self._sessions), len(session.partitions)
        if before is not None:
            others, more = others - 1, more - len(before.partitions)
        if others >= self._limit() or not self._has_room(len(session.partitions), more):
            # Without a session nothing would ever release the records of the member.
            self.end(key)
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        # No records are released: the member may acknowledge records of the session before later.
        if before is not None:
            self._forget(before)
        self._sessions[key.member] = session
        self._by_connection.setdefault(connection, {})[key] = None
        self._members[key.group_id] = self._members.get(key.group_id, 0) + 1
        self._partitions += len(session.partitions)
        return session

    def advance(
        self,
        key: SessionKey,
        epoch: int,
        wanted: Iterable[TopicPartition] = (),
        forgotten: Iterable[TopicPartition] = (),
    ) -> ShareSession:
        """Apply a session's next request and raise its epoch.

        Raises KafkaError for a wrong epoch, or for too many partitions; the latter ends the session.
        """
        session = self.get(key)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        before = len(session.partitions)
        session.update(wanted, forgotten)
        self._partitions += len(session.partitions) - before
        if not self._has_room(len(session.partitions), 0):
            self.end(key)
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def _has_room(self, size: int, more: int) -> bool:
        return size <= SESSION_PARTITIONS_MAX and self._partitions + more <= PARTITIONS_MAX

    def end(self, key: SessionKey) -> None:
        """End the member's session, if there is one."""
        session = self._session_of_same(key)
        if session is not None:
            self._forget(session)
            self._on_end(session)

    def _forget(self, session: ShareSession) -> None:
        key = session.key
        session.is_over = True
        del self._sessions[key.member]
        self._partitions -= len(session.partitions)
        self._members[key.group_id] -= 1
        if not self._members[key.group_id]:
            del self._members[key.group_id]
        of_connection = self._by_connection[session.connection]
        del of_connection[key]
        if not of_connection:
            del self._by_connection[session.connection]

    def disconnect(self, connection: object) -> None:
        """End all sessions of a closed connection."""
        for key in tuple(self._by_connection.get(connection, ())):
            self.end(key)
