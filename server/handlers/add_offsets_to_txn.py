"""AddOffsetsToTxn: a transaction is going to commit offsets of a group.

Behaviour
* The partition of `__consumer_offsets` that keeps the group's offsets takes part in the transaction, as if it had been
  named in AddPartitionsToTxn; the errors are the same.
"""

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasTransactions
from ottla.wire.answers import Answer
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


@handles(AddOffsetsToTxnRequest)
def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, context: RequestContext[HasTransactions]
) -> Answer[AddOffsetsToTxnResponse]:
    return context.broker.transactions.add_offsets(request, api_version=context.api_version)
