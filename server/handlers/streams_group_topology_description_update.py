"""StreamsGroupTopologyDescriptionUpdate: an application sends a text about its topology.

Behaviour
* As in a Kafka broker without a plugin that keeps such texts, the answer is UNSUPPORTED_VERSION. No broker of this kind
  asks for them (`topology_description_required` in the heartbeat's answer), so clients do not send them.
"""

from ottla.server.cluster.features import STREAMS_VERSION
from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)


@handles(StreamsGroupTopologyDescriptionUpdateRequest, feature=STREAMS_VERSION)
def streams_group_topology_description_update(
    request: StreamsGroupTopologyDescriptionUpdateRequest, context: RequestContext[object]
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    return StreamsGroupTopologyDescriptionUpdateResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message="The broker has no streams group topology description plugin configured.",
    )
