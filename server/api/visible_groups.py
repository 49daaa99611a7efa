"""Groups and committed offsets, as far as the client may see them.

A group of the newer kinds that the client may not describe is GROUP_AUTHORIZATION_FAILED, in front of the others. A group
with topics that the client may not describe gets TOPIC_AUTHORIZATION_FAILED without any details. Each kind has messages of
its own, with the same fields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.server.dispatch.access import (
    AclOperation,
    ResourceType,
    authorized_operations,
    decided,
    denied_names,
    denied_of,
    may,
)
from ottla.server.network.sliced_work import answer_each
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.server.dispatch.access import Guarded
    from ottla.server.dispatch.context import RequestContext
    from ottla.server.dispatch.dispatch import Handler
    from ottla.wire.answers import Answer
    from ottla.wire.schema import Message

Operations = Callable[[str], int]
"""Rights of the client to a group."""


class Kind(NamedTuple):
    """Functions that describe groups of one kind, such as share groups."""

    describe: Callable[..., Answer[Any]]
    """Takes the request, and `operations`."""
    undescribed: Callable[[str, ErrorCode, str | None], Any]
    topics_of: Callable[[Any], Iterable[str]]
    why_hidden: str = "The group has described topic(s) that the client is not authorized to describe."


def describe_turned_off(undescribed: Callable[[str, ErrorCode], Any], response_class: type[Message]) -> Handler:
    """Return a handler for use while the group feature is at level 0: UNSUPPORTED_VERSION for each group."""

    def handle(request: Any, context: RequestContext[Guarded]) -> Answer[Any]:
        return answer_each(
            list(dict.fromkeys(request.group_ids)),
            lambda group_id: undescribed(group_id, ErrorCode.UNSUPPORTED_VERSION),
            lambda groups: response_class(groups=groups),
        )

    return handle


def describe_groups(kind: Kind, request: Any, context: RequestContext[Guarded]) -> Answer[Any]:
    """Describe the groups in the request's `group_ids`; return the response or a coroutine for it.

    Groups and topics that the client may not describe are reported as errors in the response.
    """
    operations = partial(authorized_operations, context, ResourceType.GROUP)

    def describe(denied: Collection[str]) -> Answer[Any]:
        if context.broker.authorizer is None:
            return kind.describe(request, operations=operations)
        refused = [each for each in dict.fromkeys(request.group_ids) if each in denied]
        request.group_ids = [each for each in request.group_ids if each not in denied]
        return _described(kind, refused, kind.describe(request, operations=operations), context)

    return decided(context, AclOperation.DESCRIBE, ResourceType.GROUP, request.group_ids, describe)


async def _described(kind: Kind, refused: list[str], answer: Any, context: RequestContext[Guarded]) -> Any:
    response: Any = await finished(answer)
    groups = [kind.undescribed(each, ErrorCode.GROUP_AUTHORIZATION_FAILED, None) for each in refused]
    for group in response.groups:
        if await denied_of(context, AclOperation.DESCRIBE, ResourceType.TOPIC, kind.topics_of(group)):
            group = kind.undescribed(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, kind.why_hidden)
        groups.append(group)
        await trio.lowlevel.checkpoint()
    response.groups = groups
    return response


class OffsetRights:
    """Rights of one request to groups and topics with committed offsets; used by `ottla.groupcoord.shard`."""

    __slots__ = ("_context",)

    def __init__(self, context: RequestContext[Guarded]) -> None:
        self._context = context

    def may_describe(self, group_id: str) -> bool:
        return may(self._context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)

    def denied(self, topics: Collection[str]) -> Collection[str]:
        return denied_names(self._context, AclOperation.DESCRIBE, ResourceType.TOPIC, topics)


def rights_of(context: RequestContext[Guarded]) -> OffsetRights | None:
    """Return the client's rights to committed offsets; None if there is no authorizer."""
    return None if context.broker.authorizer is None else OffsetRights(context)
