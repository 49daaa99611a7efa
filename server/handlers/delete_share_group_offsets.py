"""DeleteShareGroupOffsets: forget where the share partitions of topics start, for one group.

Behaviour
* A group with members is NON_EMPTY_GROUP, one that does not exist GROUP_ID_NOT_FOUND.
* A topic that does not exist, or that the group has not read, is UNKNOWN_TOPIC_OR_PARTITION.
* A group that has never read anything has no topics to speak of, and the answer is empty.
"""

from ottla.groupcoord.groups.kinds import SHARE
from ottla.groupcoord.groups.share.part import refused_deletion
from ottla.server.cluster.features import SHARE_VERSION
from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasGroups
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)


def _turned_off(request: DeleteShareGroupOffsetsRequest, context: RequestContext[HasGroups]) -> DeleteShareGroupOffsetsResponse:
    return refused_deletion(ErrorCode.UNSUPPORTED_VERSION)


@handles(DeleteShareGroupOffsetsRequest, feature=SHARE_VERSION, prepare=SHARE.load, turned_off=_turned_off)
async def delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, context: RequestContext[HasGroups]
) -> DeleteShareGroupOffsetsResponse:
    return await context.broker.groups.share.delete_offsets(request)
