"""InitProducerId: an id under which a producer's batches are recognised when it sends them again.

Behaviour
* An idempotent producer gets a fresh id and epoch 0 every time, whatever id it had before.
* Transactions are not served. TRANSACTIONAL_ID_AUTHORIZATION_FAILED is the error that stops every client at once. As
  a rule FindCoordinator has refused the client before, with more words.
"""

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasProducerIds
from ottla.wire.answers import Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER_ID = NO_PRODUCER_EPOCH = -1
FIRST_EPOCH = 0


@handles(InitProducerIdRequest)
def init_producer_id(
    request: InitProducerIdRequest, context: RequestContext[HasProducerIds]
) -> Worked[InitProducerIdResponse]:
    half_known = (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH)
    if half_known or request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    producer_id = context.broker.producer_ids.take()
    return _fresh(producer_id) if producer_id is not None else _next(context)


async def _next(context: RequestContext[HasProducerIds]) -> InitProducerIdResponse:
    try:
        return _fresh(await context.broker.producer_ids.next())
    except KafkaError as error:
        return _refused(error.code)


def _fresh(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=FIRST_EPOCH)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
