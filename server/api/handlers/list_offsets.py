"""ListOffsets: the offset that belongs to a timestamp.

Behaviour
* -1 answers the end that a plain reader sees: the high watermark, or the last stable offset with READ_COMMITTED, or the
  log end for other replica ids than a consumer's. -2 and -4 answer the log start; without tiered storage they are equal.
  -3 answers the first record with the largest timestamp, -5 and -6 nothing, as there is no tier.
* Only the leader answers, but for replica id -2, which Kafka keeps for looking into replicas.
* A timestamp >= 0 answers the first record that is not older, with that record's own timestamp; none at or beyond the
  end a reader sees is offset -1 without an error.
* A special timestamp that the version does not know is UNSUPPORTED_VERSION; a partition named twice is INVALID_REQUEST,
  once; a topic of which no partition is asked for is left out. An isolation level that does not exist is
  UNKNOWN_SERVER_ERROR everywhere, as Kafka fails over it.
* v0 tells first offsets of segments (`server/api/older_offsets.py`).
* Topics that the client may not describe are TOPIC_AUTHORIZATION_FAILED, whether they exist or not, behind the others.

Work: records are read to find one by its timestamp. Little is read at once; for the rest, and where many partitions are
asked, the answer is awaited: a few searches at a time, in threads (`replication/log/time_search.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import trio

from ottla.replication.log.time_search import MAX_TIMESTAMP, TimestampedOffset, TimestampSearch
from ottla.replication.partition.reading import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
)
from ottla.server.broker import Broker
from ottla.server.dispatch.access import AclOperation, ResourceType, decided
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import PARTITIONS_PER_SLICE, answer_partitions, each_in_slices
from ottla.wire.answers import Answer, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.wire.time_slice import TimeSlice

CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
OFFSET_NOT_AVAILABLE_SINCE = 5
# More than any version, which is an int16: no version knows such a timestamp.
NEVER = 1 << 15
# Each of these may read batches on the event loop, so one request gets few of them.
SEARCHES_AT_ONCE = 8
# One request needs no more searchers than there are threads for all requests.
SEARCHERS = 2
# The first version in which Kafka accepts each special timestamp.
_SINCE = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


class RequestedPartition(NamedTuple):
    """Requested partition; `is_repeated` is True if the request names it more than once."""

    wish: ListOffsetsPartition
    is_repeated: bool


class RequestedTopic(NamedTuple):
    """Requested topic, with all its partitions that the request names."""

    name: str
    partitions: list[RequestedPartition]


_searches_in_threads = trio.CapacityLimiter(2)
"""Few, because each may hold a hundred megabytes of decompressed records, and one thread for every core brings no gain."""


@handles(ListOffsetsRequest)
def list_offsets(request: ListOffsetsRequest, context: RequestContext[Broker]) -> Answer[ListOffsetsResponse]:
    names = (topic.name for topic in request.topics)
    return decided(
        context,
        AclOperation.DESCRIBE,
        ResourceType.TOPIC,
        names,
        lambda denied: _list_allowed(request, context, denied),
    )


def _list_allowed(
    request: ListOffsetsRequest, context: RequestContext[Broker], denied: Collection[str]
) -> Worked[ListOffsetsResponse]:
    if context.api_version == 0:
        from ottla.server.api.older_offsets import list_older_offsets  # few clients are so old

        return list_older_offsets(request, context, denied)
    # Kafka notices an unknown level only when it looks for offsets.
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED) and (
        not denied or any(topic.name not in denied for topic in request.topics)
    ):
        return _not_understood(request)
    if sum([len(topic.partitions) for topic in request.topics]) > PARTITIONS_PER_SLICE:
        return _list_in_slices(request, context, denied)
    return _list(request, context, _Wishes(_each(request.topics)), denied)


async def _list_in_slices(
    request: ListOffsetsRequest, context: RequestContext[Broker], denied: Collection[str]
) -> ListOffsetsResponse:
    # What is repeated has to be known before the first answer, because Kafka refuses the first mention, too.
    wishes = _Wishes()
    await each_in_slices(_each(request.topics), wishes.add)
    response = _list(request, context, wishes, denied)
    return response if isinstance(response, ListOffsetsResponse) else await response


def _list(
    request: ListOffsetsRequest, context: RequestContext[Broker], wishes: _Wishes, denied: Collection[str]
) -> Worked[ListOffsetsResponse]:
    topics, lookup = wishes.by_topic(), OffsetLookup(request, context, denied)
    if denied:
        topics.sort(key=lambda topic: topic.name in denied)
    response = answer_partitions(topics, attrgetter("partitions"), lookup.answer, partial(_response, topics))
    # For very many partitions `response` is a coroutine that has not begun yet. Then `is_waiting` says nothing so
    # far, and `finish` looks again.
    return lookup.finish(response) if lookup.is_waiting or not isinstance(response, ListOffsetsResponse) else response


class _Unanswered(NamedTuple):
    """Requested partition whose offset is not known yet, because the log must be searched for a timestamp."""

    topic: str
    wish: ListOffsetsPartition
    answer: ListOffsetsPartitionResponse
    search: TimestampSearch | None


class OffsetLookup:
    """Offset look-ups of one ListOffsets request."""

    def __init__(
        self, request: ListOffsetsRequest, context: RequestContext[Broker], denied: Collection[str] = ()
    ) -> None:
        """Prepare the look-ups. `denied`: topics that the client may not describe."""
        self._request, self._denied = request, denied
        self._broker = context.broker
        self._version = context.api_version
        self._searches = 0
        self._unanswered: list[_Unanswered] = []

    @property
    def is_waiting(self) -> bool:
        """True while some offsets are not known yet."""
        return bool(self._unanswered)

    def answer(self, topic: RequestedTopic, asked: RequestedPartition) -> ListOffsetsPartitionResponse:
        """Return the result for one partition; if the log must be searched, `finish` completes the result later."""
        wish = asked.wish
        answer = ListOffsetsPartitionResponse(partition_index=wish.partition_index, error_code=ErrorCode.NONE)
        if topic.name in self._denied:
            answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return answer
        if asked.is_repeated:
            answer.error_code = ErrorCode.INVALID_REQUEST
            return answer
        # Only these two kinds may have to read records. All others are known at once.
        self._searches += wish.timestamp >= 0 or wish.timestamp == MAX_TIMESTAMP
        search = None
        if self._searches <= SEARCHES_AT_ONCE:
            search = self._ask(_Unanswered(topic.name, wish, answer, None))
            if search is None:
                return answer
        # The empty answer keeps its place in the response. `_ask` fills it in later.
        self._unanswered.append(_Unanswered(topic.name, wish, answer, search))
        return answer

    async def finish(self, response: Worked[ListOffsetsResponse]) -> ListOffsetsResponse:
        """Search the logs in threads; return the response when all its results are complete."""
        if not isinstance(response, ListOffsetsResponse):
            response = await response
        # The searchers share one iterator, so each of them takes the next partition as soon as it is free.
        unanswered = iter(self._unanswered)
        async with trio.open_nursery() as nursery:
            for _ in range(min(SEARCHERS, len(self._unanswered))):
                nursery.start_soon(self._complete, unanswered)
        return response

    async def _complete(self, unanswered: Iterator[_Unanswered]) -> None:
        time_slice = TimeSlice()
        for each in unanswered:
            # After each run in a thread the partition is looked up again: meanwhile the broker may have stopped
            # leading it, or the log may have moved.
            while (search := self._ask(each)) is not None:
                await trio.to_thread.run_sync(search.run, limiter=_searches_in_threads)
                each = each._replace(search=search)
            await time_slice.yield_if_over()

    def _ask(self, asked: _Unanswered) -> TimestampSearch | None:
        """Complete the result of a partition and return None, or return the log search that a thread must run first."""
        wish, answer = asked.wish, asked.answer
        try:
            found = self._look_up(asked.topic, wish, asked.search)
        except KafkaError as error:
            answer.error_code = _refusal(error.code, self._version)
            return None
        if isinstance(found, TimestampSearch):
            return found
        answer.timestamp, answer.offset, answer.leader_epoch = found
        return None

    def _look_up(
        self, topic: str, wish: ListOffsetsPartition, search: TimestampSearch | None
    ) -> TimestampedOffset | TimestampSearch:
        # A client must not get an answer of a meaning that its version does not have.
        if wish.timestamp < 0 and self._version < _SINCE.get(wish.timestamp, NEVER):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        request = self._request
        return self._broker.partition(topic, wish.partition_index).list_offset(
            wish.timestamp,
            read_committed=request.isolation_level == READ_COMMITTED,
            current_leader_epoch=wish.current_leader_epoch,
            for_replica=request.replica_id != CONSUMER_REPLICA_ID,
            only_from_leader=request.replica_id != DEBUGGING_REPLICA_ID,
            search=search,
        )


def _each(topics: list[ListOffsetsTopic]) -> Iterator[tuple[str, ListOffsetsPartition]]:
    return ((topic.name, each) for topic in topics for each in topic.partitions)


class _Wishes:
    """Requested topics and partitions, each once, in the order of their first mention."""

    def __init__(self, wishes: Iterable[tuple[str, ListOffsetsPartition]] = ()) -> None:
        self._by_topic: dict[str, dict[int, RequestedPartition]] = {}
        for each in wishes:
            self.add(each)

    def add(self, wish: tuple[str, ListOffsetsPartition]) -> None:
        topic, asked = wish
        of_topic = self._by_topic.setdefault(topic, {})
        # A dict keeps the place of the first mention, and only one entry: Kafka tells INVALID_REQUEST once.
        of_topic[asked.partition_index] = RequestedPartition(asked, asked.partition_index in of_topic)

    def by_topic(self) -> list[RequestedTopic]:
        return [RequestedTopic(name, list(partitions.values())) for name, partitions in self._by_topic.items()]


def _not_understood(request: ListOffsetsRequest) -> Worked[ListOffsetsResponse]:
    def refuse(topic: ListOffsetsTopic, each: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        return ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=code)

    return answer_partitions(request.topics, attrgetter("partitions"), refuse, partial(_response, request.topics))


def _response(
    topics: Sequence[ListOffsetsTopic | RequestedTopic], answers: list[list[ListOffsetsPartitionResponse]]
) -> ListOffsetsResponse:
    answered = zip(topics, answers, strict=True)
    return ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name=topic.name, partitions=each) for topic, each in answered]
    )


def _refusal(code: ErrorCode, api_version: int) -> ErrorCode:
    # Older clients do not know this code. The one in its place makes them try again as well.
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and api_version < OFFSET_NOT_AVAILABLE_SINCE:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code
