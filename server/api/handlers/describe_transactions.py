"""Transactions and producers, as administrators see them: DescribeTransactions, ListTransactions and DescribeProducers."""

from __future__ import annotations

from collections.abc import Collection, Coroutine
from contextlib import suppress

import trio

from ottla.groupcoord.patterns import Pattern
from ottla.groupcoord.transactions import listing
from ottla.groupcoord.transactions.service import DESCRIBED_AS_NAMED, undescribed
from ottla.replication.cluster.metadata_cache import topic_name_problem
from ottla.replication.log.producers import ProducerEntry
from ottla.server.broker import Broker
from ottla.server.coordinator_factory import transactions_of
from ottla.server.dispatch.access import AclOperation, ResourceType, decided, denied_of
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import each_in_slices
from ottla.wire.answers import Answer, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from ottla.wire.time_slice import TimeSlice


@handles(DescribeTransactionsRequest)
def describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext[Broker]
) -> Answer[DescribeTransactionsResponse]:
    """DescribeTransactions: describe state, producer and partitions of transactional ids that this broker coordinates.

    Behaviour
    * An unknown id gets TRANSACTIONAL_ID_NOT_FOUND, an empty one INVALID_REQUEST.
    * If a request names more than a few ids, each is described once, however often the request names it.
    * An id that the client may not describe gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Topics that the client may not
      describe are omitted.
    """
    if context.broker.authorizer is None:
        return transactions_of(context.broker).describe_transactions(request)
    return _describe_allowed_transactions(request, context)


async def _describe_allowed_transactions(
    request: DescribeTransactionsRequest, context: RequestContext[Broker]
) -> DescribeTransactionsResponse:
    asked = request.transactional_ids
    denied = await denied_of(context, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, asked)
    request.transactional_ids = [each for each in asked if each not in denied]
    answer = transactions_of(context.broker).describe_transactions(request)
    response = await answer if isinstance(answer, Coroutine) else answer
    for state in response.transaction_states:
        names = (topic.topic for topic in state.topics)
        hidden = await denied_of(context, AclOperation.DESCRIBE, ResourceType.TOPIC, names)
        state.topics = [topic for topic in state.topics if topic.topic not in hidden]
    if denied:
        # In the order of the request. If that is long, each id is told of once.
        described = {state.transactional_id: state for state in response.transaction_states}
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        ids = dict.fromkeys(asked) if len(asked) > DESCRIBED_AS_NAMED else asked
        response.transaction_states = [undescribed(each, code) if each in denied else described[each] for each in ids]
    return response


COST_ON_LOOP = 10_000
"""Steps of a match that the event loop may be held for."""

_matching = trio.CapacityLimiter(1)
"""Threads that match contend for the processors with everything else."""


@handles(ListTransactionsRequest)
def list_transactions(
    request: ListTransactionsRequest, context: RequestContext[Broker]
) -> Answer[ListTransactionsResponse]:
    """ListTransactions: list the transactional ids that this broker coordinates.

    Behaviour
    * Filters: state, producer id, age of the transaction (since version 1), and a pattern for the whole id (since
      version 2). The response lists the request's unknown state names.
    * COORDINATOR_LOAD_IN_PROGRESS while a partition is being loaded; INVALID_REGULAR_EXPRESSION if the pattern does not
      follow RE2's rules, or is very large.
    """
    listed = listing.list_transactions(transactions_of(context.broker), request)
    if context.broker.authorizer is not None:
        listed = _allowed(listed, context)
    # As with Kafka an empty pattern is none.
    if not request.transactional_id_pattern:
        return listed
    return _matched(listed, request.transactional_id_pattern)


async def _allowed(
    listed: Worked[ListTransactionsResponse], context: RequestContext[Broker]
) -> ListTransactionsResponse:
    response: ListTransactionsResponse = await listed if isinstance(listed, Coroutine) else listed
    names = (each.transactional_id for each in response.transaction_states)
    denied = await denied_of(context, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, names)
    states = response.transaction_states
    response.transaction_states = [each for each in states if each.transactional_id not in denied]
    return response


async def _matched(listed: Worked[ListTransactionsResponse], text: str) -> ListTransactionsResponse:
    response: ListTransactionsResponse = await listed if isinstance(listed, Coroutine) else listed
    if response.error_code:
        return response
    try:
        pattern = Pattern(text)
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code, unknown_state_filters=[], transaction_states=[])
    time_slice = TimeSlice()
    kept = []
    for each in response.transaction_states:
        if await _matches(pattern, each.transactional_id):
            kept.append(each)
        await time_slice.yield_if_over()
    response.transaction_states = kept
    return response


async def _matches(pattern: Pattern, transactional_id: str) -> bool:
    if pattern.cost(transactional_id) <= COST_ON_LOOP:
        return pattern.matches(transactional_id)
    return await trio.to_thread.run_sync(pattern.matches, transactional_id, limiter=_matching, abandon_on_cancel=True)


PARTITIONS_AT_ONCE = 10
PRODUCERS_AT_ONCE = 1000
PRODUCERS_PER_TURN = 200


@handles(DescribeProducersRequest)
def describe_producers(
    request: DescribeProducersRequest, context: RequestContext[Broker]
) -> Answer[DescribeProducersResponse]:
    """DescribeProducers: describe partitions' producers, with sequences and open transactions (KIP-664).

    Behaviour
    * An invalid topic name gets INVALID_TOPIC_EXCEPTION. A topic that the client may not read gets
      TOPIC_AUTHORIZATION_FAILED, whether it exists or not.
    * In a request for more than a few partitions, a partition that is named again is described once.
    """
    names = (topic.name for topic in request.topics if topic_name_problem(topic.name) is None)
    return decided(
        context,
        AclOperation.READ,
        ResourceType.TOPIC,
        names,
        lambda denied: _describe_allowed_producers(request, context, denied),
    )


def _describe_allowed_producers(
    request: DescribeProducersRequest, context: RequestContext[Broker], denied: Collection[str]
) -> Worked[DescribeProducersResponse]:
    if sum([len(topic.partition_indexes) for topic in request.topics]) > PARTITIONS_AT_ONCE:
        return _describe_each_once(request, context, denied)
    if _producer_count(request, context) > PRODUCERS_AT_ONCE:
        return _describe_at_length(request, context, denied)
    answers = [
        [_describe(topic.name, index, context, denied) for index in topic.partition_indexes] for topic in request.topics
    ]
    return _respond(request, answers)


def _respond(request: DescribeProducersRequest, answers: list[list[PartitionResponse]]) -> DescribeProducersResponse:
    topics = zip(request.topics, answers, strict=True)
    return DescribeProducersResponse(topics=[TopicResponse(name=topic.name, partitions=each) for topic, each in topics])


def _producer_count(request: DescribeProducersRequest, context: RequestContext[Broker]) -> int:
    count = 0
    for topic in request.topics:
        for index in topic.partition_indexes:
            with suppress(KafkaError):
                count += len(context.broker.partition(topic.name, index).log.producers)
    return count


async def _describe_at_length(
    request: DescribeProducersRequest, context: RequestContext[Broker], denied: Collection[str]
) -> DescribeProducersResponse:
    """Return the response about many partitions or producers, made in time slices."""
    time_slice = TimeSlice()
    answers: list[list[PartitionResponse]] = []
    for topic in request.topics:
        answers.append([])
        for index in topic.partition_indexes:
            answer, entries = _begin(topic.name, index, context, denied)
            answers[-1].append(answer)
            for start in range(0, len(entries), PRODUCERS_PER_TURN):
                answer.active_producers += map(_state, entries[start : start + PRODUCERS_PER_TURN])
                await time_slice.yield_if_over()
            await time_slice.yield_if_over()
    return _respond(request, answers)


async def _describe_each_once(
    request: DescribeProducersRequest, context: RequestContext[Broker], denied: Collection[str]
) -> DescribeProducersResponse:
    named: dict[str, dict[int, None]] = {}
    time_slice = TimeSlice()
    for topic in request.topics:
        named.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        await time_slice.yield_if_over()
    request.topics = await each_in_slices(
        named.items(), lambda each: TopicRequest(name=each[0], partition_indexes=list(each[1]))
    )
    return await _describe_at_length(request, context, denied)


def _describe(topic: str, index: int, context: RequestContext[Broker], denied: Collection[str]) -> PartitionResponse:
    answer, entries = _begin(topic, index, context, denied)
    answer.active_producers += map(_state, entries)
    return answer


def _begin(
    topic: str, index: int, context: RequestContext[Broker], denied: Collection[str]
) -> tuple[PartitionResponse, list[ProducerEntry]]:
    """Return a partition's response without producers, and the producers to add."""
    answer = PartitionResponse(partition_index=index, error_code=ErrorCode.NONE, active_producers=[])
    try:
        if topic in denied:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            raise KafkaError(code, code.message)
        if context.broker.cluster.topics.get(topic) is None:
            raise _missing(topic)
        return answer, list(context.broker.partition(topic, index).log.producers.values())
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, error.message
        return answer, []


def _missing(topic: str) -> KafkaError:
    problem = topic_name_problem(topic)
    if problem is not None:
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


def _state(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.current_txn_first_offset,
    )
