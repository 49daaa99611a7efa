"""AddOffsetsToTxn: a transaction is going to commit offsets of a group.

Behaviour
* The partition of `__consumer_offsets` that keeps the group's offsets takes part in the transaction, as if it had been
  named in AddPartitionsToTxn; the errors are the same.
* The client has to have the rights to write with the transactional id and to read the group.
"""

from ottla.server.broker import Broker
from ottla.server.coordinator_factory import transactions_of
from ottla.server.dispatch.access import require
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


@handles(AddOffsetsToTxnRequest)
def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, context: RequestContext[Broker]
) -> Answer[AddOffsetsToTxnResponse]:
    require(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    require(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    return transactions_of(context.broker).add_offsets(request, api_version=context.api_version)
