"""DescribeTransactions: state, producer and partitions of transactional ids that this broker coordinates.

Behaviour
* An id that is not known is TRANSACTIONAL_ID_NOT_FOUND, an empty one INVALID_REQUEST.
* A request that names more than a few ids hears of each of them once, however often it names it.
* An id that the client may not describe is TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Topics that it may not describe are left out.
"""

from __future__ import annotations

from collections.abc import Coroutine

from ottla.groupcoord.transactions.service import DESCRIBED_AS_NAMED, undescribed
from ottla.server.broker import Broker
from ottla.server.coordinator_factory import transactions_of
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.deciding import denied_of
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse


@handles(DescribeTransactionsRequest)
def describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext[Broker]
) -> Answer[DescribeTransactionsResponse]:
    if context.broker.authorizer is None:
        return transactions_of(context.broker).describe_transactions(request)
    return _describe_allowed(request, context)


async def _describe_allowed(
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
