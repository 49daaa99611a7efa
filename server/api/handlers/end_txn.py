"""EndTxn: commit or abort a transaction.

Behaviour
* Answered as soon as the decision is safely in the log. The markers follow; until they are written the producer hears
  CONCURRENT_TRANSACTIONS when it begins the next transaction.
* Since version 5 every transaction has an epoch of its own, and the answer names the producer's next one. So a request
  that comes again is told from one that ends the next transaction.
* Before version 2 PRODUCER_FENCED is told as INVALID_PRODUCER_EPOCH.
"""

from ottla.server.broker import Broker
from ottla.server.coordinator_factory import transactions_of
from ottla.server.dispatch.access import require
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse


@handles(EndTxnRequest)
def end_txn(request: EndTxnRequest, context: RequestContext[Broker]) -> Answer[EndTxnResponse]:
    require(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    return transactions_of(context.broker).end_txn(request, api_version=context.api_version)
