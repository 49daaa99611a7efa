"""DescribeTransactions: state, producer and partitions of transactional ids that this broker coordinates.

Behaviour
* An id that is not known is TRANSACTIONAL_ID_NOT_FOUND, an empty one INVALID_REQUEST.
* A request that names more than a few ids hears of each of them once, however often it names it.
"""

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasTransactions
from ottla.wire.answers import Answer
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse


@handles(DescribeTransactionsRequest, answers_at_length=True, few_at_once=True, reads_only=True)
def describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext[HasTransactions]
) -> Answer[DescribeTransactionsResponse]:
    return context.broker.transactions.describe_transactions(request)
