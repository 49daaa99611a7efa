"""OffsetFetch: what groups have committed.

Behaviour
* No commit is offset -1 without an error. Topics null means everything that is committed.
* RequireStable waits for commits that are on their way; offsets of a transaction that has not ended are
  UNSTABLE_OFFSET_COMMIT then.
* A group that the client may not describe is GROUP_AUTHORIZATION_FAILED. Topics that it may not describe are
  TOPIC_AUTHORIZATION_FAILED if they are asked for, and left out if all are.
"""

from collections.abc import Coroutine
from typing import Any

import trio

from ottla.server.broker import Broker
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.dispatch.visible_groups import rights_of
from ottla.wire.answers import Answer, EncodedAnswer
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

_encoder = trio.CapacityLimiter(1)
_long_answers = trio.CapacityLimiter(2)  # at once: each may be a hundred thousand objects until it is encoded


@handles(OffsetFetchRequest)
def offset_fetch(request: OffsetFetchRequest, context: RequestContext[Broker]) -> Answer[OffsetFetchResponse]:
    answer = groups_of(context.broker).offsets.offset_fetch(
        request, api_version=context.api_version, rights=rights_of(context)
    )
    return _encoded(answer, context.api_version) if isinstance(answer, Coroutine) else answer


async def _encoded(answer: Coroutine[Any, Any, OffsetFetchResponse], version: int) -> EncodedAnswer:
    """Encode a long answer in a thread: a few bytes may ask for all offsets of many groups."""
    async with _long_answers:
        response = await answer
        return EncodedAnswer(await trio.to_thread.run_sync(response.encode, version, limiter=_encoder))
