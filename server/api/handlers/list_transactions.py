"""ListTransactions: the transactional ids that this broker coordinates.

Behaviour
* Filters by state, by producer id, by the age of the transaction (version 1) and by a pattern that the whole id has to
  match (version 2). State names that nobody knows are told in the answer.
* COORDINATOR_LOAD_IN_PROGRESS while a partition is being loaded; INVALID_REGULAR_EXPRESSION if the pattern does not follow
  RE2's rules, or is very large.
"""

from __future__ import annotations

from collections.abc import Coroutine

import trio

from ottla.groupcoord.patterns import Pattern
from ottla.groupcoord.transactions import listing
from ottla.server.broker import Broker
from ottla.server.coordinator_factory import transactions_of
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.deciding import denied_of
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer, Worked
from ottla.wire.errors import KafkaError
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.wire.time_slice import TimeSlice

COST_ON_LOOP = 10_000
"""Steps of a match that the event loop may be held for."""

_matching = trio.CapacityLimiter(1)
"""Threads that match contend for the processors with everything else."""


@handles(ListTransactionsRequest)
def list_transactions(
    request: ListTransactionsRequest, context: RequestContext[Broker]
) -> Answer[ListTransactionsResponse]:
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
