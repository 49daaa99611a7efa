"""TxnOffsetCommit: keep how far a group has read, if a producer's transaction is committed.

Behaviour
* The transaction is verified first, or the group's partition is added to it from version 5 on. What keeps it from that is the
  error of every partition; the client tries again, this broker does not.
* From version 3 on the member and its generation are checked as with OffsetCommit, whatever the state of a classic group;
  without a member anybody may commit. Since version 6 topics have ids, and a stale member epoch or a group that does
  not exist is told as such; before, both are ILLEGAL_GENERATION.
* Partitions that do not exist, and metadata longer than offset.metadata.max.bytes, are refused one by one; the rest is
  kept. Answered when the offsets are safely in the log.
* Until the transaction has ended nobody sees the offsets, and who asks for stable ones hears UNSTABLE_OFFSET_COMMIT.
* The client has to have the rights to write with the transactional id and to read the group, or else every partition has the
  error that says so. Topics that it may not read are TOPIC_AUTHORIZATION_FAILED, whether they exist or not.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter

from ottla.groupcoord.offsets.manager import TXN_TOPIC_ID_VERSION
from ottla.groupcoord.offsets.topics import names_of
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
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


@handles(TxnOffsetCommitRequest)
def txn_offset_commit(
    request: TxnOffsetCommitRequest, context: RequestContext[Broker]
) -> Answer[TxnOffsetCommitResponse]:
    if not may(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return _refused(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not may(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return _refused(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    version, broker = context.api_version, context.broker

    def commit(denied: Collection[str]) -> Answer[TxnOffsetCommitResponse]:
        service = groups_of(broker).transactional_offsets
        return service.txn_offset_commit(request, api_version=version, denied=denied)

    names = names_of(request.topics, broker.cluster, by_id=version >= TXN_TOPIC_ID_VERSION)
    return decided(context, AclOperation.READ, ResourceType.TOPIC, names, commit)


def _refused(request: TxnOffsetCommitRequest, code: ErrorCode) -> Worked[TxnOffsetCommitResponse]:
    def respond(answers: list[list[TxnOffsetCommitResponsePartition]]) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=each)
                for topic, each in zip(request.topics, answers, strict=True)
            ]
        )

    return answer_partitions(
        request.topics,
        attrgetter("partitions"),
        lambda topic, each: TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code),
        respond,
    )
