"""DeleteShareGroupOffsets: forget where the share partitions of topics start, for one group.

Behaviour
* A group with members is NON_EMPTY_GROUP, one that does not exist GROUP_ID_NOT_FOUND.
* The client has to have the right to delete the group. Topics that it may not read are TOPIC_AUTHORIZATION_FAILED, in front of
  the others.
* A topic that does not exist, or that the group has not read, is UNKNOWN_TOPIC_OR_PARTITION.
* A group that has never read anything has no topics to speak of, and the answer is empty.
"""

from ottla.groupcoord.effects import NAMED_MAX
from ottla.groupcoord.share.manager import refused_deletion
from ottla.server.broker import Broker
from ottla.server.cluster.features import SHARE_VERSION
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import may
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.deciding import denied_of
from ottla.server.dispatch.dispatch import handles
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.wire.schema import ZERO_UUID


def _turned_off(
    request: DeleteShareGroupOffsetsRequest, context: RequestContext[Broker]
) -> DeleteShareGroupOffsetsResponse:
    return refused_deletion(ErrorCode.UNSUPPORTED_VERSION)


@handles(DeleteShareGroupOffsetsRequest, feature=SHARE_VERSION, turned_off=_turned_off)
async def delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, context: RequestContext[Broker]
) -> DeleteShareGroupOffsetsResponse:
    share = groups_of(context.broker).share
    if not may(context, AclOperation.DELETE, ResourceType.GROUP, request.group_id):
        return refused_deletion(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = (topic.topic_name for topic in request.topics)
    denied = await denied_of(context, AclOperation.READ, ResourceType.TOPIC, names)
    # What names too many is refused as a whole.
    if not denied or len(request.topics) > NAMED_MAX:
        return await share.delete_offsets(request)
    refused = [each.topic_name for each in request.topics if each.topic_name in denied]
    request.topics = [each for each in request.topics if each.topic_name not in denied]
    response = await share.delete_offsets(request)
    if not response.error_code:
        response.responses = [*map(_refused, refused), *response.responses]
    return response


def _refused(name: str) -> DeleteShareGroupOffsetsResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=ZERO_UUID, error_code=code, error_message=code.message
    )
