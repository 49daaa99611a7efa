"""UpdateMetadata: the controller says who lives and who leads what; see `replication/hosting/replica_control.py`.

Only versions that know topic ids are served: those of inter.broker.protocol.version 2.8 and later.
"""

from __future__ import annotations

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasMember
from ottla.wire.answers import Answer
from ottla.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


@handles(UpdateMetadataRequest, versions="7-8", between_brokers=True)
def update_metadata(request: UpdateMetadataRequest, context: RequestContext[HasMember]) -> Answer[UpdateMetadataResponse]:
    return context.broker.member.control.update_metadata(request)
