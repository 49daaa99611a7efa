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
"""

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasGroups
from ottla.wire.answers import Answer
from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse


@handles(TxnOffsetCommitRequest)
def txn_offset_commit(
    request: TxnOffsetCommitRequest, context: RequestContext[HasGroups]
) -> Answer[TxnOffsetCommitResponse]:
    return context.broker.groups.transactional_offsets.txn_offset_commit(request, api_version=context.api_version)
