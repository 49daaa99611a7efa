"""StreamsGroupTopologyDescriptionUpdate: an application sends a text about its topology.

Behaviour
* As in a Kafka broker without a plugin that keeps such texts, the answer is UNSUPPORTED_VERSION. No broker of this kind
  asks for them (`topology_description_required` in the heartbeat's answer), so clients do not send them.
"""

from ottla.server.broker import Broker
from ottla.server.cluster.features import STREAMS_VERSION
from ottla.server.dispatch.access import require
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)


@handles(StreamsGroupTopologyDescriptionUpdateRequest, feature=STREAMS_VERSION)
def streams_group_topology_description_update(
    request: StreamsGroupTopologyDescriptionUpdateRequest, context: RequestContext[Broker]
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    try:
        require(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    except KafkaError as error:
        return StreamsGroupTopologyDescriptionUpdateResponse(error_code=error.code, error_message=None)
    return StreamsGroupTopologyDescriptionUpdateResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message="The broker has no streams group topology description plugin configured.",
    )
