"""FindCoordinator: which broker coordinates a group, a transactional id or a share partition.

Behaviour
* The coordinator of a group leads the partition of `__consumer_offsets` that the group's id falls to, that of a
  transactional id a partition of `__transaction_state`, and that of a share partition the partition of
  `__share_group_state` that its key ("group:topic id:partition") falls to. The first request makes the topic; until its
  partitions have leaders the answer is COORDINATOR_NOT_AVAILABLE, which clients retry. If this broker leads the partition, the first
  request is answered when it is loaded, at the latest after LOADING_S: a client that is sent to a coordinator that loads waits up to 3 s.
* A key that names no share partition is INVALID_REQUEST, and so is a type that does not exist.
* A group or transactional id that the client may not describe is refused. A client that may see no coordinator does not cause
  the topic to be created. Share
  coordinators are for those who may do a ClusterAction.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import trio

from ottla.groupcoord.runtime.coordinator_runtime import Coordinator as LoadingCoordinator
from ottla.groupcoord.share.coordinator.records import parse_coordinator_key
from ottla.replication.cluster.metadata_cache import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from ottla.server.broker import Broker
from ottla.server.coordinator_factory import groups_of, share_coordinator_of, transactions_of
from ottla.server.dispatch.access import REFUSALS, AclOperation, ResourceType, decided, may_on_cluster
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import answer_each
from ottla.wire.answers import Answer, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2
BATCH_VERSION = 4
SHARE_VERSION = 6
NO_NODE = -1
RESOURCE_TYPES = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}
KEYS_AT_ONCE = 4  # they may be very long
LOADING_S = 1.0


class Place(NamedTuple):
    """Internal topic of one coordinator type.

    It has a function that returns the partition for a key; None: the key is invalid.
    """

    topic: str
    partition_for: Callable[[Broker, str], int | None]
    coordinator: Callable[[Broker], LoadingCoordinator[Any]] | None = None
    """None: clients do not ask for it."""


def _share_partition_for(broker: Broker, key: str) -> int | None:
    share_partition = parse_coordinator_key(key)
    return None if share_partition is None else share_coordinator_of(broker).partition_for(share_partition)


PLACES = {
    GROUP: Place(GROUP_METADATA_TOPIC, lambda broker, key: groups_of(broker).partition_for(key), groups_of),
    TRANSACTION: Place(
        TRANSACTION_STATE_TOPIC, lambda broker, key: transactions_of(broker).partition_for(key), transactions_of
    ),
    SHARE: Place(SHARE_GROUP_STATE_TOPIC, _share_partition_for),
}

Refused = Callable[[str], Coordinator | None]
"""Answer for a key that the client may not look up; None for other keys."""


@handles(FindCoordinatorRequest)
def find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext[Broker]
) -> Answer[FindCoordinatorResponse]:
    place = PLACES.get(request.key_type)
    if place is None or (request.key_type == SHARE and context.api_version < SHARE_VERSION):
        message = None if request.key_type == SHARE else ErrorCode.INVALID_REQUEST.message
        refusal = KafkaError(ErrorCode.INVALID_REQUEST, message)
        return _answer(request, context, lambda key: _refused(key, refusal, context))
    if request.key_type == SHARE:
        if not may_on_cluster(context, AclOperation.CLUSTER_ACTION):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return _answer(request, context, lambda key: _refused(key, KafkaError(code, code.message), context))
        return _find_allowed(request, context, place, ())
    keys = _keys(request, context)
    resource_type = RESOURCE_TYPES[request.key_type]
    return decided(
        context,
        AclOperation.DESCRIBE,
        resource_type,
        keys,
        lambda denied: _find_allowed(request, context, place, denied, REFUSALS[resource_type]),
    )


def _find_allowed(
    request: FindCoordinatorRequest,
    context: RequestContext[Broker],
    place: Place,
    denied: Collection[str],
    refusal: ErrorCode = ErrorCode.NONE,
) -> Worked[FindCoordinatorResponse]:
    def refused(key: str) -> Coordinator | None:
        return _refused(key, KafkaError(refusal), context) if key in denied else None

    if denied and all(key in denied for key in _keys(request, context)):
        return _answer(request, context, lambda key: _refused(key, KafkaError(refusal), context))
    if context.broker.cluster.topics.get(place.topic) is None:
        return _find_in_new_topic(request, context, place, refused)
    return _find(request, context, place, refused)


async def _find_in_new_topic(
    request: FindCoordinatorRequest, context: RequestContext[Broker], place: Place, refused: Refused
) -> FindCoordinatorResponse:
    try:
        await context.broker.ensure_internal_topic(place.topic)
    except KafkaError as error:
        not_available = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
        answer = _answer(request, context, lambda key: refused(key) or _refused(key, not_available, context))
    else:
        with trio.move_on_after(LOADING_S):
            await _until_loaded_here(_keys(request, context)[:KEYS_AT_ONCE], context.broker, place)
        answer = _find(request, context, place, refused)
    return answer if isinstance(answer, FindCoordinatorResponse) else await answer


async def _until_loaded_here(keys: Sequence[str], broker: Broker, place: Place) -> None:
    for key in keys:
        await trio.lowlevel.checkpoint()  # to hash a long one takes milliseconds
        index = place.partition_for(broker, key)
        partition = None if index is None else broker.cluster.partition(place.topic, index)
        is_led = partition is not None and partition.leader == broker.node_id
        if index is not None and is_led and place.coordinator is not None:
            await place.coordinator(broker).until_loaded(index)


def _find(
    request: FindCoordinatorRequest, context: RequestContext[Broker], place: Place, refused: Refused
) -> Worked[FindCoordinatorResponse]:
    """Return the response with the coordinators of the requested keys, or a coroutine for it.

    Repeated keys are answered once.
    """
    found: dict[str, Coordinator] = {}

    def find(key: str) -> Coordinator:
        return found.get(key) or found.setdefault(key, refused(key) or _coordinator(key, context, place))

    return _answer(request, context, find)


def _answer(
    request: FindCoordinatorRequest, context: RequestContext[Broker], answer: Callable[[str], Coordinator]
) -> Worked[FindCoordinatorResponse]:
    def respond(found: list[Coordinator]) -> FindCoordinatorResponse:
        return _response(request, context, found)

    return answer_each(_keys(request, context), answer, respond, at_once=KEYS_AT_ONCE)


def _keys(request: FindCoordinatorRequest, context: RequestContext[Broker]) -> list[str]:
    return request.coordinator_keys if context.api_version >= BATCH_VERSION else [request.key]


def _coordinator(key: str, context: RequestContext[Broker], place: Place) -> Coordinator:
    broker = context.broker
    index = place.partition_for(broker, key)
    if index is None:
        return _refused(key, KafkaError(ErrorCode.INVALID_REQUEST), context)
    partition = broker.cluster.partition(place.topic, index)
    endpoint = None if partition is None else broker.cluster.endpoint(partition.leader, context.listener_name)
    if endpoint is None:
        return _refused(key, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE), context)
    return Coordinator(
        key=key,
        node_id=endpoint.node_id,
        host=endpoint.host,
        port=endpoint.port,
        error_code=ErrorCode.NONE,
        error_message="",
    )


def _refused(key: str, error: KafkaError, context: RequestContext[Broker]) -> Coordinator:
    """Return the error result for a key. Before version 4 every error has a message."""
    text = "" if context.api_version >= BATCH_VERSION else error.code.message
    return Coordinator(
        key=key, node_id=NO_NODE, host="", port=-1, error_code=error.code, error_message=error.message or text
    )


def _response(
    request: FindCoordinatorRequest, context: RequestContext[Broker], coordinators: list[Coordinator]
) -> FindCoordinatorResponse:
    """Return the response. Before version 4: one coordinator at the top level, with the message "NONE" on success."""
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
