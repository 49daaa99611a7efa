"""Steps of a transaction: AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn and WriteTxnMarkers."""

from __future__ import annotations

from collections.abc import Collection

from ottla.groupcoord.offsets.commits import names_of
from ottla.groupcoord.offsets.manager import TXN_TOPIC_ID_VERSION
from ottla.groupcoord.transactions.service import BATCH_VERSION
from ottla.replication.cluster.metadata_cache import is_internal_topic
from ottla.server.api.produce.markers import write_markers
from ottla.server.broker import Broker
from ottla.server.coordinator_factory import groups_of, transactions_of
from ottla.server.dispatch.access import (
    AclOperation,
    ResourceType,
    decided,
    may,
    may_on_cluster,
    require,
    require_on_cluster,
)
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


@handles(AddPartitionsToTxnRequest)
def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: RequestContext[Broker]
) -> Answer[AddPartitionsToTxnResponse]:
    """AddPartitionsToTxn: add partitions to a transaction, or verify that it has them.

    Behaviour
    * Until version 3 producers send the request, for one transaction. Since version 4 brokers send it, for many
      transactions: when a transaction's first batch for a partition arrives, the broker adds the partition, or verifies
      that it takes part (`verify_only`).
    * All of the partitions are added, or none: if one does not exist, the others get OPERATION_NOT_ATTEMPTED.
    * The response is sent when the log has committed the change; immediately if nothing changes. The error is
      CONCURRENT_TRANSACTIONS while the previous transaction is being completed, and TRANSACTION_ABORTABLE for a
      partition to verify that does not take part.
    * Before version 2 the response has INVALID_PRODUCER_EPOCH in place of PRODUCER_FENCED.
    * A producer needs the right to write with the transactional id; otherwise every partition gets this error. It also
      needs the right to write to each topic, and may add no internal topic. Brokers need the right to ClusterAction.
    """
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


@handles(AddOffsetsToTxnRequest)
def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, context: RequestContext[Broker]
) -> Answer[AddOffsetsToTxnResponse]:
    """AddOffsetsToTxn: announce that a transaction will commit a group's offsets.

    Behaviour
    * The partition of `__consumer_offsets` for the group takes part in the transaction, as if AddPartitionsToTxn had
      named it; the errors are the same.
    * The client needs the rights to write with the transactional id and to read the group.
    """
    require(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    require(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    return transactions_of(context.broker).add_offsets(request, api_version=context.api_version)


@handles(TxnOffsetCommitRequest)
def txn_offset_commit(
    request: TxnOffsetCommitRequest, context: RequestContext[Broker]
) -> Answer[TxnOffsetCommitResponse]:
    """TxnOffsetCommit: commit a group's offsets with a producer's transaction.

    Behaviour
    * First the transaction is verified; since version 5 the group's partition is added to it. If this fails, every
      partition gets the error; the client retries, this broker does not.
    * Since version 3 the member and its generation are checked as in OffsetCommit, whatever the state of a classic
      group; without a member anybody may commit. Since version 6 topics have ids, and a stale member epoch or a missing
      group has an error of its own; before, both get ILLEGAL_GENERATION.
    * Partitions that do not exist, and metadata longer than offset.metadata.max.bytes, are refused one by one; the
      other offsets are stored. The response is sent when the log has committed the offsets.
    * The offsets are invisible until the transaction has ended; requests for stable offsets get UNSTABLE_OFFSET_COMMIT.
    * The client needs the rights to write with the transactional id and to read the group; otherwise every partition
      gets the error. Topics that it may not read get TOPIC_AUTHORIZATION_FAILED, whether they exist or not.
    """
    require(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    require(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    version, broker = context.api_version, context.broker

    def commit(denied: Collection[str]) -> Answer[TxnOffsetCommitResponse]:
        service = groups_of(broker).transactional_offsets
        return service.txn_offset_commit(request, api_version=version, denied=denied)

    names = names_of(request.topics, broker.cluster, by_id=version >= TXN_TOPIC_ID_VERSION)
    return decided(context, AclOperation.READ, ResourceType.TOPIC, names, commit)


@handles(EndTxnRequest)
def end_txn(request: EndTxnRequest, context: RequestContext[Broker]) -> Answer[EndTxnResponse]:
    """EndTxn: commit or abort a transaction.

    Behaviour
    * The response is sent when the log has committed the decision. The markers follow; until they are written the
      producer gets CONCURRENT_TRANSACTIONS when it begins the next transaction.
    * Since version 5 every transaction has an epoch of its own, and the response has the producer's next epoch. So a
      repeated request can be distinguished from one that ends the next transaction.
    * Before version 2 the response has INVALID_PRODUCER_EPOCH in place of PRODUCER_FENCED.
    """
    require(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    return transactions_of(context.broker).end_txn(request, api_version=context.api_version)


@handles(WriteTxnMarkersRequest)
def write_txn_markers(
    request: WriteTxnMarkersRequest, context: RequestContext[Broker]
) -> Answer[WriteTxnMarkersResponse]:
    """WriteTxnMarkers: write the end of transactions into this broker's partitions, for a coordinator or administrator.

    Coordinators need the right to ClusterAction, administrators the right to alter the cluster; otherwise every
    partition gets CLUSTER_AUTHORIZATION_FAILED. `server/api/produce/markers.py` describes the other errors.
    """
    if not may_on_cluster(context, AclOperation.ALTER, quietly=True) and not may_on_cluster(
        context, AclOperation.CLUSTER_ACTION
    ):
        return write_markers(context.broker, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    # A marker for offsets asks the group coordinator, whose code `coordinator_factory` has imported with this module.
    return write_markers(context.broker, request)
