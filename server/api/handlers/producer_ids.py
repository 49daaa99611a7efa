"""Producer ids: InitProducerId and AllocateProducerIds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.groupcoord.runtime.answers import finished
from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import CoordinationError
from ottla.replication.cluster.metadata_cache import TRANSACTION_STATE_TOPIC
from ottla.server.broker import Broker
from ottla.server.coordinators.coordinators import ProducerIdBlocks
from ottla.server.dispatch.access import AclOperation, ResourceType, may, may_on_any, may_on_cluster, require_on_cluster
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from ottla.server.cluster.ports import Member

NO_PRODUCER_ID = NO_PRODUCER_EPOCH = -1
FIRST_EPOCH = 0


@handles(InitProducerIdRequest)
def init_producer_id(request: InitProducerIdRequest, context: RequestContext[Broker]) -> Answer[InitProducerIdResponse]:
    """InitProducerId: assign a producer id, by which brokers recognize a producer's resent batches.

    Behaviour
    * An idempotent producer gets a new id and epoch 0 every time.
    * A transactional producer gets the producer id of its transactional id, with a higher epoch, which fences the
      earlier producer. If that producer has left a transaction open, the transaction is aborted first; until then the
      response is CONCURRENT_TRANSACTIONS. Since version 3 a producer may name its present id and epoch to continue with
      them after an error (KIP-360).
    * A transactional producer needs the right to write with the transactional id. An idempotent producer needs the
      right to idempotent writes, or to write to any topic.
    * Before version 4 the response has INVALID_PRODUCER_EPOCH in place of PRODUCER_FENCED.
    """
    if (refusal := _refusal(request.transactional_id, context)) is not None:
        return _refused(refusal)
    half_known = (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH)
    if half_known:
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        broker, version = context.broker, context.api_version
        # Not by way of `coordinator_factory`, whose code no idempotent producer without transactions needs.
        if broker.coordinators.lack_code((TRANSACTION_STATE_TOPIC,)):
            return _once_loaded(request, broker, version)
        return broker.transactions.init_producer_id(request, api_version=version)
    producer_id = context.broker.producer_ids.take()
    return _fresh(producer_id) if producer_id is not None else _next(context)


def _refusal(transactional_id: str | None, context: RequestContext[Broker]) -> ErrorCode | None:
    if transactional_id is not None:
        is_allowed = may(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        return None if is_allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if may_on_cluster(context, AclOperation.IDEMPOTENT_WRITE, quietly=True):
        return None
    is_allowed = may_on_any(context, AclOperation.WRITE, ResourceType.TOPIC)
    return None if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def _once_loaded(request: InitProducerIdRequest, broker: Broker, version: int) -> InitProducerIdResponse:
    await broker.coordinators.ensure_code((TRANSACTION_STATE_TOPIC,), broker.environment.run_in_thread)
    return await finished(broker.transactions.init_producer_id(request, api_version=version))


async def _next(context: RequestContext[Broker]) -> InitProducerIdResponse:
    try:
        return _fresh(await context.broker.producer_ids.next())
    except KafkaError as error:
        return _refused(error.code)


def _fresh(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=FIRST_EPOCH)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


@handles(AllocateProducerIdsRequest)
async def allocate_producer_ids(
    request: AllocateProducerIdsRequest, context: RequestContext[Broker]
) -> AllocateProducerIdsResponse:
    """AllocateProducerIds: allocate a block of producer ids for a broker, at the controller (KIP-730).

    Behaviour
    * A client without the right to ClusterAction gets CLUSTER_AUTHORIZATION_FAILED.
    * The block is reserved in the coordination tree before the response is sent, so that no id is ever assigned twice.
    * A broker that is not the controller answers NOT_CONTROLLER. A broker that is not registered gets
      BROKER_ID_NOT_REGISTERED; one that names another incarnation than the registered one gets STALE_BROKER_EPOCH.

    Ottla's own brokers do not send this request; they reserve blocks themselves, by the same conditional write.
    """
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
