"""Fetch requests and fetch session of one replica fetcher with its leader. Sans-IO.

Theory
    A follower asks for a partition by its own log: from where it ends, and in which epoch the record before that was
    written, so that the leader can tell whether the two logs have parted (KIP-595's way of truncating, KIP-320's epochs).
    The leader keeps the questions in a session (KIP-227), and the follower repeats only those that have changed:

    session   next request                                  after the answer
    none      everything, and a request for a session        the session it names, if any
    known     what changed, and what is not wanted any more the same, one epoch further
    unsure    everything, and the old session is to end     as for none

    A session becomes unsure when a request got no answer, when the leader does not know it as we do, and when an answer was
    not used, because the leader does not repeat an answer.

| a partition | is asked for                                   | left by                                     |
|-------------|------------------------------------------------|---------------------------------------------|
| ready       | always                                         | `delay`, `fail`, `remove`, a throttle       |
| delayed     | not before its time                            | time                                        |
| throttled   | when the throttle lets it, or it is in sync    | time (only what is not in sync is throttled)|
| failed      | never                                          | `add` of a new epoch                        |

Invariant
    While nothing is on its way, `_session` holds exactly what the leader's session holds, each with what was asked last.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.replication.config import ReplicationConfig
    from ottla.replication.fetcher.throttle import ReplicationThrottle
    from ottla.replication.partition.partition import Partition

logger = logging.getLogger("ottla.fetcher")

VERSION = 17  # brokers of Kafka 3.9 speak it among themselves
VERSION_WITHOUT_TOPIC_IDS = 12  # from 13 on requests name topics by their ids alone

SWEEP_MS = 1_000  # between two looks for what changed beside the fetching, such as the log start offset by retention
NO_SESSION = 0
INITIAL_EPOCH = 0
_EPOCH_MAX = (1 << 31) - 1

WireKey = tuple[str | bytes, int]  # the topic's id or name, and the partition


class FetchParameters(NamedTuple):
    """A partition's fetch parameters as known to the leader's fetch session."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class PartitionFetchState:
    """Fetch state of a partition during one leader epoch; each later epoch gets a new object."""

    __slots__ = (
        "complaint",
        "is_current",
        "is_in_sync",
        "leader_epoch",
        "leader_id",
        "must_be_cut",
        "partition",
        "refusals",
        "requested",
        "topic_id",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_id = partition.leader_id
        self.leader_epoch = partition.leader_epoch
        self.topic_id = partition.topic_id
        self.requested: FetchParameters | None = None
        self.is_current = True  # neither replaced nor removed
        self.is_in_sync = False  # as far as the last answer tells
        self.must_be_cut = False  # to the high watermark before anything is appended
        self.complaint: object = None  # what was last logged of it, so that it is not logged again
        self.refusals = 0  # in a row

    def __repr__(self) -> str:
        partition = self.partition
        return f"{partition.topic}-{partition.index} of leader {self.leader_id} in epoch {self.leader_epoch}"

    @property
    def is_wanted(self) -> bool:
        """True while the partition is to be fetched from this leader in this epoch."""
        partition = self.partition
        return (
            self.is_current
            and partition.leader_epoch == self.leader_epoch
            and partition.leader_id == self.leader_id
            and not partition.is_deleted
        )

    @property
    def awaits_answer(self) -> bool:
        """True while the last request's response can be used: the log still ends at the offset that was requested."""
        # A log that was cut, or that another epoch has changed, must not get records that follow something else.
        requested = self.requested
        return requested is not None and self.partition.log.log_end_offset == requested.fetch_offset and self.is_wanted

    def fetch_parameters(self, max_bytes: int) -> FetchParameters:
        """Build fetch parameters from the log's present state."""
        # The epoch of the last record is how the leader notices that the two logs have parted.
        log = self.partition.log
        return FetchParameters(
            self.leader_epoch, log.log_end_offset, log.latest_leader_epoch, log.log_start_offset, max_bytes
        )

    def wire_key(self, uses_topic_ids: bool) -> WireKey:
        """Return the partition's key in requests and in the session: topic id or topic name, and partition number."""
        # The id is that of the time of `__init__`: the key must not change while the session holds it.
        topic_id = self.topic_id
        partition = self.partition
        return (topic_id if uses_topic_ids and topic_id is not None else partition.topic), partition.index


class FetchSessionHandler:
    """The partitions that one fetcher fetches, and its fetch session; at most one request is in flight."""

    def __init__(self, node_id: int, leader_id: int, throttle: ReplicationThrottle) -> None:
        self._node_id = node_id
        self._leader_id = leader_id
        self._throttle = throttle
        self._followed: dict[
            tuple[str, int], PartitionFetchState
        ] = {}  # those that were not asked for longest come first
        self._without_topic_id = 0
        self._changed: dict[PartitionFetchState, None] = {}  # to be looked at for the next request
        self._delayed: dict[PartitionFetchState, int] = {}  # until when
        self._throttled: dict[PartitionFetchState, None] = {}
        self._failed: set[PartitionFetchState] = set()
        self._session: dict[WireKey, PartitionFetchState] = {}
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        self._uses_topic_ids = True
        self._sweep_ms = 0

    def __len__(self) -> int:
        return len(self._followed)

    # --- partitions

    def add(self, following: PartitionFetchState) -> None:
        """Add a partition, replacing its former fetch state."""
        partition = following.partition
        # Removed first, so that the new entry stands at the end of the order.
        self._drop(self._followed.pop((partition.topic, partition.index), None))
        self._followed[partition.topic, partition.index] = following
        self._without_topic_id += following.topic_id is None
        self._changed[following] = None

    def remove(self, following: PartitionFetchState) -> None:
        """Remove a partition from the fetch."""
        partition = following.partition
        if self._followed.get((partition.topic, partition.index)) is following:
            del self._followed[partition.topic, partition.index]
            self._drop(following)

    def _drop(self, following: PartitionFetchState | None) -> None:
        if following is None:
            return
        following.is_current = False
        self._without_topic_id -= following.topic_id is None
        self._delayed.pop(following, None)
        self._throttled.pop(following, None)
        self._failed.discard(following)
        # The next request looks at it, finds it unwanted and lets the leader forget it.
        self._changed[following] = None

    def delay(self, following: PartitionFetchState, until_ms: int) -> None:
        """Exclude a partition from fetches until `until_ms`."""
        if following.is_current:
            self._delayed[following] = until_ms
            # It leaves the session. Else the leader would go on to answer every fetch at once, with the same error.
            self._changed[following] = None

    def delay_all(self, until_ms: int) -> None:
        """Exclude all partitions from fetches until `until_ms`."""
        for following in self._followed.values():
            self.delay(following, until_ms)

    def fail(self, following: PartitionFetchState) -> None:
        """Exclude a partition from fetches until it is added again."""
        if following.is_current:
            self._failed.add(following)
            self._changed[following] = None

    def has_failed(self, following: PartitionFetchState) -> bool:
        """Tell whether `fail` was called for this fetch state."""
        return following in self._failed

    def note_fetched(self, following: PartitionFetchState, *, is_in_sync: bool) -> None:
        """Record that a response has changed the log; `is_in_sync`: the log has reached the leader's high watermark."""
        following.is_in_sync = is_in_sync
        following.complaint, following.refusals = None, 0
        key = (following.partition.topic, following.partition.index)
        if following.is_current:
            # To the end, as the leader does in its session: where an
            # answer is full, those that got nothing come first next time.
            self._followed[key] = self._followed.pop(key)
            self._changed[following] = None

    def note_unused(self, following: PartitionFetchState) -> None:
        """Begin a new session after a response was not used, so that the leader sends the data again."""
        # A replacement counts as well: in the leader's session it has
        # the same key, and the leader believes that it was answered.
        if following.is_current or (following.partition.topic, following.partition.index) in self._followed:
            self.renew()

    # --- asking

    def next_request(
        self, config: ReplicationConfig, broker_epoch: int, now_ms: int
    ) -> tuple[FetchRequest, int] | None:
        """Build the next fetch request; return it with its version, or None if no partition is ready."""
        self._look_around(now_ms)
        uses_topic_ids = not self._without_topic_id
        # One request names all its topics by id or all by name, and a session keeps to that.
        if uses_topic_ids is not self._uses_topic_ids:
            self._uses_topic_ids = uses_topic_ids
            self.renew()
        # A full request makes the leader's session again from what it names, so everything counts as new.
        if self._session_epoch == INITIAL_EPOCH:
            self._session.clear()
            self._changed = dict.fromkeys(self._followed.values())
        changed, forgotten = self._changed_parameters(config.replica_fetch_max_bytes, now_ms)
        # An empty incremental request would wait at the leader for
        # nothing. The leader's session is given up with the next one.
        if not self._session:
            self.renew()
            return None
        version = VERSION if uses_topic_ids else VERSION_WITHOUT_TOPIC_IDS
        return self._request(changed, forgotten, config, broker_epoch), version

    def due_ms(self, now_ms: int, backoff_ms: int) -> int | None:
        """Return the time in ms of the next check of delayed or throttled partitions; None if there are none."""
        # No event reports the end of a throttle, so it is polled.
        if self._throttled:
            return now_ms + backoff_ms
        return min(self._delayed.values(), default=None)

    def _look_around(self, now_ms: int) -> None:
        """Detect changes that no event reports: the end of a delay or of throttling, and new settings."""
        for following, until_ms in list(self._delayed.items()):
            if until_ms <= now_ms:
                del self._delayed[following]
                self._changed[following] = None
        is_exceeded = self._throttle.is_exceeded(now_ms)
        # The throttle is shared by all fetchers and recovers with time. No event reports that either.
        if self._throttled and not is_exceeded:
            self._changed.update(self._throttled)
            self._throttled.clear()
        # While too much was moved, replicas in the session that are throttled have to
        # leave it at once. Else one look a second is enough for changes that nobody
        # reports, and keeps the cost of a request independent of how many are followed.
        if is_exceeded or now_ms - self._sweep_ms >= SWEEP_MS:
            self._sweep_ms = now_ms
            for following in list(self._followed.values()):
                # The topic's id was written down since: the session's key of the partition is another now.
                if following.topic_id != following.partition.topic_id and following.is_wanted:
                    self.add(PartitionFetchState(following.partition))
                else:
                    self._changed[following] = None

    def _is_ready(self, following: PartitionFetchState, is_exceeded: bool) -> bool:
        if not following.is_wanted or following in self._delayed or following in self._failed:
            return False
        partition = following.partition
        # A replica that keeps up moves only what producers send. To throttle it would put it out of sync (as in Kafka).
        if is_exceeded and not following.is_in_sync and self._throttle.is_throttled(partition.topic, partition.index):
            self._throttled[following] = None
            return False
        return partition.log.log_directory.failure is None

    def _changed_parameters(self, max_bytes: int, now_ms: int) -> tuple[list[PartitionFetchState], list[WireKey]]:
        session = self._session
        changed: list[PartitionFetchState] = []
        forgotten: list[WireKey] = []
        is_exceeded = self._throttle.is_exceeded(now_ms)
        # Only what has changed is looked at: a broker may follow thousands of partitions of which few have news.
        for following in self._changed:
            key = following.wire_key(self._uses_topic_ids)
            held = session.get(key)
            if self._is_ready(following, is_exceeded):
                parameters = following.fetch_parameters(max_bytes)
                # The leader has this question already, if nothing is different. To repeat it would only cost.
                if held is not following or following.requested != parameters:
                    following.requested = parameters
                    session[key] = following
                    changed.append(following)
            # If another has its place in the session, that one replaces it and nothing is to be forgotten.
            elif held is following:
                del session[key]
                forgotten.append(key)
        self._changed.clear()
        if forgotten:  # a request first takes up what it names, and then forgets
            forgotten = [key for key in forgotten if key not in session]
        return changed, forgotten

    def _request(
        self, changed: list[PartitionFetchState], forgotten: list[WireKey], config: ReplicationConfig, broker_epoch: int
    ) -> FetchRequest:
        topics: dict[str | bytes, list[FetchPartition]] = {}
        for following in changed:
            topic, index = following.wire_key(self._uses_topic_ids)
            parameters = following.requested
            assert parameters is not None
            topics.setdefault(topic, []).append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=parameters.leader_epoch,
                    fetch_offset=parameters.fetch_offset,
                    last_fetched_epoch=parameters.last_fetched_epoch,
                    log_start_offset=parameters.log_start_offset,
                    partition_max_bytes=parameters.max_bytes,
                )
            )
        return FetchRequest(
            # Both fields: versions below 15 have only the first one. The codec writes what the version has.
            replica_id=self._node_id,
            replica_state=ReplicaState(replica_id=self._node_id, replica_epoch=broker_epoch),
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            # Kafka's leader goes beyond these limits for one batch,
            # so a batch larger than any of them still gets through.
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[
                FetchTopic(topic=_name(topic), topic_id=_id(topic), partitions=partitions)
                for topic, partitions in topics.items()
            ],
            forgotten_topics_data=_forgotten_topics(forgotten),
        )

    # --- answers

    def renew(self) -> None:
        """End the fetch session; the next request begins a new session."""
        self._session_epoch = INITIAL_EPOCH

    def take(self, response: FetchResponse) -> list[tuple[PartitionFetchState, PartitionData]] | None:
        """Return a response's data with the fetch states of its partitions; None if the response is unusable.

        Callers must skip the fetch states whose `awaits_answer` is False.
        """
        if response.error_code != ErrorCode.NONE:
            self._on_session_error(response.error_code)
            return None
        session = self._session
        found: list[tuple[PartitionFetchState, PartitionData]] = []
        # Phase 1: everything that was answered must have been asked
        # for. Nothing is used of a response that mixes things up.
        for topic in response.responses:
            name = topic.topic_id if self._uses_topic_ids else topic.topic
            for data in topic.partitions:
                following = session.get((name, data.partition_index))
                if following is None:
                    self._misunderstood(f"{name!r}-{data.partition_index} was not asked for")
                    return None
                found.append((following, data))
        # Phase 2: a full answer has to name every partition. An incremental one leaves out those that have no news.
        is_full = self._session_epoch == INITIAL_EPOCH
        if is_full and len(found) != len(session):
            self._misunderstood(f"{len(found)} partitions where {len(session)} were asked for")
            return None
        # Phase 3: the leader has counted this answer, and so must we, even if some of it turns out to be of no use.
        self._go_on(response.session_id, is_full)
        return found

    def _go_on(self, session_id: int, is_full: bool) -> None:
        # The leader keeps no session for us, for instance because its cache is full. Everything is asked for each time.
        if session_id == NO_SESSION:
            self._session_id, self._session_epoch = NO_SESSION, INITIAL_EPOCH
        elif is_full:
            self._session_id, self._session_epoch = session_id, 1
        else:
            # 0 would ask for a new session, so the count begins again at 1, as in Kafka.
            self._session_epoch = 1 if self._session_epoch == _EPOCH_MAX else self._session_epoch + 1

    def _on_session_error(self, code: int) -> None:
        logger.info(
            "Broker %d does not serve fetch session %d in epoch %d: %s",
            self._leader_id, self._session_id, self._session_epoch, ErrorCode.of(code).name,
        )  # fmt: skip
        # Else the id stays: a full request that names it asks the leader to end that session and free its place.
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session_id = NO_SESSION
        self.renew()

    def _misunderstood(self, what: str) -> None:
        logger.warning("Broker %d answered fetch session %d wrongly: %s", self._leader_id, self._session_id, what)
        self.renew()


def _name(topic: str | bytes) -> str:
    return topic if isinstance(topic, str) else ""


def _id(topic: str | bytes) -> bytes:
    return topic if isinstance(topic, bytes) else ZERO_UUID


def _forgotten_topics(forgotten: list[WireKey]) -> list[ForgottenTopic]:
    topics: dict[str | bytes, list[int]] = {}
    for topic, index in forgotten:
        topics.setdefault(topic, []).append(index)
    return [
        ForgottenTopic(topic=_name(topic), topic_id=_id(topic), partitions=partitions)
        for topic, partitions in topics.items()
    ]
