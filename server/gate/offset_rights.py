"""What a client may see of committed offsets: groups and topics that it may describe."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.server.gate.access import denied_names, may
from ottla.server.gate.authorized_operations import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.server.gate.access import Guarded
    from ottla.server.gate.context import RequestContext


class OffsetRights:
    """The rights of one request; see `ottla.groupcoord.group_shards`."""

    __slots__ = ("_context",)

    def __init__(self, context: RequestContext[Guarded]) -> None:
        self._context = context

    def may_describe(self, group_id: str) -> bool:
        return may(self._context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)

    def denied(self, topics: Collection[str]) -> Collection[str]:
        return denied_names(self._context, AclOperation.DESCRIBE, ResourceType.TOPIC, topics)


def rights_of(context: RequestContext[Guarded]) -> OffsetRights | None:
    """What the client may see; None if that is everything."""
    return None if context.broker.authorizer is None else OffsetRights(context)
