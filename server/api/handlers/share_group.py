"""Share groups (KIP-932): their members, and where their share partitions start."""

from collections.abc import Collection, Iterator
from typing import Any

from ottla.groupcoord.effects import NAMED_MAX
from ottla.groupcoord.share.manager import refused_alteration, refused_deletion, refused_heartbeat, undescribed
from ottla.groupcoord.share.service import MEMBER_ID_LENGTH_MAX
from ottla.server.api.visible_groups import Kind, describe_groups, describe_turned_off, rights_of
from ottla.server.broker import Broker
from ottla.server.cluster.features import SHARE_VERSION
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import AclOperation, ResourceType, decided, denied_of, may, require
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import answer_each
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.share_group import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribedGroup,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.wire.schema import ZERO_UUID


@handles(ShareGroupHeartbeatRequest, feature=SHARE_VERSION)
def share_group_heartbeat(
    request: ShareGroupHeartbeatRequest, context: RequestContext[Broker]
) -> Answer[ShareGroupHeartbeatResponse]:
    """ShareGroupHeartbeat: join, stay in or leave a share group, and receive the assignment.

    Behaviour
    * Members choose their own ids, of at most 36 characters. Member epoch 0 joins and needs topics, -1 leaves.
    * The response has an assignment if the member joins, if it names topics, or if its partitions have changed.
    * The client needs the rights to read the group and to describe all topics that the request names.
    * `ottla.groupcoord.share.heartbeat` describes how the group handles a heartbeat.
    """
    require(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    # Of an id that cannot be one Kafka says no more than that.
    has_id = 0 < len(request.member_id) <= MEMBER_ID_LENGTH_MAX
    names = (request.subscribed_topic_names or ()) if has_id else ()

    def go_on(denied: Collection[str]) -> Answer[ShareGroupHeartbeatResponse]:
        if denied:
            return refused_heartbeat(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return groups_of(context.broker).share.heartbeat(
            request, client_id=context.client_id, client_host=context.client_host
        )

    return decided(context, AclOperation.DESCRIBE, ResourceType.TOPIC, names, go_on)


@handles(
    ShareGroupDescribeRequest,
    feature=SHARE_VERSION,
    turned_off=describe_turned_off(undescribed, ShareGroupDescribeResponse),
)
def share_group_describe(
    request: ShareGroupDescribeRequest, context: RequestContext[Broker]
) -> Answer[ShareGroupDescribeResponse]:
    """ShareGroupDescribe: describe epochs, members and assignments of share groups.

    Behaviour
    * A group that does not exist, or has another type, gets GROUP_ID_NOT_FOUND.
    * `server/api/visible_groups.py` describes the errors for groups and topics that the client may not describe.
    * While the feature for such groups is at level 0, each group gets UNSUPPORTED_VERSION.
    """
    return describe_groups(Kind(groups_of(context.broker).share.describe, undescribed, _topics_of), request, context)


def _topics_of(group: DescribedGroup) -> Iterator[str]:
    for member in group.members:
        for each in member.assignment.topic_partitions:
            yield each.topic_name


def _describe_offsets_turned_off(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext[Broker]
) -> Answer[DescribeShareGroupOffsetsResponse]:
    return answer_each(
        request.groups,
        lambda group: DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, topics=[], error_code=ErrorCode.UNSUPPORTED_VERSION
        ),
        lambda groups: DescribeShareGroupOffsetsResponse(groups=groups),
    )


@handles(DescribeShareGroupOffsetsRequest, feature=SHARE_VERSION, turned_off=_describe_offsets_turned_off)
async def describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext[Broker]
) -> DescribeShareGroupOffsetsResponse:
    """DescribeShareGroupOffsets: return the start offsets of groups' share partitions, and since version 1 their lag.

    Behaviour
    * A request without topics describes all topics that the group has read. For a group that does not exist the result
      is empty, without an error.
    * An unknown partition or topic gets start offset -1, without an error.
    * A group that the client may not describe gets GROUP_AUTHORIZATION_FAILED. Topics that it may not describe get
      TOPIC_AUTHORIZATION_FAILED if the request names them, and are omitted if it asks for all topics.
    * While share groups are turned off (share.version 0), each group gets UNSUPPORTED_VERSION.
    """
    return await groups_of(context.broker).share.offsets.describe(request, rights_of(context))


@handles(
    AlterShareGroupOffsetsRequest,
    feature=SHARE_VERSION,
    turned_off=lambda *_: refused_alteration(ErrorCode.UNSUPPORTED_VERSION),
)
async def alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, context: RequestContext[Broker]
) -> AlterShareGroupOffsetsResponse:
    """AlterShareGroupOffsets: set the start offsets of a group's share partitions.

    Behaviour
    * A group with members gets NON_EMPTY_GROUP. A group that does not exist is created.
    * The client needs the right to read the group. Topics that it may not read get TOPIC_AUTHORIZATION_FAILED; they
      come first.
    * A topic or partition that does not exist gets UNKNOWN_TOPIC_OR_PARTITION; the other offsets are set.
    """
    share = groups_of(context.broker).share
    if not may(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return refused_alteration(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused = await _take_refused(request, context, sum([1 + len(topic.partitions) for topic in request.topics]))
    response = await share.alter_offsets(request)
    if not response.error_code:
        response.responses = [*(_refused_alteration(each, context.broker) for each in refused), *response.responses]
    return response


async def _take_refused(request: Any, context: RequestContext[Broker], named: int) -> list[Any]:
    """Remove and return, in time slices, the request's topics that the client may not read.

    If `named` is beyond NAMED_MAX nothing is removed, because the whole request is refused later.
    """
    names = (topic.topic_name for topic in request.topics)
    denied = await denied_of(context, AclOperation.READ, ResourceType.TOPIC, names)
    # What names too many is refused as a whole.
    if not denied or named > NAMED_MAX:
        return []
    refused = [each for each in request.topics if each.topic_name in denied]
    request.topics = [each for each in request.topics if each.topic_name not in denied]
    return refused


def _refused_alteration(
    topic: AlterShareGroupOffsetsRequestTopic, broker: Broker
) -> AlterShareGroupOffsetsResponseTopic:
    """Return the result for a topic that the client may not read; as in Kafka it has the topic's id."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    known = broker.cluster.topics.get(topic.topic_name)
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


@handles(
    DeleteShareGroupOffsetsRequest,
    feature=SHARE_VERSION,
    turned_off=lambda *_: refused_deletion(ErrorCode.UNSUPPORTED_VERSION),
)
async def delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, context: RequestContext[Broker]
) -> DeleteShareGroupOffsetsResponse:
    """DeleteShareGroupOffsets: delete a share group's start offsets of topics.

    Behaviour
    * A group with members gets NON_EMPTY_GROUP; a group that does not exist gets GROUP_ID_NOT_FOUND.
    * The client needs the right to delete the group. Topics that it may not read get TOPIC_AUTHORIZATION_FAILED; they
      come first.
    * A topic that does not exist, or that the group has not read, gets UNKNOWN_TOPIC_OR_PARTITION.
    * If the group has never read anything, the response is empty.
    """
    share = groups_of(context.broker).share
    if not may(context, AclOperation.DELETE, ResourceType.GROUP, request.group_id):
        return refused_deletion(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused = await _take_refused(request, context, len(request.topics))
    response = await share.delete_offsets(request)
    if not response.error_code:
        response.responses = [*(_refused_deletion(each.topic_name) for each in refused), *response.responses]
    return response


def _refused_deletion(name: str) -> DeleteShareGroupOffsetsResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=ZERO_UUID, error_code=code, error_message=code.message
    )
