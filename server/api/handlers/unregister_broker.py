"""UnregisterBroker: a broker that will not come back is to be forgotten.

Behaviour
* Only for those who may alter the cluster.
* An id that nobody has is BROKER_ID_NOT_REGISTERED. A broker that is alone does not forget itself: INVALID_REQUEST. Kafka's
  controller would forget any broker.
"""

from __future__ import annotations

from ottla.server.broker import Broker
from ottla.server.dispatch.access import refusal_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


@handles(UnregisterBrokerRequest)
def unregister_broker(request: UnregisterBrokerRequest, context: RequestContext[Broker]) -> UnregisterBrokerResponse:
    error = refusal_on_cluster(context, AclOperation.ALTER, "UnregisterBroker") or _answer(request.broker_id, context)
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)


def _answer(broker_id: int, context: RequestContext[Broker]) -> KafkaError:
    if broker_id == context.broker.node_id:
        return KafkaError(
            ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is the only one, and it answers this request."
        )
    return KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
