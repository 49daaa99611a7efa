"""FindCoordinator: which broker coordinates a group.

Behaviour
* The coordinator of a group leads the partition of `__consumer_offsets` that the group's id falls to. The first request
  makes the topic; until its partitions have leaders the answer is COORDINATOR_NOT_AVAILABLE, which clients retry.
* Coordinators of transactions and of share partitions are not served. The refusal is meant to stop a client at once with
  words: librdkafka stops asking only for an authorization error, and shows our message with it; clients that speak
  version 4 and newer (Java, kafka-python) stop for any error that is not retriable, and Java shows the message.
"""

from collections.abc import Callable
from typing import Protocol

from ottla.replication.cluster.state import GROUP_METADATA_TOPIC
from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.net.turns import answer_each
from ottla.server.ports import HasAdministration, HasCluster, HasGroups
from ottla.wire.answers import Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2
BATCH_VERSION = 4
SHARE_VERSION = 6
NO_NODE = -1
KEYS_AT_ONCE = 4  # they may be very long


class Port(HasAdministration, HasCluster, HasGroups, Protocol):
    """What is needed of the broker here."""


@handles(FindCoordinatorRequest)
def find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext[Port]
) -> Worked[FindCoordinatorResponse]:
    refusal = _refusal(request.key_type, context.api_version)
    if refusal is not None:
        return _answer(request, context, lambda key: _refused(key, refusal, context))
    if context.broker.cluster.topic(GROUP_METADATA_TOPIC) is None:
        return _find_in_new_topic(request, context)
    return _find(request, context)


def _refusal(key_type: int, api_version: int) -> KafkaError | None:
    """Why coordinators of this type cannot be found here."""
    if key_type == GROUP:
        return None
    if key_type == TRANSACTION:
        code = ErrorCode.UNSUPPORTED_VERSION
        if api_version < BATCH_VERSION:
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return KafkaError(code, "This broker does not serve transactions: use the producer without a transactional.id.")
    if key_type == SHARE and api_version >= SHARE_VERSION:
        return KafkaError(ErrorCode.UNSUPPORTED_VERSION, "This broker does not serve share groups.")
    return KafkaError(ErrorCode.INVALID_REQUEST, None if key_type == SHARE else ErrorCode.INVALID_REQUEST.message)


async def _find_in_new_topic(request: FindCoordinatorRequest, context: RequestContext[Port]) -> FindCoordinatorResponse:
    try:
        await context.broker.ensure_internal_topic(GROUP_METADATA_TOPIC)
    except KafkaError as error:
        not_available = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
        answer = _answer(request, context, lambda key: _refused(key, not_available, context))
    else:
        answer = _find(request, context)
    return answer if isinstance(answer, FindCoordinatorResponse) else await answer


def _find(request: FindCoordinatorRequest, context: RequestContext[Port]) -> Worked[FindCoordinatorResponse]:
    """A key that is named again is not looked up again."""
    found: dict[str, Coordinator] = {}

    def find(key: str) -> Coordinator:
        return found.get(key) or found.setdefault(key, _coordinator(key, context))

    return _answer(request, context, find)


def _answer(
    request: FindCoordinatorRequest, context: RequestContext[Port], answer: Callable[[str], Coordinator]
) -> Worked[FindCoordinatorResponse]:
    def respond(found: list[Coordinator]) -> FindCoordinatorResponse:
        return _response(request, context, found)

    return answer_each(_keys(request, context), answer, respond, at_once=KEYS_AT_ONCE)


def _keys(request: FindCoordinatorRequest, context: RequestContext[Port]) -> list[str]:
    return request.coordinator_keys if context.api_version >= BATCH_VERSION else [request.key]


def _coordinator(group_id: str, context: RequestContext[Port]) -> Coordinator:
    broker = context.broker
    partition = broker.cluster.partition(GROUP_METADATA_TOPIC, broker.groups.partition_for(group_id))
    endpoint = None if partition is None else broker.cluster.endpoint(partition.leader, context.listener_name)
    if endpoint is None:
        return _refused(group_id, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE), context)
    return Coordinator(
        key=group_id,
        node_id=endpoint.node_id,
        host=endpoint.host,
        port=endpoint.port,
        error_code=ErrorCode.NONE,
        error_message="",
    )


def _refused(key: str, error: KafkaError, context: RequestContext[Port]) -> Coordinator:
    """Before version 4 every error explains itself."""
    text = "" if context.api_version >= BATCH_VERSION else error.code.message
    return Coordinator(
        key=key,
        node_id=NO_NODE,
        host="",
        port=-1,
        error_code=error.code,
        error_message=error.message or text,
    )


def _response(
    request: FindCoordinatorRequest, context: RequestContext[Port], coordinators: list[Coordinator]
) -> FindCoordinatorResponse:
    """Before version 4 there is one key, and its coordinator is the whole answer; success has the text "NONE" then."""
    if context.api_version >= BATCH_VERSION:
        return FindCoordinatorResponse(coordinators=coordinators)
    (coordinator,) = coordinators
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message or "NONE",
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )
