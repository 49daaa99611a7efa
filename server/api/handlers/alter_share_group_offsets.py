"""AlterShareGroupOffsets: set where the share partitions of a group start.

Behaviour
* A group with members is NON_EMPTY_GROUP. One that does not exist is made.
* The client has to have the right to read the group. Topics that it may not read are TOPIC_AUTHORIZATION_FAILED, in front of
  the others.
* A topic or partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION; the others are set all the same.
"""

from ottla.groupcoord.effects import NAMED_MAX
from ottla.groupcoord.share.manager import refused_alteration
from ottla.server.broker import Broker
from ottla.server.cluster.features import SHARE_VERSION
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import may
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.deciding import denied_of
from ottla.server.dispatch.dispatch import handles
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.wire.schema import ZERO_UUID


def _turned_off(
    request: AlterShareGroupOffsetsRequest, context: RequestContext[Broker]
) -> AlterShareGroupOffsetsResponse:
    return refused_alteration(ErrorCode.UNSUPPORTED_VERSION)


@handles(AlterShareGroupOffsetsRequest, feature=SHARE_VERSION, turned_off=_turned_off)
async def alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, context: RequestContext[Broker]
) -> AlterShareGroupOffsetsResponse:
    share = groups_of(context.broker).share
    if not may(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return refused_alteration(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = (topic.topic_name for topic in request.topics)
    denied = await denied_of(context, AclOperation.READ, ResourceType.TOPIC, names)
    # What names too many is refused as a whole.
    if not denied or sum([1 + len(topic.partitions) for topic in request.topics]) > NAMED_MAX:
        return await share.alter_offsets(request)
    refused = [each for each in request.topics if each.topic_name in denied]
    request.topics = [each for each in request.topics if each.topic_name not in denied]
    response = await share.alter_offsets(request)
    if not response.error_code:
        response.responses = [*(_refused(each, context.broker) for each in refused), *response.responses]
    return response


def _refused(topic: AlterShareGroupOffsetsRequestTopic, broker: Broker) -> AlterShareGroupOffsetsResponseTopic:
    """Answer for a refused topic; Kafka includes its id."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    known = broker.cluster.topic(topic.topic_name)
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=ZERO_UUID if known is None else known.topic_id,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index, error_code=code, error_message=code.message
            )
            for each in topic.partitions
        ],
    )
