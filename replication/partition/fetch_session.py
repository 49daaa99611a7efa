"""Incremental fetch sessions (KIP-227): a consumer names its partitions once, then only what changed.

What a request's session id and epoch ask for:

    id    epoch   meaning
    0     0       full fetch; the answer carries a new session id if the cache has room
    0     -1      full fetch without a session
    N     0, -1   full fetch that first closes session N (0 also asks for a new one)
    N     n >= 1  incremental: `topics` are added or changed, `forgotten_topics_data` removed; n must be the next epoch

A session belongs to the principal that began it. To others its id is unknown: they neither go on with it nor close it.

Errors of an incremental fetch: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR
(names and topic ids may not be mixed). A session whose last partition is forgotten ends, and one that becomes too large
ends as well: the client then requests a new session, and gets none.

An incremental answer holds a partition only if it has news: records, an error, a moved high watermark or log
start offset, a preferred replica, a diverging epoch. A partition that returned records moves to the end of the order, so
that all get their turn. Partitions of large sessions without news are left idle (`idle_partitions.py`). A
session is created with the answer to its first fetch. If a client sends the next epoch while an earlier fetch still waits,
that earlier fetch is answered with INVALID_FETCH_SESSION_EPOCH. Kafka: FetchManager, FetchContext, FetchSessionCacheShard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from ottla.replication.partition.followers import LastFetch
from ottla.replication.partition.idle_partitions import IDLE_FROM, FetchTarget, IdleTarget, Key
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData

if TYPE_CHECKING:
    from ottla.replication.cluster.metadata_cache import MetadataCache
    from ottla.replication.partition.followers import Follower
    from ottla.replication.partition.partition import Partition

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
TOPIC_IDS_SINCE = 13
EVICTION_MS = 120_000  # Kafka's min.incremental.fetch.session.eviction.ms
NAMED_PER_STEP = 500
SESSION_PARTITIONS_MAX = 50_000
IDLE_READ_MAX = 1_000  # the next fetch tells of the idle partitions of a larger session
PARTITIONS_MAX = 100_000
"""Greatest number of partitions in all sessions together. Each takes some 800 bytes, whether it exists or not."""

_INT_MAX = (1 << 31) - 1

_by_place = attrgetter("place")


# | state  | begins with                | the next fetch              | ends                                          |
# |--------|----------------------------|-----------------------------|-----------------------------------------------|
# | open   | the answer to a full fetch | goes on, by the right epoch | when the client ends, replaces or empties it, |
# |        |                            |                             | when it is too large, or when others evict it |
# | closed | `close`                    | FETCH_SESSION_ID_NOT_FOUND  | with the answer to its last fetch             |
class FetchSession:
    """Partitions of one fetch session, in the order in which they are read."""

    __slots__ = (
        "_awake",
        "_last_place",
        "circumstances",
        "created_ms",
        "epoch",
        "is_closed",
        "is_follower",
        "last_fetch",
        "last_used_ms",
        "on_wake",
        "principal",
        "session_id",
        "targets",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, principal: str, *, uses_topic_ids: bool, is_follower: bool, now_ms: int
    ) -> None:
        self.session_id = session_id
        self.principal = principal
        self.uses_topic_ids = uses_topic_ids
        self.is_follower = is_follower
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = 1
        self.targets: dict[Key, FetchTarget] = {}
        self._awake: dict[FetchTarget, None] = {}
        self._last_place = 0
        self.is_closed = False
        self.last_fetch = LastFetch()
        self.circumstances: object = None  # of the fetches for which the idle partitions are idle
        self.on_wake: Callable[[IdleTarget], None] | None = None  # what the request in progress wants to hear

    def update(self, changed: Iterable[FetchTarget], forgotten: Iterable[Key]) -> None:
        for target in changed:
            known = self.targets.get(target.key)
            if known is None:
                self._append(target)
                self._awake[target] = None
            else:
                # What made it idle was true of the old question only. What the client was told stays: only news is
                # owed to it.
                self.wake(known)
                known.asked = target.asked
        for key in forgotten:
            known = self.targets.pop(key, None)
            if known is not None:
                # This takes the watcher away, which would hold the session.
                self.wake(known)
                del self._awake[known]

    def _append(self, target: FetchTarget) -> None:
        self.targets[target.key] = target
        # Places only rise, so a partition that moves to the end needs no other one to be renumbered.
        self._last_place += 1
        target.place = self._last_place

    def advance(self, now_ms: int) -> None:
        # Kafka's epochs go on at 1: 0 and -1 have meanings of their own.
        self.epoch = 1 if self.epoch == _INT_MAX else self.epoch + 1
        self.last_used_ms = now_ms

    def move_to_end(self, target: FetchTarget) -> None:
        # A long answer is made in pieces. Meanwhile another request may have forgotten the partition, or added it
        # again.
        if self.targets.get(target.key) is target:
            del self.targets[target.key]
            self._append(target)

    # --- idle partitions

    @property
    def has_idle(self) -> bool:
        return len(self._awake) < len(self.targets)

    def awake(self) -> list[FetchTarget]:
        """Return the targets that the next fetch has to read, in reading order."""
        # Partitions wake up in any order. While none is idle, the dict has them in order already.
        return sorted(self._awake, key=_by_place) if self.has_idle else list(self.targets.values())

    def let_idle(
        self, target: FetchTarget, partition: Partition, role: tuple[object, ...], follower: Follower | None
    ) -> None:
        """Skip a partition in fetches until it changes."""
        del self._awake[target]
        target.idle = IdleTarget(target, partition, role, follower, self._on_change)
        target.idle.begin(self.last_fetch)

    def _on_change(self, idle: IdleTarget) -> None:
        self.wake(idle.target)
        if self.on_wake is not None:
            self.on_wake(idle)

    def wake(self, target: FetchTarget) -> None:
        """Read an idle partition again in the next fetch."""
        idle, target.idle = target.idle, None
        if idle is not None:
            idle.end(self.last_fetch)
            self._awake[target] = None

    def wake_all(self) -> None:
        if self.has_idle:
            for target in self.targets.values():
                self.wake(target)

    def close(self) -> None:
        """Close the session; only its last fetch may still send a response."""
        self.is_closed = True
        self.on_wake = None
        # Else the watchers of idle partitions would keep a session that is unusable.
        self.wake_all()


class FetchContext:
    """Partitions to read for one fetch request, and the fetch session that its response belongs to."""

    __slots__ = ("_begin", "_epoch", "error", "session", "targets")

    def __init__(
        self,
        targets: list[FetchTarget],
        *,
        error: ErrorCode = ErrorCode.NONE,
        session: FetchSession | None = None,
        begin: Callable[[list[FetchTarget]], FetchSession | None] | None = None,
    ) -> None:
        """Create a context; an incremental fetch continues `session`, a full fetch creates its session with `begin`."""
        self.targets = targets
        self.error = error
        self.session = session
        self._begin = begin
        # The session has advanced for this request already. Whoever comes next advances it again, and makes this
        # answer stale.
        self._epoch = session.epoch if session is not None else INITIAL_EPOCH

    @property
    def session_id(self) -> int:
        return self.session.session_id if self.session is not None else NO_SESSION

    def begin(self, answers: list[tuple[FetchTarget, PartitionData]]) -> bool:
        """Create the session of a full fetch, with the targets of `answers`; return True.

        For an incremental fetch return False if the session has a newer request; `answers` must not be sent then.
        """
        if self._begin is not None:
            # The session holds the partitions in the order of the answer.
            self.session = session = self._begin([target for target, _ in answers])
            self._epoch = INITIAL_EPOCH if session is None else session.epoch
            return True
        return self.goes_on()

    def goes_on(self) -> bool:
        """Return True if the session has no newer request; otherwise turn the response into an error."""
        if self.session is not None and self.session.epoch != self._epoch:
            self.error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return False
        return True

    def select(self, answers: list[tuple[FetchTarget, PartitionData]]) -> list[tuple[FetchTarget, PartitionData]]:
        """Choose the partitions of the response and remember what was sent. Call this after `begin`."""
        if self._begin is not None:
            # A full fetch is told everything. `has_news` is called only because it remembers what is told.
            for target, data in answers:
                target.has_news(data)
            return answers
        if self.session is None:
            return answers
        told = [(target, data) for target, data in answers if target.has_news(data)]
        # So that partitions with many records do not keep those behind them from their turn.
        for target, data in told:
            if data.records:
                self.session.move_to_end(target)
        return told

    # --- idle partitions: those of the session that are not among `targets`

    @property
    def has_idle(self) -> bool:
        """True if the session has idle partitions, which are not in `targets`."""
        return self.session is not None and self.session.has_idle

    @property
    def may_look_at_idle(self) -> bool:
        """True if the session has idle partitions, and few enough partitions to read all of them."""
        session = self.session
        return session is not None and self.may_let_idle and session.has_idle and len(session.targets) <= IDLE_READ_MAX

    @property
    def may_let_idle(self) -> bool:
        """True if the session is large enough for idle partitions and this request is its latest."""
        session = self.session
        return (
            session is not None
            and len(session.targets) >= IDLE_FROM
            and session.epoch == self._epoch
            and not session.is_closed
        )

    def confirm(self, circumstances: object, now_ms: int) -> None:
        """Record a fetch at `now_ms` as a fetch of all idle followers.

        If `circumstances` is None or differs from the last fetch's, wake all idle partitions instead.
        """
        session = self.session
        if session is not None and session.has_idle:
            if circumstances is None or circumstances != session.circumstances:
                # Nothing is known any more about what the idle ones have to tell.
                session.wake_all()
                self.targets = session.awake()
            else:
                # This one note says for all idle followers that they hold the whole log now.
                session.last_fetch.at_ms = now_ms

    def let_idle(
        self,
        target: FetchTarget,
        partition: Partition,
        *,
        role: tuple[object, ...],
        follower: Follower | None,
        circumstances: object,
    ) -> None:
        """Skip `target` in fetches until its partition changes. Call this after `select`, only if `may_let_idle`."""
        assert self.session is not None
        self.session.circumstances = circumstances
        self.session.let_idle(target, partition, role, follower)

    def on_wake(self, listener: Callable[[IdleTarget], None] | None) -> None:
        """Set the function to call when an idle partition changes; None removes it."""
        # An older request that still waits must not take the listener of a newer one away.
        if self.session is not None and self.session.epoch == self._epoch and not self.session.is_closed:
            self.session.on_wake = listener

    def add_woken(self, target: FetchTarget) -> None:
        """Add a woken partition to the targets of this fetch."""
        self.targets.append(target)


def random_session_id(random_bytes: Callable[[int], bytes]) -> int:
    """Return a random, unpredictable positive int32."""
    while (session_id := int.from_bytes(random_bytes(4)) & _INT_MAX) == NO_SESSION:
        pass
    return session_id


class FetchSessionCache:
    """All fetch sessions of this broker; `new_id` returns a random positive int32."""

    def __init__(
        self,
        slots: int,
        new_id: Callable[[], int],
        *,
        session_partitions_max: int = SESSION_PARTITIONS_MAX,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        self._slots = slots
        self._session_partitions_max = session_partitions_max
        self._partitions_max = partitions_max
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        request: FetchRequest,
        version: int,
        cluster: MetadataCache,
        now_ms: int,
        principal: str,
        named: NamedPartitions | None = None,
    ) -> FetchContext:
        """Return the context of a fetch request, by the table in the module's docstring.

        `named` holds the request's partitions if they have been read already.
        """
        changed = _targets(request, version, cluster) if named is None else named.targets
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            # A client that begins again does not come back to its old session. Without this it would keep a slot for
            # minutes.
            if self._session_of(principal, request.session_id) is not None:
                self._close(request.session_id)
            if request.session_epoch == FINAL_EPOCH:
                return FetchContext(changed)
            # The session is made with the answer. A fetch that is given up while it waits leaves none behind.
            return FetchContext(changed, begin=partial(self._create, request, version, now_ms, principal))
        forgotten = _forgotten(request, version) if named is None else named.forgotten
        return self._incremental(request, version, changed, forgotten, cluster, now_ms, principal)

    def _session_of(self, principal: str, session_id: int) -> FetchSession | None:
        session = self._sessions.get(session_id)
        return session if session is not None and session.principal == principal else None

    def _incremental(
        self,
        request: FetchRequest,
        version: int,
        changed: list[FetchTarget],
        forgotten: list[Key],
        cluster: MetadataCache,
        now_ms: int,
        principal: str,
    ) -> FetchContext:
        session = self._session_of(principal, request.session_id)
        # The checks come in Kafka's order. None of them may change the session: its owner may still go on with it.
        if session is None:
            return FetchContext([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return FetchContext([], error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= TOPIC_IDS_SINCE):
            return FetchContext([], error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        # An earlier request may still wait. Its answer will be an error, so it need not hear of anything.
        session.on_wake = None
        before = len(session.targets)
        session.update(changed, forgotten)
        # Only growth is refused. Its partitions are counted in already, so it asks for no more of them.
        if len(session.targets) > before and not self._has_room(len(session.targets), 0):
            self._close(session.session_id)
            return FetchContext([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        # As in Kafka: nothing is left to keep, and the request is answered without a session.
        if not session.targets:
            self._close(session.session_id)
            return FetchContext(changed)
        session.advance(now_ms)
        targets = session.awake()
        for target in targets:
            # The topic may have been created, or become known here, after the client named its id.
            if target.topic is None:
                target.topic = _topic_name(cluster, target.topic_id)
        return FetchContext(targets, session=session)

    def _has_room(self, size: int, more: int) -> bool:
        """Tell whether a session may have `size` partitions, and all sessions together `more` additional ones."""
        # Counted again each time, because sessions begin and grow seldom.
        held = sum([len(session.targets) for session in self._sessions.values()])
        return size <= self._session_partitions_max and held + more <= self._partitions_max

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _create(
        self, request: FetchRequest, version: int, now_ms: int, principal: str, targets: list[FetchTarget]
    ) -> FetchSession | None:
        is_follower = request.replica_id >= 0 or request.replica_state.replica_id >= 0
        if not self._has_room(len(targets), len(targets)):
            return None
        if len(self._sessions) >= self._slots and not self._evict(len(targets), is_follower, now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(
            session_id, principal, uses_topic_ids=version >= TOPIC_IDS_SINCE, is_follower=is_follower, now_ms=now_ms
        )
        session.update(targets, ())
        self._sessions[session_id] = session
        return session

    def _evict(self, size: int, is_follower: bool, now_ms: int) -> bool:
        """Make room for a session of `size` partitions; return False if no session may be evicted.

        Evicts the least recently used session if it is stale. Otherwise evicts the session of the lowest rank, if it is
        not new and the new session ranks higher. Followers rank above consumers, then large sessions above small ones.
        """
        if not self._sessions:
            return False
        # Kafka's order: first unused sessions, then what is worth least. Followers are worth more than
        # consumers, and large sessions more than small ones, since they save more.
        stale = min(self._sessions.values(), key=lambda session: session.last_used_ms)
        if now_ms - stale.last_used_ms > EVICTION_MS:
            self._close(stale.session_id)
            return True
        least = min(self._sessions.values(), key=lambda session: (session.is_follower, len(session.targets)))
        is_better = (is_follower, size) > (least.is_follower, len(least.targets))
        # A young session is spared, or clients would drive each other's sessions out with every fetch.
        if is_better and now_ms - least.created_ms > EVICTION_MS:
            self._close(least.session_id)
            return True
        return False


def _topic_name(cluster: MetadataCache, topic_id: bytes) -> str | None:
    topic = cluster.topic_by_id.get(topic_id)
    return None if topic is None else topic.name


def _targets(request: FetchRequest, version: int, cluster: MetadataCache) -> list[FetchTarget]:
    """Return a request's targets; a partition named twice keeps its first position and its last parameters."""
    targets: dict[Key, FetchTarget] = {}
    for topic in request.topics:
        _add_targets(targets, topic, topic.partitions, version, cluster)
    return list(targets.values())


def _add_targets(
    targets: dict[Key, FetchTarget],
    topic: FetchTopic,
    partitions: Iterable[FetchPartition],
    version: int,
    cluster: MetadataCache,
) -> None:
    # An unknown id stays a target without a name: the client has to be told UNKNOWN_TOPIC_ID for it.
    name = topic.topic if version < TOPIC_IDS_SINCE else _topic_name(cluster, topic.topic_id)
    key = topic.topic if version < TOPIC_IDS_SINCE else topic.topic_id
    for partition in partitions:
        targets[key, partition.partition] = FetchTarget(name, topic.topic_id, partition)


def _forgotten(request: FetchRequest, version: int) -> list[Key]:
    return [key for topic in request.forgotten_topics_data for key in _keys(topic, topic.partitions, version)]


def _keys(topic: ForgottenTopic, partitions: Iterable[int], version: int) -> list[Key]:
    key = topic.topic if version < TOPIC_IDS_SINCE else topic.topic_id
    return [(key, partition) for partition in partitions]


class NamedPartitions:
    """Partitions of a very long fetch request, read in steps."""

    def __init__(self, request: FetchRequest, version: int, cluster: MetadataCache) -> None:
        self._request = request
        self._version = version
        self._cluster = cluster
        self._targets: dict[Key, FetchTarget] = {}
        self.forgotten: list[Key] = []

    @property
    def targets(self) -> list[FetchTarget]:
        """Targets read so far."""
        return list(self._targets.values())

    def steps(self) -> Iterator[None]:
        """Read the request's partitions; yield after each step."""
        for topic in self._request.topics:
            # A topic without partitions is a step as well, so that very many of them give way, too.
            for start in range(0, len(topic.partitions) or 1, NAMED_PER_STEP):
                piece = topic.partitions[start : start + NAMED_PER_STEP]
                _add_targets(self._targets, topic, piece, self._version, self._cluster)
                yield
        for forgotten in self._request.forgotten_topics_data:
            for start in range(0, len(forgotten.partitions), NAMED_PER_STEP):
                self.forgotten += _keys(forgotten, forgotten.partitions[start : start + NAMED_PER_STEP], self._version)
                yield
