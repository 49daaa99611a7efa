"""StreamsGroupDescribe: topology, members and assignments of streams groups.

Behaviour
* What is not a streams group is GROUP_ID_NOT_FOUND, with a text that says which of both it is not.
* Nobody keeps descriptions of topologies, as in a Kafka broker without a plugin for them: whoever asks hears NOT_STORED.
* While the feature of such groups is at level 0, each is UNSUPPORTED_VERSION.
"""

from ottla.groupcoord.groups.kinds import STREAMS
from ottla.groupcoord.groups.streams.describing import undescribed
from ottla.server.cluster.features import STREAMS_VERSION
from ottla.server.gate.authorized_operations import GROUP_OPERATIONS
from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.net.turns import answer_each
from ottla.server.ports import HasGroups
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse


def _turned_off(
    request: StreamsGroupDescribeRequest, context: RequestContext[HasGroups]
) -> Answer[StreamsGroupDescribeResponse]:
    return answer_each(
        list(dict.fromkeys(request.group_ids)),
        lambda group_id: undescribed(group_id, ErrorCode.UNSUPPORTED_VERSION),
        lambda groups: StreamsGroupDescribeResponse(groups=groups),
    )


@handles(
    StreamsGroupDescribeRequest,
    answers_at_length=True,
    few_at_once=True,
    reads_only=True,
    feature=STREAMS_VERSION,
    prepare=STREAMS.load,
    turned_off=_turned_off,
)
def streams_group_describe(
    request: StreamsGroupDescribeRequest, context: RequestContext[HasGroups]
) -> Answer[StreamsGroupDescribeResponse]:
    return context.broker.groups.streams.describe(request, operations=GROUP_OPERATIONS)
