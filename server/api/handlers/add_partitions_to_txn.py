"""AddPartitionsToTxn: partitions take part in a transaction, or do they?

Behaviour
* Until version 3 producers ask, about one transaction. Since version 4 other brokers do, about many: a broker that gets
  the first batch of a transaction for a partition adds the partition, or verifies that it takes part (`verify_only`).
* All of the partitions or none: if one does not exist the others get OPERATION_NOT_ATTEMPTED.
* Answered when the change is safely in the log; at once if nothing has to change. CONCURRENT_TRANSACTIONS while the
  transaction before is being ended, TRANSACTION_ABORTABLE for a verified partition that does not take part.
* Before version 2 PRODUCER_FENCED is told as INVALID_PRODUCER_EPOCH.
* Producers have to have the rights to write with the transactional id, or else every partition has the error that says so,
  and to all topics: internal ones are nobody's. Brokers have to have the right to do a ClusterAction.
"""

from collections.abc import Collection

from ottla.groupcoord.transactions.service import BATCH_VERSION
from ottla.replication.cluster.metadata_cache import is_internal_topic
from ottla.server.broker import Broker
from ottla.server.coordinator_factory import transactions_of
from ottla.server.dispatch.access import may, require_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.deciding import decided
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse


@handles(AddPartitionsToTxnRequest)
def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: RequestContext[Broker]
) -> Answer[AddPartitionsToTxnResponse]:
    version, transactions = context.api_version, transactions_of(context.broker)
    if version >= BATCH_VERSION:
        require_on_cluster(context, AclOperation.CLUSTER_ACTION)
        return transactions.add_partitions(request, api_version=version)
    transactional_id = request.v3_and_below_transactional_id
    if not may(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return transactions.add_partitions(request, api_version=version, refusal=refusal)
    internal = {topic.name for topic in request.v3_and_below_topics if is_internal_topic(topic.name)}

    def add(denied: Collection[str]) -> Answer[AddPartitionsToTxnResponse]:
        denied = {*internal, *denied} if internal else denied
        return transactions.add_partitions(request, api_version=version, denied=denied)

    names = (topic.name for topic in request.v3_and_below_topics if topic.name not in internal)
    return decided(context, AclOperation.WRITE, ResourceType.TOPIC, names, add)
