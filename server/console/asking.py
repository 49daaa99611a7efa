"""Asks a handler of the broker as a client does, without a socket, and waits for its answer in whatever form that comes."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import trio

from ottla.server.gate.context import THIS_BROKER, RequestContext
from ottla.server.gate.dispatch import CloseConnection, all_routes
from ottla.server.http.routes import Refused
from ottla.wire.answers import EncodedAnswer, PendingAnswer
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.wire.schema import Message

CLIENT_ID = "ottla-console"

_loading = trio.CapacityLimiter(1)  # of modules of handlers, which an import holds for itself anyway


async def ask(broker: Broker, request: Message, version: int) -> Any:
    """The response. Who has the console's token has all rights. Raises Refused for what the handler raises."""
    route = all_routes()[request.api_key]
    await trio.to_thread.run_sync(lambda: route.code, limiter=_loading)
    context = RequestContext(
        broker,
        api_version=version,
        client_id=CLIENT_ID,
        client_host="console",
        principal=THIS_BROKER,
        now_ms=broker.now_ms(),
    )
    try:
        answer = route.handler(request, context)
        if isinstance(answer, Coroutine):
            answer = await answer
        if isinstance(answer, PendingAnswer):
            answer = await _when_ready(answer)
    except KafkaError as error:
        raise refusal(error.code, error.message) from None
    except CloseConnection as reason:
        raise Refused(409, str(reason)) from None
    if isinstance(answer, EncodedAnswer):
        return await trio.to_thread.run_sync(route.response_class.decode, answer.body, version)
    return answer


async def _when_ready(answer: PendingAnswer[Any]) -> Any:
    ready = trio.Event()
    answer.on_ready = ready.set
    try:
        if not answer.is_ready:
            await ready.wait()
    except trio.Cancelled:
        answer.abandon()
        raise
    return answer.response()


def refusal(code: int, message: str | None = None) -> Refused:
    """An error of Kafka as an answer over HTTP."""
    error = ErrorCode.of(code)
    status = 404 if error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND) else 409
    return Refused(status, f"{error.name}: {message or error.message}")
