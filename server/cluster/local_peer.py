"""The way from this broker to itself: what it tells itself as the controller, or asks as a broker, without a socket."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.server.gate.context import THIS_BROKER, RequestContext
from ottla.server.gate.dispatch import all_routes
from ottla.wire.errors import KafkaError

if TYPE_CHECKING:
    from ottla.server.ports import HasEnvironment
    from ottla.wire.schema import Message


class LocalPeer:
    """A `Peer` that calls the handlers."""

    def __init__(self, broker: HasEnvironment, client_id: str) -> None:
        self._broker = broker
        self._client_id = client_id

    async def ask(self, request: Message, version: int, *, timeout_s: float) -> Any:
        """The handler's response; it takes as long as it takes."""
        route = all_routes()[request.api_key]
        context = RequestContext(
            self._broker,
            api_version=version,
            client_id=self._client_id,
            principal=THIS_BROKER,
            now_ms=self._broker.now_ms(),
        )
        try:
            response = route.handler(request, context)
            return await response if isinstance(response, Coroutine) else response
        except KafkaError as error:
            from ottla.wire.error_answers import error_answer  # here, because it is seldom needed

            return error_answer(request, route.response_class, version, error.code, error.message)

    async def aclose(self) -> None:
        """There is nothing to hang up."""
