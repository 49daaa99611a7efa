"""Forwarding of requests that only the controller carries out (Kafka's ForwardingManager, KIP-590).

The path of a request: a client asks any broker -> that broker wraps it in an Envelope, with the client's principal, address
and listener -> the controller checks rights and quotas as for a direct request -> the first broker passes the
answer on as it is. A client has to pause as long as the longer pause of both brokers says.

The controller may move meanwhile. The first broker tries again within the request's own `timeout_ms`, or without one within
request.timeout.ms. It does not try a large request again, because that would keep its memory from other requests. After that it answers
NOT_CONTROLLER, in the form that the API has for it. A request is sent again even if it may have been
carried out, as in Kafka: CreateTopics may then get TOPIC_ALREADY_EXISTS for its own topic.

A request takes one of few places while it is under way, also when its client has left. So no client may name a time as long as it
likes: the controller hears at most `TIMEOUT_MAX_MS`, and only as much as is left when a place is free.

Where no controller takes envelopes (Kafka 3.9's does not, and says so by saying nothing in its node) clients get
NOT_CONTROLLER at once, as from brokers of 3.9.

Each envelope has a connection to itself while it is answered: others do not wait behind a deletion that takes long.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.replication.cluster.metadata_cache import NO_CONTROLLER
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.replication.reminders import Reminder
from ottla.server.cluster.controller_channel import ask_active_controller
from ottla.server.dispatch.context import THIS_BROKER
from ottla.server.network.large_requests import LARGE_FRAME_BYTES
from ottla.server.network.sliced_work import computed, is_short
from ottla.server.peers.connection import Exchange, Exchanges
from ottla.wire.answers import EncodedAnswer
from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation
from ottla.wire.headers import RequestHeader, decode_response_header, encode_request_header
from ottla.wire.limits import STRING_BYTES_MAX
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse, ForwardedPrincipalData, encode_principal
from ottla.wire.schema import Array, Struct
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.server.cluster.controller.controller_election import ControllerElection
    from ottla.server.cluster.controller_channel import ControllerChannel
    from ottla.server.dispatch.context import RequestContext
    from ottla.server.dispatch.dispatch import Handler
    from ottla.wire.answers import Answer

logger = logging.getLogger("ottla.cluster")

ENVELOPE_VERSION = 0
IN_FLIGHT_MAX = 64
IN_FLIGHT_OF_ADDRESS_MAX = 16
IDLE_CHANNELS_MAX = 8
"""Connections that are kept for the next requests. After a rush of requests the others are closed."""
RETRY_S, RETRY_MAX_S = 0.1, 1.0
TIMEOUT_MAX_MS = 5 * 60 * 1000
"""Kafka's brokers try for one minute, whatever a request says. This leaves time for what takes long, such as deletions."""
GRACE_S = 5.0
"""Seconds that an answer may take beyond the request's own timeout, because the controller answers at its end."""
NO_ADDRESS = bytes(4)


class _Refused(Exception):
    """Error: the controller has refused a request, and a retry would not help."""


class ForwardingManager:
    """Forwarder of requests to the controller; `connect` opens a channel, `timeout_ms` returns request.timeout.ms."""

    def __init__(
        self, election: ControllerElection, connect: Callable[[], ControllerChannel], timeout_ms: Callable[[], int]
    ) -> None:
        self._election, self._connect, self._timeout_ms = election, connect, timeout_ms
        self._exchanges = Exchanges()
        self._idle: list[ControllerChannel] = []
        self._in_flight = trio.Semaphore(IN_FLIGHT_MAX)
        self._of_address: dict[str, trio.Semaphore] = {}
        self._refusals = Reminder()

    def answer(self, handler: Handler, request: Any, context: RequestContext[Any]) -> Answer[Any]:
        """Return the controller's response to a request. If this broker is the controller, call `handler` for it."""
        if context.principal == THIS_BROKER or not self._election.takes_envelopes:
            return handler(request, context)
        return self._answer(handler, request, context)

    async def _answer(self, handler: Handler, request: Any, context: RequestContext[Any]) -> Any:
        try:
            response = await self._tried(handler, request, context)
        except _Refused as refusal:
            self._refusals.tell(
                logger.warning, "The controller does not take a request that this broker hands on: %s", refusal
            )
            response = None
        return await finished(handler(request, context)) if response is None else response

    async def _tried(self, handler: Handler, request: Any, context: RequestContext[Any]) -> Any:
        """Handle a request here or at the controller, with retries; None after the deadline. Raises _Refused."""
        election, requested_ms = self._election, getattr(request, "timeout_ms", None)
        timeout_ms = self._timeout_ms() if requested_ms is None else min(max(requested_ms, 0), TIMEOUT_MAX_MS)
        deadline, pause_s = trio.current_time() + timeout_ms / 1000, RETRY_S
        while True:
            moved, controller_id = election.moved, election.controller_id
            if election.active is not None:
                response = await carried_out(partial(handler, request, context))
            elif controller_id == NO_CONTROLLER:
                response = None
            else:
                response = await self._forwarded(request, context, deadline)
            if response is not None:
                return response
            left_s = deadline - trio.current_time()
            if left_s <= 0 or not election.takes_envelopes or await self._is_large(request, context):
                return None
            # Without a controller there is no broker to ask.
            with trio.move_on_after(left_s if controller_id == NO_CONTROLLER else min(pause_s, left_s)):
                await moved.wait()
            pause_s = min(2 * pause_s, RETRY_MAX_S)
            _shorten(request, deadline)

    async def _forwarded(self, request: Any, context: RequestContext[Any], deadline: float) -> EncodedAnswer | None:
        """Return the controller's response; None if there was none, or it was NOT_CONTROLLER. Raises _Refused."""
        answered, given_up_at = None, deadline + GRACE_S
        with trio.move_on_at(given_up_at):
            exchange = await self._exchanges.get(type(request), context.api_version)
            async with self._place(context.client_host):
                _shorten(request, deadline)
                body = await _encoded(exchange, request)
                answered = await self._ask(_envelope(exchange, body, context), given_up_at)
        if answered is None or answered.error_code == ErrorCode.NOT_CONTROLLER:
            return None
        if answered.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:  # another try would meet the same bug
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if answered.error_code:
            raise _Refused(ErrorCode.of(answered.error_code).name)
        data = answered.response_data or b""
        try:
            _, start = decode_response_header(data, 0, len(data), exchange.response_header_version)
        except ProtocolViolation as violation:
            raise _Refused(str(violation)) from None
        if context.charge is not None:
            # The first field of all answers that are passed on.
            context.charge.carry(int.from_bytes(data[start : start + 4], signed=True))
        return EncodedAnswer(data[start:])

    async def _is_large(self, request: Any, context: RequestContext[Any]) -> bool:
        """Return True if the request counts against the memory budget because of its size.

        A large request is sent once; it does not wait for the controller.
        """
        if is_short(request):
            return False
        exchange = await self._exchanges.get(type(request), context.api_version)
        return len(await _encoded(exchange, request)) > LARGE_FRAME_BYTES

    @asynccontextmanager
    async def _place(self, address: str) -> AsyncIterator[None]:
        """Hold one of the slots for forwarded requests of client address `address`; if none is free, wait for one.

        The limit for each address keeps a hanging controller from delaying other clients.
        """
        of_address = self._of_address.get(address)
        if of_address is None:
            of_address = trio.Semaphore(IN_FLIGHT_OF_ADDRESS_MAX, max_value=IN_FLIGHT_OF_ADDRESS_MAX)
            self._of_address[address] = of_address
        try:
            async with of_address, self._in_flight:
                yield
        finally:
            if of_address.value == IN_FLIGHT_OF_ADDRESS_MAX:
                self._of_address.pop(address, None)

    async def _ask(self, envelope: EnvelopeRequest, deadline: float) -> EnvelopeResponse | None:
        answered: EnvelopeResponse | None = None
        channel = self._idle.pop() if self._idle else self._connect()
        timeout_s = deadline - trio.current_time()
        try:
            answered = await ask_active_controller(
                channel, self._election, envelope, ENVELOPE_VERSION, timeout_s=timeout_s
            )
        except PeerUnavailable:
            pass  # tried again
        finally:
            if len(self._idle) < IDLE_CHANNELS_MAX:
                self._idle.append(channel)
            else:
                await channel.aclose()
        return answered


def _shorten(request: Any, deadline: float) -> None:
    """Reduce the request's timeout so that it ends at `deadline`. A timeout of 0 stays 0."""
    if getattr(request, "timeout_ms", 0) > 0:
        request.timeout_ms = min(request.timeout_ms, max(round((deadline - trio.current_time()) * 1000), 1))


async def _encoded(exchange: Exchange, request: Any) -> bytes:
    return await computed(partial(exchange.encoded, request), in_thread=not is_short(request))


def _envelope(exchange: Exchange, body: bytes, context: RequestContext[Any]) -> EnvelopeRequest:
    # As long as a client can make it; bytes that were not UTF-8 have become longer here.
    client_id = context.client_id.encode()[:STRING_BYTES_MAX].decode(errors="ignore")
    header = RequestHeader(exchange.api_key, exchange.version, 0, client_id)
    kind, _, name = context.principal.partition(":")
    # A certificate, or an issuer of tokens, may name somebody by more than a string of the protocol holds.
    if len(context.principal.encode()) > STRING_BYTES_MAX:
        raise _Refused(f"the name of the client's principal is too long: {context.principal:.100}")
    principal = ForwardedPrincipalData(
        type=kind,
        name=name,
        token_authenticated=context.is_token_authenticated,
        listener_name=context.listener_name,
        security_protocol=context.security_protocol,
    )
    return EnvelopeRequest(
        request_data=encode_request_header(header, exchange.request_header_version) + body,
        request_principal=encode_principal(principal),
        client_host_address=_packed(context.client_host.removeprefix("/")),
    )


def _packed(host: str) -> bytes:
    """Encode a client's IP address, without the interface (%...) of IPv6, which only the client's host knows."""
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host.partition("%")[0])
    except OSError:  # the hosts of a simulation have names
        return NO_ADDRESS


async def carried_out(work: Callable[[], Answer[Any]]) -> Any:
    """Call `work`, a request for the controller; return the response, or None if this broker is not the controller."""
    try:
        response: Any = await finished(work())
    except KafkaError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            return None
        raise
    return None if await _says_not_controller(response) else response


async def _says_not_controller(response: Struct) -> bool:
    """Return True if a response contains NOT_CONTROLLER anywhere, as Kafka's RequestChannel checks."""
    time_slice = TimeSlice()
    structs = [response]
    for each in structs:  # which grows meanwhile
        if getattr(each, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER:
            return True
        for name in _lists_with_errors(type(each)):
            structs += getattr(each, name) or ()
        await time_slice.yield_if_over()
    return False


@cache
def _lists_with_errors(cls: type[Struct]) -> tuple[str, ...]:
    lists = {name: each.type.item for name, each in cls.wire_fields.items() if isinstance(each.type, Array)}
    return tuple(name for name, item in lists.items() if isinstance(item, type) and _has_error(item))


def _has_error(cls: type[Struct]) -> bool:
    return "error_code" in cls.wire_fields or bool(_lists_with_errors(cls))
