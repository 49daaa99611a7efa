"""Answers that rest on decisions about many names: made at once, or in slices so that others are served in between.

    decided       go on with those names of a request that are denied
    denied_of     the same, for whoever awaits it
    hidden_topics the same for topics that a pattern matches
    completed     change an answer, whatever form it has (`ottla.wire.answers`)

An unsecured broker pays one look, and none of the names is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.groupcoord.runtime.answers import then
from ottla.server.dispatch.access import AclOperation, ResourceType, denied_names
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.server.dispatch.access import Guarded
    from ottla.server.dispatch.context import RequestContext
    from ottla.wire.answers import Answer

NAMES_AT_ONCE = 200
"""A new decision takes some ten microseconds."""

HiddenTopics = Callable[[Iterable[str]], Awaitable[Collection[str]]]

T = TypeVar("T")
R = TypeVar("R")


def decided(
    context: RequestContext[Guarded],
    operation: AclOperation,
    resource_type: ResourceType,
    names: Iterable[str],
    go_on: Callable[[Collection[str]], Answer[R]],
) -> Answer[R]:
    """`go_on` with those of the names to which the client may not do this, each asked about once."""
    if context.broker.authorizer is None:
        return go_on(())
    different = list(dict.fromkeys(names))
    if len(different) <= NAMES_AT_ONCE:
        return go_on(denied_names(context, operation, resource_type, different))
    return _decided_in_slices(context, operation, resource_type, different, go_on)


async def _decided_in_slices(
    context: RequestContext[Guarded],
    operation: AclOperation,
    resource_type: ResourceType,
    names: Sequence[str],
    go_on: Callable[[Collection[str]], Answer[R]],
) -> Any:
    answer = go_on(await denied_of(context, operation, resource_type, names))
    return await answer if isinstance(answer, Coroutine) else answer


async def denied_of(
    context: RequestContext[Guarded],
    operation: AclOperation,
    resource_type: ResourceType,
    names: Iterable[str],
    *,
    quietly: bool = False,
) -> Collection[str]:
    """Names to which the client may not do this."""
    if context.broker.authorizer is None:
        return ()
    different = list(dict.fromkeys(names))
    denied: set[str] = set()
    time_slice = TimeSlice()
    for start in range(0, len(different), NAMES_AT_ONCE):
        await time_slice.yield_if_over()
        piece = different[start : start + NAMES_AT_ONCE]
        denied.update(denied_names(context, operation, resource_type, piece, quietly=quietly))
    return denied


def hidden_topics(context: RequestContext[Guarded]) -> HiddenTopics | None:
    """Which of some topics the client may not describe, for whoever finds topics by a pattern; None: it may describe all."""
    if context.broker.authorizer is None:
        return None
    return partial(denied_of, context, AclOperation.DESCRIBE, ResourceType.TOPIC, quietly=True)


def completed(answer: Answer[T], finish: Callable[[T], R]) -> Answer[R]:
    """`finish` applied to a response, at once or when it is there. Not for answers that may be bytes or nothing."""
    if isinstance(answer, Coroutine):
        return _completed_later(answer, finish)
    given: Any = answer
    return then(given, finish)


async def _completed_later(answer: Coroutine[Any, Any, Any], finish: Callable[[Any], R]) -> Any:
    return then(await answer, finish)
