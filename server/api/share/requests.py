"""ShareFetch and ShareAcknowledge: the client's session key and rights, its acknowledgements, and the responses.

| what is wrong with an acknowledgement                            | the partition gets         |
|------------------------------------------------------------------|----------------------------|
| the topic id is unknown                                          | UNKNOWN_TOPIC_ID           |
| offsets out of order, types too few or unknown, an unannounced renewal | INVALID_REQUEST      |
| the client may not read the topic                                | TOPIC_AUTHORIZATION_FAILED |
| no such partition, or no member has fetched it here              | UNKNOWN_TOPIC_OR_PARTITION |
| the member does not hold the records                             | INVALID_RECORD_STATE       |
| the share coordinator cannot store it                            | its error                  |
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ottla.groupcoord.share.coordinator.records import SharePartitionKey
from ottla.groupcoord.share.partition.acknowledging import REJECT, RENEW, RUNS_MAX, AcknowledgementBatch
from ottla.groupcoord.share.partition.in_flight import Change
from ottla.groupcoord.share.partition.sessions import SessionKey, TopicPartition
from ottla.server.api.fetch.partition_reader import FetchRights
from ottla.server.api.produce.request_checks import current_leader, endpoints
from ottla.server.api.share.share_partition_leader import locks_now_ms
from ottla.server.dispatch.access import AclOperation, ResourceType, require
from ottla.server.ports import BrokerParts
from ottla.wire.answers import PendingAnswer, ResponseT
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages import share_fetch
from ottla.wire.messages.share_fetch import ShareAcknowledgeResponse, ShareFetchResponse

if TYPE_CHECKING:
    from ottla.groupcoord.share.partition.sessions import ShareSession
    from ottla.replication.cluster.metadata_cache import MetadataCache
    from ottla.server.api.share.fetching import Found
    from ottla.server.api.share.share_partition_manager import SharePartitionManager
    from ottla.server.dispatch.access import Guarded
    from ottla.server.dispatch.context import RequestContext
    from ottla.server.network.deadlines import Deadlines

MEMBER_ID_LENGTH_MAX = 36
"""Length of a UUID in text form."""

BATCHES_PER_STEP = 500
Acknowledgements = share_fetch.AcknowledgementBatch | share_fetch.AcknowledgementBatch
MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
Data = TypeVar("Data", share_fetch.PartitionData, share_fetch.AcknowledgedPartition)


def session_key(group_id: str | None, member_id: str | None, context: RequestContext[Guarded]) -> SessionKey:
    """Return the session key. Raises KafkaError if an id is invalid or the client may not read the group."""
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    require(context, AclOperation.READ, ResourceType.GROUP, group_id)
    if not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return SessionKey(group_id, member_id, context.principal)


def rights_of(context: RequestContext[Guarded]) -> FetchRights | None:
    """Return the client's rights to topics; None if there is no authorizer."""
    authorizer = context.broker.authorizer
    return None if authorizer is None else FetchRights(context, authorizer, is_follower=False)


def named(cluster: MetadataCache, topic_id: bytes, partitions: Iterable[int]) -> list[TopicPartition]:
    """Return these partitions of the topic, with the topic's name, which is None if the id is unknown."""
    topic = cluster.topic_by_id.get(topic_id)
    name = None if topic is None else topic.name
    return [TopicPartition(name, topic_id, partition) for partition in partitions]


class WhenReady(PendingAnswer[ResponseT], Generic[ResponseT]):
    """Pending response that `make` makes when the caller reports that everything it needs is done."""

    __slots__ = ("_abandon", "_make")

    def __init__(self, make: Callable[[], ResponseT], abandon: Callable[[], None]) -> None:
        super().__init__()
        self._make: Callable[[], ResponseT] | None = make
        self._abandon = abandon

    @property
    def is_abandonable(self) -> bool:
        return True

    def response(self) -> ResponseT:
        assert self._make is not None
        make, self._make = self._make, None
        return make()

    def abandon(self) -> None:
        self._make = None
        self._abandon()


class DelayedRefusal(PendingAnswer[ResponseT], Generic[ResponseT]):
    """Error response that is delayed by the request's maximum wait, because the client would retry immediately."""

    __slots__ = ("_deadline", "_deadlines", "_response")

    def __init__(self, deadlines: Deadlines, wait_ms: int, response: ResponseT) -> None:
        super().__init__()
        self._deadlines, self._response = deadlines, response
        self._deadline = deadlines.add(max(0, wait_ms) / 1000, self.become_ready)

    @property
    def is_abandonable(self) -> bool:
        return True

    def response(self) -> ResponseT:
        self.abandon()
        return self._response

    def abandon(self) -> None:
        self._deadlines.cancel(self._deadline)


class Result(NamedTuple):
    """Result of acknowledging records of one partition."""

    error: ErrorCode
    message: str | None = None


class Member(NamedTuple):
    """Share group member that acknowledges records. `may_renew`: the request announces that it renews locks."""

    group_id: str
    member_id: str
    may_renew: bool


class Acknowledgement:
    """Acknowledgements of one request, and their results by partition. All results are known when `missing` is 0."""

    def __init__(
        self, groups: SharePartitionManager, cluster: MetadataCache, member: Member, rights: FetchRights | None = None
    ) -> None:
        self._rights, self._groups = rights, groups
        self._cluster, self._member = cluster, member
        self.results: dict[TopicPartition, Result] = {}
        self.missing = 0
        self._has_acknowledged = False
        self._empty: list[TopicPartition] = []
        self.on_done: Callable[[], None] | None = None

    @property
    def is_done(self) -> bool:
        return not self.missing

    def add(self, partition: TopicPartition, given: Sequence[Acknowledgements]) -> Iterator[None]:
        """Acknowledge records of one partition, and yield after each short step.

        The first steps check the batches, and the last one applies them.
        """
        if partition.topic is None:
            self.results[partition] = Result(ErrorCode.UNKNOWN_TOPIC_ID)
            return
        batches = yield from _checked(given, may_renew=self._member.may_renew)
        if batches is None:
            self.results[partition] = Result(ErrorCode.INVALID_REQUEST)
        elif self._rights is not None and self._rights.refuse(partition.topic):
            self.results[partition] = Result(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif self._cluster.partition(partition.topic, partition.partition) is None:
            self.results[partition] = Result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif not given:
            self._empty.append(partition)
        else:
            self._has_acknowledged = True
            self._acknowledge(partition, batches)

    def end(self) -> None:
        """Complete the results after the last `add`.

        As in Kafka, partitions without batches get a result only if records of other partitions were acknowledged.
        """
        if self._has_acknowledged:
            for partition in self._empty:
                self.results.setdefault(partition, Result(ErrorCode.NONE))

    def _acknowledge(self, partition: TopicPartition, batches: Sequence[AcknowledgementBatch]) -> None:
        group_id, member_id, _ = self._member
        share = self._groups.share(SharePartitionKey(group_id, partition.topic_id, partition.partition))
        if share is None or not share.machine.is_active:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self.results[partition] = Result(error, error.message)
            return
        try:
            change = share.machine.acknowledge(member_id, batches, locks_now_ms())
        except KafkaError as error:
            self.results[partition] = Result(error.code, error.message)
            share.after()
            return
        if not change.is_settled:
            self.missing += 1
            change.on_settled = partial(self._on_settled, partition, change)
        else:
            self.results[partition] = Result(change.error)
        share.after()

    def _on_settled(self, partition: TopicPartition, change: Change) -> None:
        self.results[partition] = Result(change.error)
        self.missing -= 1
        on_done = self.on_done
        if not self.missing and on_done is not None:
            self.on_done = None
            on_done()

    def abandon(self) -> None:
        """Stop reporting to the disconnected client; its acknowledgements are stored all the same."""
        self.on_done = None


def _checked(
    given: Sequence[Acknowledgements], *, may_renew: bool
) -> Generator[None, None, list[AcknowledgementBatch] | None]:
    """Check acknowledgement batches, yielding after every BATCHES_PER_STEP; return them, or None if any is invalid."""
    # More are refused in any case, and looking at each of a million takes a second.
    if len(given) > RUNS_MAX:
        return None
    before = -1
    last_type = RENEW if may_renew else REJECT
    batches = []
    for number, batch in enumerate(given, 1):
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        # Kafka lets a batch begin with the record with which the one before it has ended.
        if first > last or first < before or not types:
            return None
        if len(types) > 1 and last - first != len(types) - 1:
            return None
        if min(types) < 0 or max(types) > last_type:
            return None
        before = last
        batches.append(AcknowledgementBatch(first, last, types))
        if number % BATCHES_PER_STEP == 0:
            yield
    return batches


# ---------------------------------------------------------------------- responses


def fetch_response(
    broker: BrokerParts,
    listener_name: str,
    found: Mapping[TopicPartition, Found],
    results: Mapping[TopicPartition, Result],
    session: ShareSession | None,
    lock_ms: int,
) -> ShareFetchResponse:
    """Return the response to a ShareFetch request. `lock_ms`: duration of acquisition locks in milliseconds.

    `session`: share session; partitions that have not changed in it are omitted. None: all are included.
    """
    answers: dict[TopicPartition, share_fetch.PartitionData] = {}
    for partition, each in found.items():
        is_included = session is None or session.must_include(
            partition, has_records=bool(each.records), has_error=each.error is not ErrorCode.NONE
        )
        if is_included:
            answers[partition] = _found(broker, partition, each)
    leaders = {each.current_leader.leader_id for each in answers.values() if each.error_code in MOVED}
    for partition, (error, message) in results.items():
        data = answers.get(partition)
        if data is None:
            data = answers[partition] = _nothing(partition)
        data.acknowledge_error_code, data.acknowledge_error_message = error, message
    return ShareFetchResponse(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=lock_ms,
        responses=[
            share_fetch.ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in _by_topic(answers.items())
        ],
        node_endpoints=_endpoints(broker, leaders, listener_name, share_fetch.NodeEndpoint),
    )


def _found(broker: BrokerParts, partition: TopicPartition, found: Found) -> share_fetch.PartitionData:
    data = _nothing(partition)
    data.error_code = found.error
    data.records = found.records  # type: ignore[assignment]  # a region goes out by sendfile
    data.acquired_records = [
        share_fetch.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
        for first, last, count in found.acquired
    ]
    if found.error in MOVED and partition.topic is not None:
        leader, epoch = current_leader(broker, partition.topic, partition.partition)
        data.current_leader = share_fetch.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    return data


def _nothing(partition: TopicPartition) -> share_fetch.PartitionData:
    return share_fetch.PartitionData(
        partition_index=partition.partition,
        error_code=ErrorCode.NONE,
        acknowledge_error_code=ErrorCode.NONE,
        current_leader=share_fetch.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        records=b"",
        acquired_records=[],
    )


def acknowledge_response(
    broker: BrokerParts, listener_name: str, results: Mapping[TopicPartition, Result], lock_ms: int
) -> ShareAcknowledgeResponse:
    """Return the response to a ShareAcknowledge request. `lock_ms`: duration of acquisition locks in ms."""
    answers: dict[TopicPartition, share_fetch.AcknowledgedPartition] = {}
    leaders = set()
    for partition, (error, message) in results.items():
        leader = share_fetch.LeaderIdAndEpoch(leader_id=0, leader_epoch=0)
        if error in MOVED and partition.topic is not None:
            leader.leader_id, leader.leader_epoch = current_leader(broker, partition.topic, partition.partition)
            leaders.add(leader.leader_id)
        answers[partition] = share_fetch.AcknowledgedPartition(
            partition_index=partition.partition, error_code=error, error_message=message, current_leader=leader
        )
    return ShareAcknowledgeResponse(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=lock_ms,
        responses=[
            share_fetch.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in _by_topic(answers.items())
        ],
        node_endpoints=_endpoints(broker, leaders, listener_name, share_fetch.NodeEndpoint),
    )


def _by_topic(answers: Iterable[tuple[TopicPartition, Data]]) -> Iterable[tuple[bytes, list[Data]]]:
    topics: dict[bytes, list[Data]] = {}
    for partition, data in answers:
        topics.setdefault(partition.topic_id, []).append(data)
    return topics.items()


def _endpoints(broker: BrokerParts, leaders: Iterable[int], listener_name: str, kind: Any) -> list[Any]:
    """Return the endpoints of the given leaders as response elements of class `kind` (KIP-951)."""
    return [
        kind(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
        for each in endpoints(broker, leaders, listener_name)
    ]
