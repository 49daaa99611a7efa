"""OffsetCommit: keep how far a group has read.

Behaviour
* Partitions that do not exist, and metadata longer than offset.metadata.max.bytes, are refused one by one; the rest is
  kept. A group that is not ready, or not the sender's, refuses everything, with the same error in each partition.
* Answered when the offsets are safely in the log.
"""

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasGroups
from ottla.wire.answers import Answer
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse


@handles(OffsetCommitRequest)
def offset_commit(request: OffsetCommitRequest, context: RequestContext[HasGroups]) -> Answer[OffsetCommitResponse]:
    return context.broker.groups.offsets.offset_commit(request, api_version=context.api_version)
