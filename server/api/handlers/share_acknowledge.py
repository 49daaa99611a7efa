"""ShareAcknowledge: a member of a share group says what became of records that it holds.

Behaviour
* The request goes on with the member's share session, or ends it with epoch -1: then what the member still holds is
  released, after what it said here. It does not begin one (`groupcoord/share/partition/sessions.py`).
* Each partition is acknowledged as a whole or not at all (`server/api/share/requests.py`). The answer goes out when all is
  stored at the share coordinators.

Rights
* The client has to have the right to read the group. Topics that it may not read are refused.

Version notes
* v2 renews locks (KIP-1222): the request has to say that it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.groupcoord.share.partition.sessions import FINAL_EPOCH, INITIAL_EPOCH
from ottla.server.api.share.requests import (
    Acknowledgement,
    Member,
    WhenReady,
    acknowledge_response,
    named,
    rights_of,
    session_key,
)
from ottla.server.broker import Broker
from ottla.server.cluster.features import SHARE_VERSION
from ottla.server.coordinator_factory import share_partitions_of
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import PARTITIONS_PER_SLICE
from ottla.wire.answers import Answer, Given
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.groupcoord.share.partition.sessions import SessionKey

RENEWAL_SINCE = 2


@handles(ShareAcknowledgeRequest, feature=SHARE_VERSION)
def share_acknowledge(
    request: ShareAcknowledgeRequest, context: RequestContext[Broker]
) -> Answer[ShareAcknowledgeResponse]:
    groups = share_partitions_of(context.broker)
    epoch = request.share_session_epoch
    try:
        key = session_key(request.group_id, request.member_id, context)
        if epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        groups.sessions.check_size(key, epoch, sum([len(topic.partitions) for topic in request.topics]))
        if epoch == FINAL_EPOCH:
            groups.sessions.get(key)
        else:
            groups.sessions.advance(key, epoch)
    except KafkaError as error:
        return ShareAcknowledgeResponse(error_code=error.code, responses=[], node_endpoints=[])
    may_renew = context.api_version >= RENEWAL_SINCE and request.is_renew_ack
    acknowledged = Acknowledgement(groups, context.broker.cluster, Member(*key.member, may_renew), rights_of(context))
    listener_name = context.listener_name
    if _size(request) <= PARTITIONS_PER_SLICE:
        for _ in _steps(request, context.broker, acknowledged):
            pass
        return _answer(context.broker, acknowledged, key, epoch, listener_name)
    return _in_slices(request, context.broker, acknowledged, key, listener_name)


async def _in_slices(
    request: ShareAcknowledgeRequest, broker: Broker, acknowledged: Acknowledgement, key: SessionKey, listener_name: str
) -> Given[ShareAcknowledgeResponse]:
    time_slice = TimeSlice()
    for _ in _steps(request, broker, acknowledged):
        await time_slice.yield_if_over()
    return _answer(broker, acknowledged, key, request.share_session_epoch, listener_name)


def _size(request: ShareAcknowledgeRequest) -> int:
    return sum([1 + len(each.acknowledgement_batches) for topic in request.topics for each in topic.partitions])


def _steps(request: ShareAcknowledgeRequest, broker: Broker, acknowledged: Acknowledgement) -> Iterator[None]:
    for topic in request.topics:
        for partition in topic.partitions:
            (found,) = named(broker.cluster, topic.topic_id, [partition.partition_index])
            yield from acknowledged.add(found, partition.acknowledgement_batches)
            yield


def _answer(
    broker: Broker, acknowledged: Acknowledgement, key: SessionKey, epoch: int, listener_name: str
) -> Given[ShareAcknowledgeResponse]:
    acknowledged.end()

    def respond() -> ShareAcknowledgeResponse:
        groups = share_partitions_of(broker)
        if epoch == FINAL_EPOCH:
            groups.sessions.end(key)
        lock_ms = groups.settings_of(key.group_id).record_lock_duration_ms
        return acknowledge_response(broker, listener_name, acknowledged.results, lock_ms)

    if acknowledged.is_done:
        return respond()
    answer = WhenReady(respond, acknowledged.abandon)
    acknowledged.on_done = answer.become_ready
    return answer
