"""Records of a share group (KIP-932): ShareFetch and ShareAcknowledge."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.groupcoord.share.coordinator.records import SharePartitionKey
from ottla.groupcoord.share.partition.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    ShareSession,
    TopicPartition,
)
from ottla.server.api.share.fetching import Found, ShareFetching, Target, limits_of
from ottla.server.api.share.log_reading import ShareReader
from ottla.server.api.share.requests import (
    Acknowledgement,
    DelayedRefusal,
    Member,
    WhenReady,
    acknowledge_response,
    fetch_response,
    named,
    rights_of,
    session_key,
)
from ottla.server.broker import Broker
from ottla.server.cluster.features import SHARE_VERSION
from ottla.server.coordinator_factory import share_partitions_of
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import PARTITIONS_PER_SLICE
from ottla.wire.answers import Answer, Given
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.share_fetch import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Iterator

RENEWAL_SINCE = 2
INT_MAX = (1 << 31) - 1


@handles(ShareFetchRequest, feature=SHARE_VERSION)
def share_fetch(request: ShareFetchRequest, context: RequestContext[Broker]) -> Answer[ShareFetchResponse]:
    """ShareFetch: acquire records for a share group's member, and acknowledge earlier ones.

    Behaviour
    * A member has a session with each leader (`groupcoord/share/partition/sessions.py`). Records come from the
      session's partitions, whose order rotates with every request. They belong to the member until it acknowledges or
      releases them, or until its lock expires (`groupcoord/share/partition/share_partition.py`).
    * The request waits for records like a Fetch (`server/api/share/fetching.py`). MaxRecords and MaxBytes hold for all
      partitions together; each partition may return its part of MaxBytes, and the first one a further batch.
    * Acknowledgements are applied first, and their results are returned with the records
      (`server/api/share/requests.py`). The first request of a session must not acknowledge. Epoch -1 ends the session,
      and fetches nothing.
    * If there are too many sessions, the error is returned after MaxWaitMs.

    Rights
    * The client needs the right to read the group. Topics that the client may not read are refused at each request of a
      session; unknown ids get an error.

    Version notes
    * v2 has acquire modes (KIP-1206), and renewals (KIP-1222): a request that renews locks fetches nothing, and its
      limits must be 0.
    """
    try:
        work = FetchWork(request, context)
    except KafkaError as error:
        refusal = _refusal(error.code)
        if request.share_session_epoch == INITIAL_EPOCH and error.code in _NO_SESSION:
            return DelayedRefusal(share_partitions_of(context.broker).deadlines, request.max_wait_ms, refusal)
        return refusal
    if work.size <= PARTITIONS_PER_SLICE:
        for _ in work.steps():
            pass
        return work.answer()
    return _fetch_in_slices(work)


_NO_SESSION = ErrorCode.SHARE_SESSION_LIMIT_REACHED, ErrorCode.SHARE_SESSION_NOT_FOUND


def _refusal(code: ErrorCode) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=code, acquisition_lock_timeout_ms=0, responses=[], node_endpoints=[])


async def _fetch_in_slices(work: FetchWork) -> Given[ShareFetchResponse]:
    time_slice = TimeSlice()
    for _ in work.steps():
        await time_slice.yield_if_over()
    return work.answer()


def _has_gone_on(session: ShareSession, epoch: int) -> bool:
    """True if the session has had a later request than the one with `epoch`, which did not begin the session."""
    return session.epoch != (epoch + 1 if epoch < INT_MAX else 1)


def _is_stale(begun: ShareSession | None, session: ShareSession | None, epoch: int) -> bool:
    """True if the client would not get records acquired now: its session has ended, or has had a later request.

    `begun`: session that this request began, or None. `session`: session that this request continued with `epoch`, or
    None.
    """
    if begun is not None:
        return begun.is_over
    return session is not None and (session.is_over or _has_gone_on(session, epoch))


class FetchWork:
    """Processing of one ShareFetch request."""

    def __init__(self, request: ShareFetchRequest, context: RequestContext[Broker]) -> None:
        """Prepare the work on the request. Raises KafkaError if the whole request is refused."""
        self._broker = broker = context.broker
        self._groups = groups = share_partitions_of(broker)
        self._request = request
        self._listener_name = context.listener_name
        self._key = key = session_key(request.group_id, request.member_id, context)
        self._renews = context.api_version >= RENEWAL_SINCE and request.is_renew_ack
        if self._renews and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        named_count = sum([len(topic.partitions) for topic in request.topics])
        forgotten_count = sum([len(topic.partitions) for topic in request.forgotten_topics_data])
        groups.sessions.check_size(key, request.share_session_epoch, max(named_count, forgotten_count))
        self._acknowledges = any(
            partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions
        )
        self._rights = rights_of(context)
        self._session: ShareSession | None = None  # of which this is not the first request
        self._begun: ShareSession | None = None  # of which it is
        self._wanted = self._open(key, context)
        self._charge = context.charge
        self._targets: list[Target] = []
        self._refused: dict[TopicPartition, Found] = {}
        self._acknowledged = Acknowledgement(groups, broker.cluster, Member(*key.member, self._renews), self._rights)

    def _open(self, key: SessionKey, context: RequestContext[Broker]) -> list[TopicPartition]:
        """Begin or continue a session; return its partitions in the order of this request."""
        request, sessions, cluster = self._request, self._groups.sessions, self._broker.cluster
        epoch = request.share_session_epoch
        if epoch == FINAL_EPOCH:
            sessions.get(key)
            return []
        wanted = [
            each
            for topic in request.topics
            for each in named(cluster, topic.topic_id, [partition.partition_index for partition in topic.partitions])
        ]
        if epoch == INITIAL_EPOCH:
            if self._acknowledges:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            session = self._begun = sessions.begin(key, wanted, context)
            context.on_close(sessions.disconnect)
            return list(session.partitions.values())
        forgotten = [
            each for topic in request.forgotten_topics_data for each in named(cluster, topic.topic_id, topic.partitions)
        ]
        self._session = sessions.advance(key, epoch, wanted, forgotten)
        partitions = list(self._session.partitions.values())
        # Everybody is the first one some time.
        turn = epoch % len(partitions) if partitions else 0
        return partitions[turn:] + partitions[:turn]

    @property
    def size(self) -> int:
        """Number of partitions to fetch from plus acknowledgement batches; measures the amount of work."""
        batches = [len(each.acknowledgement_batches) for topic in self._request.topics for each in topic.partitions]
        return len(self._wanted) + sum(batches)

    def steps(self) -> Iterator[None]:
        """Apply acknowledgements, then look up the partitions to fetch from; yield after each short step."""
        if self._acknowledges:
            for topic in self._request.topics:
                for partition in topic.partitions:
                    (found,) = named(self._broker.cluster, topic.topic_id, [partition.partition_index])
                    yield from self._acknowledged.add(found, partition.acknowledgement_batches)
                    yield
        self._acknowledged.end()
        if not self._renews:
            for wanted in self._wanted:
                self._look_up(self._resolved(wanted))
                yield

    def _resolved(self, wanted: TopicPartition) -> TopicPartition:
        """Return the partition with its topic's name if known; a session may name it before this broker knows it."""
        if wanted.topic is not None:
            return wanted
        return named(self._broker.cluster, wanted.topic_id, [wanted.partition])[0]

    def _look_up(self, wanted: TopicPartition) -> None:
        error = ErrorCode.NONE
        if wanted.topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        elif self._rights is not None and self._rights.refuse(wanted.topic):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif self._broker.cluster.partition(wanted.topic, wanted.partition) is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            key = SharePartitionKey(self._key.group_id, wanted.topic_id, wanted.partition)
            try:
                self._targets.append(Target(wanted, self._groups.lead(key, wanted.topic)))
            except KafkaError as refusal:
                error = refusal.code
        if error is not ErrorCode.NONE:
            self._refused[wanted] = Found(error)

    def answer(self) -> Given[ShareFetchResponse]:
        """Return the response, or a pending answer that waits for records and for acknowledgements to be stored."""
        settings = self._groups.settings_of(self._key.group_id)
        reader = ShareReader(self._broker.environment.descriptors, is_committed_only=settings.reads_committed)
        limits = limits_of(self._request, self._broker.config.replication.fetch_max_bytes)
        is_stale = partial(_is_stale, self._begun, self._session, self._request.share_session_epoch)
        self._fetching = fetching = ShareFetching(
            self._groups, reader, self._key.member_id, self._targets, limits, is_stale
        )
        fetching.begin()
        if fetching.is_done and self._acknowledged.is_done:
            return self._respond()
        answer = WhenReady(self._respond, self._abandon)

        def look() -> None:
            if fetching.is_done and self._acknowledged.is_done:
                answer.become_ready()

        # Only those that will call: who keeps it for nothing keeps the whole request.
        for part in (fetching, self._acknowledged):
            if not part.is_done:
                part.on_done = look
        return answer

    def _respond(self) -> ShareFetchResponse:
        session, epoch = self._session, self._request.share_session_epoch
        # Whoever asked with the next epoch meanwhile has made this answer stale.
        if session is not None and _has_gone_on(session, epoch):
            return _refusal(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        lock_ms = self._groups.settings_of(self._key.group_id).record_lock_duration_ms
        found = {**self._fetching.found, **self._refused}
        results = self._acknowledged.results
        response = fetch_response(self._broker, self._listener_name, found, results, session, lock_ms)
        if epoch == FINAL_EPOCH:
            self._groups.sessions.end(self._key)
        if self._charge is not None:
            # Given in any case: the records belong to the member by now, and nobody else would get them.
            self._charge.settle_fetch(sum(len(each.records) for each in self._fetching.found.values()), is_given=True)
        return response

    def _abandon(self) -> None:
        self._fetching.abandon()
        self._acknowledged.abandon()


@handles(ShareAcknowledgeRequest, feature=SHARE_VERSION)
def share_acknowledge(
    request: ShareAcknowledgeRequest, context: RequestContext[Broker]
) -> Answer[ShareAcknowledgeResponse]:
    """ShareAcknowledge: acknowledge records that a share group's member has acquired.

    Behaviour
    * The request continues the member's share session, or ends it with epoch -1; it cannot begin a session
      (`groupcoord/share/partition/sessions.py`). At the end the broker applies the request's acknowledgements, then
      releases the member's other acquired records.
    * Each partition's acknowledgements are applied together or not at all (`server/api/share/requests.py`). The
      response is sent when the share coordinators have stored everything.

    Rights
    * The client needs the right to read the group. Topics that the client may not read are refused.

    Version notes
    * v2 renews locks (KIP-1222) if the request announces this.
    """
    groups = share_partitions_of(context.broker)
    epoch = request.share_session_epoch
    try:
        key = session_key(request.group_id, request.member_id, context)
        if epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        groups.sessions.check_size(key, epoch, sum([len(topic.partitions) for topic in request.topics]))
        if epoch == FINAL_EPOCH:
            groups.sessions.get(key)
        else:
            groups.sessions.advance(key, epoch)
    except KafkaError as error:
        return ShareAcknowledgeResponse(error_code=error.code, responses=[], node_endpoints=[])
    may_renew = context.api_version >= RENEWAL_SINCE and request.is_renew_ack
    acknowledged = Acknowledgement(groups, context.broker.cluster, Member(*key.member, may_renew), rights_of(context))
    listener_name = context.listener_name
    steps = sum([1 + len(each.acknowledgement_batches) for topic in request.topics for each in topic.partitions])
    if steps <= PARTITIONS_PER_SLICE:
        for _ in _steps(request, context.broker, acknowledged):
            pass
        return _answer(context.broker, acknowledged, key, epoch, listener_name)
    return _acknowledge_in_slices(request, context.broker, acknowledged, key, listener_name)


async def _acknowledge_in_slices(
    request: ShareAcknowledgeRequest, broker: Broker, acknowledged: Acknowledgement, key: SessionKey, listener_name: str
) -> Given[ShareAcknowledgeResponse]:
    time_slice = TimeSlice()
    for _ in _steps(request, broker, acknowledged):
        await time_slice.yield_if_over()
    return _answer(broker, acknowledged, key, request.share_session_epoch, listener_name)


def _steps(request: ShareAcknowledgeRequest, broker: Broker, acknowledged: Acknowledgement) -> Iterator[None]:
    for topic in request.topics:
        for partition in topic.partitions:
            (found,) = named(broker.cluster, topic.topic_id, [partition.partition_index])
            yield from acknowledged.add(found, partition.acknowledgement_batches)
            yield


def _answer(
    broker: Broker, acknowledged: Acknowledgement, key: SessionKey, epoch: int, listener_name: str
) -> Given[ShareAcknowledgeResponse]:
    acknowledged.end()

    def respond() -> ShareAcknowledgeResponse:
        groups = share_partitions_of(broker)
        if epoch == FINAL_EPOCH:
            groups.sessions.end(key)
        lock_ms = groups.settings_of(key.group_id).record_lock_duration_ms
        return acknowledge_response(broker, listener_name, acknowledged.results, lock_ms)

    if acknowledged.is_done:
        return respond()
    answer = WhenReady(respond, acknowledged.abandon)
    acknowledged.on_done = answer.become_ready
    return answer
