"""WriteTxnMarkers: a transaction coordinator, or an administrator, ends transactions in the partitions of this broker.

Behaviour
* Coordinators have to have the right to do a ClusterAction, administrators that to alter the cluster. To others every
  partition is CLUSTER_AUTHORIZATION_FAILED.
"""

from ottla.server import coordinator_factory  # noqa: F401  # a marker for offsets asks the group coordinator
from ottla.server.api.produce.markers import write_markers
from ottla.server.broker import Broker
from ottla.server.dispatch.access import may_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse


@handles(WriteTxnMarkersRequest)
def write_txn_markers(
    request: WriteTxnMarkersRequest, context: RequestContext[Broker]
) -> Answer[WriteTxnMarkersResponse]:
    if not may_on_cluster(context, AclOperation.ALTER, quietly=True) and not may_on_cluster(
        context, AclOperation.CLUSTER_ACTION
    ):
        return write_markers(context.broker, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return write_markers(context.broker, request)
