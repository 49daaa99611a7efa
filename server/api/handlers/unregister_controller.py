"""UnregisterController: a controller that will not come back is to be forgotten. A broker that is alone has registered none.

Behaviour
* Only for those who may alter the cluster.
* Every id is CONTROLLER_ID_NOT_REGISTERED.
"""

from __future__ import annotations

from ottla.server.broker import Broker
from ottla.server.dispatch.access import refusal_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse


@handles(UnregisterControllerRequest)
def unregister_controller(
    request: UnregisterControllerRequest, context: RequestContext[Broker]
) -> UnregisterControllerResponse:
    error = refusal_on_cluster(context, AclOperation.ALTER, "UnregisterController") or KafkaError(
        ErrorCode.CONTROLLER_ID_NOT_REGISTERED, f"Controller ID {request.controller_id} is not currently registered."
    )
    return UnregisterControllerResponse(error_code=error.code, error_message=error.message)
