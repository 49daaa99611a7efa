"""AlterShareGroupOffsets: set where the share partitions of a group start.

Behaviour
* A group with members is NON_EMPTY_GROUP. One that does not exist is made.
* A topic or partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION; the others are set all the same.
"""

from ottla.groupcoord.groups.kinds import SHARE
from ottla.groupcoord.groups.share.part import refused_alteration
from ottla.server.cluster.features import SHARE_VERSION
from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasGroups
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)


def _turned_off(request: AlterShareGroupOffsetsRequest, context: RequestContext[HasGroups]) -> AlterShareGroupOffsetsResponse:
    return refused_alteration(ErrorCode.UNSUPPORTED_VERSION)


@handles(AlterShareGroupOffsetsRequest, feature=SHARE_VERSION, prepare=SHARE.load, turned_off=_turned_off)
async def alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, context: RequestContext[HasGroups]
) -> AlterShareGroupOffsetsResponse:
    return await context.broker.groups.share.alter_offsets(request)
