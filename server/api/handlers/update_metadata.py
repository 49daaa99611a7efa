"""UpdateMetadata: the controller says who lives and who leads what; see `replication/replica_manager/controller_requests.py`.

Behaviour
* Only versions that know topic ids are served: those of inter.broker.protocol.version 2.8 and later.
* Whoever may not do a ClusterAction is CLUSTER_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from ottla.server.broker import Broker
from ottla.server.dispatch.access import require_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


@handles(UpdateMetadataRequest)
def update_metadata(request: UpdateMetadataRequest, context: RequestContext[Broker]) -> Answer[UpdateMetadataResponse]:
    require_on_cluster(context, AclOperation.CLUSTER_ACTION)
    return context.broker.member.controller_requests.update_metadata(request)
