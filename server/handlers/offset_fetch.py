"""OffsetFetch: what groups have committed.

Behaviour
* No commit is offset -1 without an error. Topics null means everything that is committed.
* RequireStable waits for commits that are on their way; offsets of a transaction that has not ended are
  UNSTABLE_OFFSET_COMMIT then.
"""

from typing import Any

from ottla.server.context import RequestContext
from ottla.server.dispatch import handles
from ottla.wire.messages.offset_fetch import OffsetFetchRequest


@handles(OffsetFetchRequest, reads_only=True)
def offset_fetch(request: OffsetFetchRequest, context: RequestContext) -> Any:
    return context.broker.groups.offset_fetch(request, api_version=context.api_version)
