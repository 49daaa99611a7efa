"""StopReplica: the controller takes replicas from this broker; see `replication/hosting/replica_control.py`.

Only versions that carry leader epochs are served: those of inter.broker.protocol.version 2.6 and later.
"""

from __future__ import annotations

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasMember
from ottla.wire.answers import Answer
from ottla.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


@handles(StopReplicaRequest, versions="3-4", between_brokers=True)
def stop_replica(request: StopReplicaRequest, context: RequestContext[HasMember]) -> Answer[StopReplicaResponse]:
    return context.broker.member.control.stop(request)
