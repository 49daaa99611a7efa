"""StreamsGroupDescribe: topology, members and assignments of streams groups.

Behaviour
* What is not a streams group is GROUP_ID_NOT_FOUND, with a text that says which of both it is not.
* Nobody keeps descriptions of topologies, as in a Kafka broker without a plugin for them: whoever asks hears NOT_STORED.
* What the client may not see is refused as `server/dispatch/visible_groups.py` says.
* While the feature of such groups is at level 0, each is UNSUPPORTED_VERSION.
"""

from collections.abc import Iterator

from ottla.groupcoord.streams.describing import undescribed
from ottla.server.broker import Broker
from ottla.server.cluster.features import STREAMS_VERSION
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.dispatch.visible_groups import Kind, describe_groups
from ottla.server.network.sliced_work import answer_each
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)


def _turned_off(
    request: StreamsGroupDescribeRequest, context: RequestContext[Broker]
) -> Answer[StreamsGroupDescribeResponse]:
    return answer_each(
        list(dict.fromkeys(request.group_ids)),
        lambda group_id: undescribed(group_id, ErrorCode.UNSUPPORTED_VERSION),
        lambda groups: StreamsGroupDescribeResponse(groups=groups),
    )


@handles(StreamsGroupDescribeRequest, feature=STREAMS_VERSION, turned_off=_turned_off)
def streams_group_describe(
    request: StreamsGroupDescribeRequest, context: RequestContext[Broker]
) -> Answer[StreamsGroupDescribeResponse]:
    kind = Kind(
        groups_of(context.broker).streams.describe,
        undescribed,
        _topics_of,
        "The described group uses topics that the client is not authorized to describe.",
    )
    return describe_groups(kind, request, context)


def _topics_of(group: DescribedGroup) -> Iterator[str]:
    for subtopology in (group.topology and group.topology.subtopologies) or ():
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            yield topic.name
