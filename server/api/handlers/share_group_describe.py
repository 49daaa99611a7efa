"""ShareGroupDescribe: epochs, members and assignments of share groups.

Behaviour
* A group that does not exist, or is of another kind, is GROUP_ID_NOT_FOUND.
* What the client may not see is refused as `server/dispatch/visible_groups.py` says.
* While the feature of such groups is at level 0, each is UNSUPPORTED_VERSION.
"""

from collections.abc import Iterator

from ottla.groupcoord.share.manager import undescribed
from ottla.server.broker import Broker
from ottla.server.cluster.features import SHARE_VERSION
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.dispatch.visible_groups import Kind, describe_groups
from ottla.server.network.sliced_work import answer_each
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


def _turned_off(
    request: ShareGroupDescribeRequest, context: RequestContext[Broker]
) -> Answer[ShareGroupDescribeResponse]:
    return answer_each(
        list(dict.fromkeys(request.group_ids)),
        lambda group_id: undescribed(group_id, ErrorCode.UNSUPPORTED_VERSION),
        lambda groups: ShareGroupDescribeResponse(groups=groups),
    )


@handles(ShareGroupDescribeRequest, feature=SHARE_VERSION, turned_off=_turned_off)
def share_group_describe(
    request: ShareGroupDescribeRequest, context: RequestContext[Broker]
) -> Answer[ShareGroupDescribeResponse]:
    return describe_groups(Kind(groups_of(context.broker).share.describe, undescribed, _topics_of), request, context)


def _topics_of(group: DescribedGroup) -> Iterator[str]:
    for member in group.members:
        for each in member.assignment.topic_partitions:
            yield each.topic_name
