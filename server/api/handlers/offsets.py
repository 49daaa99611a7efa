"""Committed offsets of groups: OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from collections.abc import Collection, Coroutine
from functools import partial
from typing import Any

import trio

from ottla.groupcoord.offsets.commits import TOPIC_ID_VERSION, names_of
from ottla.server.api.visible_groups import rights_of
from ottla.server.broker import Broker
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import AclOperation, ResourceType, decided, require
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer, EncodedAnswer
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

TREE_VERSION = 0
"""Version of OffsetCommit and OffsetFetch whose offsets are in the coordination tree."""


@handles(OffsetCommitRequest)
def offset_commit(request: OffsetCommitRequest, context: RequestContext[Broker]) -> Answer[OffsetCommitResponse]:
    """OffsetCommit: store a group's committed offsets.

    Behaviour
    * Missing partitions, and metadata longer than offset.metadata.max.bytes, get an error of their own; the other
      offsets are stored. If the group is not loaded or rejects the member, every partition gets that error.
    * The response is sent when the log has committed the offsets.
    * The client needs the right to read the group; otherwise every partition gets GROUP_AUTHORIZATION_FAILED. Topics
      that it may not read get TOPIC_AUTHORIZATION_FAILED, whether they exist or not. Unknown topic ids get an error.
    """
    require(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    version, broker = context.api_version, context.broker

    def commit(denied: Collection[str]) -> Answer[OffsetCommitResponse]:
        if version == TREE_VERSION:
            return broker.tree_offsets.commit(request, denied)
        return groups_of(broker).offsets.offset_commit(request, api_version=version, denied=denied)

    names = names_of(request.topics, broker.cluster, by_id=version >= TOPIC_ID_VERSION)
    return decided(context, AclOperation.READ, ResourceType.TOPIC, names, commit)


_encoder = trio.CapacityLimiter(1)
_long_answers = trio.CapacityLimiter(2)  # at once: each may be a hundred thousand objects until it is encoded


@handles(OffsetFetchRequest)
def offset_fetch(request: OffsetFetchRequest, context: RequestContext[Broker]) -> Answer[OffsetFetchResponse]:
    """OffsetFetch: return committed offsets of groups.

    Behaviour
    * A partition without a committed offset gets offset -1 and no error. Null topics mean everything that is committed.
    * RequireStable waits for commits in progress; partitions with offsets of an open transaction get
      UNSTABLE_OFFSET_COMMIT then.
    * A group that the client may not describe gets GROUP_AUTHORIZATION_FAILED. Topics that it may not describe get
      TOPIC_AUTHORIZATION_FAILED if the request names them, and are omitted if it asks for all topics.
    """
    if context.api_version == TREE_VERSION:
        return _from_tree(request, context)
    answer = groups_of(context.broker).offsets.offset_fetch(
        request, api_version=context.api_version, rights=rights_of(context)
    )
    return _encoded(answer, context.api_version) if isinstance(answer, Coroutine) else answer


def _from_tree(request: OffsetFetchRequest, context: RequestContext[Broker]) -> Answer[OffsetFetchResponse]:
    require(context, AclOperation.DESCRIBE, ResourceType.GROUP, request.group_id)
    names = (topic.name for topic in request.topics or ())
    fetch = partial(context.broker.tree_offsets.fetch, request)
    return decided(context, AclOperation.DESCRIBE, ResourceType.TOPIC, names, fetch)


async def _encoded(answer: Coroutine[Any, Any, OffsetFetchResponse], version: int) -> EncodedAnswer:
    """Encode a long response in a thread and return it, because a short request may ask for many offsets."""
    async with _long_answers:
        response = await answer
        return EncodedAnswer(await trio.to_thread.run_sync(response.encode, version, limiter=_encoder))


@handles(OffsetDeleteRequest)
def offset_delete(request: OffsetDeleteRequest, context: RequestContext[Broker]) -> Answer[OffsetDeleteResponse]:
    """OffsetDelete: delete committed offsets of some partitions.

    Behaviour
    * Offsets of a topic that the group is reading are kept: GROUP_SUBSCRIBED_TO_TOPIC. A group whose protocol type is
      not "consumer" must be empty.
    * The client needs the right to delete the group. Topics that it may not read get TOPIC_AUTHORIZATION_FAILED,
      whether they exist or not.
    """
    require(context, AclOperation.DELETE, ResourceType.GROUP, request.group_id)

    def delete(denied: Collection[str]) -> Answer[OffsetDeleteResponse]:
        return groups_of(context.broker).offsets.offset_delete(request, denied)

    names = (topic.name for topic in request.topics)
    return decided(context, AclOperation.READ, ResourceType.TOPIC, names, delete)
