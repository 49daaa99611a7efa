"""AllocateProducerIds: a broker asks the controller for a block of producer ids (KIP-730).

Behaviour
* Whoever may not do a ClusterAction is CLUSTER_AUTHORIZATION_FAILED.
* The block is reserved in the coordination tree before the answer goes out, so that no id is ever given out twice.
* At a broker that is not the controller: NOT_CONTROLLER. A broker that is not registered is BROKER_ID_NOT_REGISTERED, one
  that names another incarnation than is registered STALE_BROKER_EPOCH.

Ottla's own brokers reserve their blocks themselves, by the same conditional write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import CoordinationError
from ottla.server.broker import Broker
from ottla.server.coordinators.producer_id_blocks import ProducerIdBlocks
from ottla.server.dispatch.access import require_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from ottla.server.cluster.ports import Member


@handles(AllocateProducerIdsRequest)
async def allocate_producer_ids(
    request: AllocateProducerIdsRequest, context: RequestContext[Broker]
) -> AllocateProducerIdsResponse:
    require_on_cluster(context, AclOperation.CLUSTER_ACTION)
    try:
        block = await _allocate(request, context.broker.member)
    except KafkaError as error:
        return _response(error.code, range(0))
    except CoordinationError:
        return _response(ErrorCode.REQUEST_TIMED_OUT, range(0))
    return _response(ErrorCode.NONE, block)


async def _allocate(request: AllocateProducerIdsRequest, member: Member) -> range:
    if member.controller is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    (registered,) = await member.session.get_all([znodes.broker_path(request.broker_id)])
    if registered is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED)
    if registered.creation_id != request.broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    return await ProducerIdBlocks(member.session, request.broker_id).allocate_block()


def _response(code: ErrorCode, block: range) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=code, producer_id_start=block.start, producer_id_len=len(block)
    )
