"""LeaderAndIsr: the controller says what this broker leads and follows; see `replication/hosting/replica_control.py`.

Only versions that know topic ids are served: those of inter.broker.protocol.version 2.8 and later.
"""

from __future__ import annotations

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasMember
from ottla.wire.answers import Answer
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse


@handles(LeaderAndIsrRequest, versions="5-7", between_brokers=True)
def leader_and_isr(request: LeaderAndIsrRequest, context: RequestContext[HasMember]) -> Answer[LeaderAndIsrResponse]:
    return context.broker.member.control.lead_and_follow(request)
