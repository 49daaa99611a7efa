"""AddRaftVoter: another voter for the quorum that keeps Kafka's metadata, of which there is none.

Behaviour
* Only for those who may alter the cluster.
* The id of another cluster is INCONSISTENT_CLUSTER_ID. Anything else is UNSUPPORTED_VERSION, which Kafka answers where the
  voters of a quorum cannot change (kraft.version 0).
"""

from __future__ import annotations

from ottla.server.broker import Broker
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.dispatch.no_quorum import refused_voter
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


@handles(AddRaftVoterRequest)
def add_raft_voter(request: AddRaftVoterRequest, context: RequestContext[Broker]) -> AddRaftVoterResponse:
    error = refused_voter(context, request.cluster_id, "adding")
    return AddRaftVoterResponse(error_code=error.code, error_message=error.message)
