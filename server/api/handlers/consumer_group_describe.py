"""ConsumerGroupDescribe: the members of consumer groups, what they have and what they shall have.

Behaviour
* A group that does not exist, or is of another kind, has an error of its own.
* What the client may not see is refused as `server/dispatch/visible_groups.py` says.
* While the feature of such groups is at level 0, each is UNSUPPORTED_VERSION.
"""

from collections.abc import Iterator

from ottla.groupcoord.consumer.group import undescribed
from ottla.server.broker import Broker
from ottla.server.cluster.features import GROUP_VERSION
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.dispatch.visible_groups import Kind, describe_groups
from ottla.server.network.sliced_work import answer_each
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def _turned_off(
    request: ConsumerGroupDescribeRequest, context: RequestContext[Broker]
) -> Answer[ConsumerGroupDescribeResponse]:
    return answer_each(
        list(dict.fromkeys(request.group_ids)),
        lambda group_id: undescribed(group_id, ErrorCode.UNSUPPORTED_VERSION),
        lambda groups: ConsumerGroupDescribeResponse(groups=groups),
    )


@handles(ConsumerGroupDescribeRequest, feature=GROUP_VERSION, turned_off=_turned_off)
def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: RequestContext[Broker]
) -> Answer[ConsumerGroupDescribeResponse]:
    return describe_groups(Kind(groups_of(context.broker).consumer.describe, undescribed, _topics_of), request, context)


def _topics_of(group: DescribedGroup) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for each in assignment.topic_partitions:
                yield each.topic_name
