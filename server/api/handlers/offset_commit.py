"""OffsetCommit: keep how far a group has read.

Behaviour
* Partitions that do not exist, and metadata longer than offset.metadata.max.bytes, are refused one by one; the rest is
  kept. A group that is not ready, or not the sender's, refuses everything, with the same error in each partition.
* Answered when the offsets are safely in the log.
* The client has to have the right to read the group, or else every partition is GROUP_AUTHORIZATION_FAILED. Topics that it may
  not read are TOPIC_AUTHORIZATION_FAILED, whether they exist or not; ids that nobody knows are told.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter

from ottla.groupcoord.offsets.topics import TOPIC_ID_VERSION, names_of
from ottla.server.broker import Broker
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import may
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.deciding import decided
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import answer_partitions
from ottla.wire.answers import Answer, Worked
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


@handles(OffsetCommitRequest)
def offset_commit(request: OffsetCommitRequest, context: RequestContext[Broker]) -> Answer[OffsetCommitResponse]:
    if not may(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return _refused(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    version, broker = context.api_version, context.broker

    def commit(denied: Collection[str]) -> Answer[OffsetCommitResponse]:
        return groups_of(broker).offsets.offset_commit(request, api_version=version, denied=denied)

    names = names_of(request.topics, broker.cluster, by_id=version >= TOPIC_ID_VERSION)
    return decided(context, AclOperation.READ, ResourceType.TOPIC, names, commit)


def _refused(request: OffsetCommitRequest, code: ErrorCode) -> Worked[OffsetCommitResponse]:
    def respond(answers: list[list[OffsetCommitResponsePartition]]) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=each)
                for topic, each in zip(request.topics, answers, strict=True)
            ]
        )

    return answer_partitions(
        request.topics,
        attrgetter("partitions"),
        lambda topic, each: OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code),
        respond,
    )
