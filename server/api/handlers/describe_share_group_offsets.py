"""DescribeShareGroupOffsets: where the share partitions of groups start, and since version 1 how much is left to be read.

Behaviour
* Without topics all are described that the group has read. A group that does not exist has read none: that is no error.
* A partition or topic that nobody knows starts at -1, without an error.
* A group that the client may not describe is GROUP_AUTHORIZATION_FAILED. Topics that it may not describe are
  TOPIC_AUTHORIZATION_FAILED if they are asked for, and left out if all are.
* While share groups are turned off (share.version 0), each group is UNSUPPORTED_VERSION.
"""

from ottla.server.broker import Broker
from ottla.server.cluster.features import SHARE_VERSION
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.dispatch.visible_groups import rights_of
from ottla.server.network.sliced_work import answer_each
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)


def _turned_off(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext[Broker]
) -> Answer[DescribeShareGroupOffsetsResponse]:
    return answer_each(
        request.groups,
        lambda group: DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, topics=[], error_code=ErrorCode.UNSUPPORTED_VERSION
        ),
        lambda groups: DescribeShareGroupOffsetsResponse(groups=groups),
    )


@handles(DescribeShareGroupOffsetsRequest, feature=SHARE_VERSION, turned_off=_turned_off)
async def describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext[Broker]
) -> DescribeShareGroupOffsetsResponse:
    return await groups_of(context.broker).share.offsets.describe(request, rights_of(context))
