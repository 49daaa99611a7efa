"""InitProducerId: an id under which a producer's batches are recognised when it sends them again.

Behaviour
* An idempotent producer gets a fresh id and epoch 0 every time, whatever id it had before.
* A producer with a transactional id gets the id that belongs to it, and a higher epoch: whoever had the id before is
  fenced. If it has left a transaction open that is aborted first, and the answer is CONCURRENT_TRANSACTIONS until then.
  Since version 3 a producer may name its present id and epoch to go on with them after an error (KIP-360).
* Before version 4 PRODUCER_FENCED is told as INVALID_PRODUCER_EPOCH.
"""

from typing import Protocol

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasProducerIds, HasTransactions
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER_ID = NO_PRODUCER_EPOCH = -1
FIRST_EPOCH = 0


class Port(HasProducerIds, HasTransactions, Protocol):
    """What is needed of the broker here."""


@handles(InitProducerIdRequest)
def init_producer_id(request: InitProducerIdRequest, context: RequestContext[Port]) -> Answer[InitProducerIdResponse]:
    half_known = (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH)
    if half_known:
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return context.broker.transactions.init_producer_id(request, api_version=context.api_version)
    producer_id = context.broker.producer_ids.take()
    return _fresh(producer_id) if producer_id is not None else _next(context)


async def _next(context: RequestContext[Port]) -> InitProducerIdResponse:
    try:
        return _fresh(await context.broker.producer_ids.next())
    except KafkaError as error:
        return _refused(error.code)


def _fresh(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=FIRST_EPOCH)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
