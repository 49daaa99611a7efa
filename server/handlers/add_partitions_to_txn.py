"""AddPartitionsToTxn: partitions take part in a transaction, or do they?

Behaviour
* Until version 3 producers ask, about one transaction. Since version 4 other brokers do, about many: a broker that gets
  the first batch of a transaction for a partition adds the partition, or verifies that it takes part (`verify_only`).
* All of the partitions or none: if one does not exist the others get OPERATION_NOT_ATTEMPTED.
* Answered when the change is safely in the log; at once if nothing has to change. CONCURRENT_TRANSACTIONS while the
  transaction before is being ended, TRANSACTION_ABORTABLE for a verified partition that does not take part.
* Before version 2 PRODUCER_FENCED is told as INVALID_PRODUCER_EPOCH.
"""

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasTransactions
from ottla.wire.answers import Answer
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse


@handles(AddPartitionsToTxnRequest)
def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: RequestContext[HasTransactions]
) -> Answer[AddPartitionsToTxnResponse]:
    return context.broker.transactions.add_partitions(request, api_version=context.api_version)
