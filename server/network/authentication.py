"""Authentication and re-authentication of a SASL listener's connection: frames in, answers out.

`sasl_exchange.py` decides; here are the waiting and the bytes. While it lasts, a frame may be as long as
sasl.server.max.receive.size, and one that is larger than 64 KiB only if the memory for large frames has room at once. The
whole exchange has to be over in AUTHENTICATION_S: Kafka has no such limit but connections.max.idle.ms, and so strangers could
keep ten minutes of memory and descriptors. An answer to a failed login is kept back for connection.failed.authentication.delay.ms,
during which nothing is held but the socket.

A session without an end costs its requests nothing. One with an end gets calls of its own (`ExpiringCalls`), which look at
the clock.

Steps that may block are done in threads, for one address one at a time (`AddressThreads`): a crowd at one address holds up
only itself. A client that disconnects during that time is dropped at once. The thread counts until its step is over, and so
does the place of the address: else somebody who comes and leaves again and again would have all threads.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import trio

from ottla.server.dispatch.dispatch import CloseConnection
from ottla.server.network.inbox import NoRoom
from ottla.server.network.large_requests import error_answer
from ottla.server.network.protocol_detection import HTTP, HTTP_ANSWER, WrongProtocol
from ottla.server.network.readiness import WAIT_READABLE, Wait
from ottla.server.security.sasl_exchange import SASL_AUTHENTICATE_KEY, SASL_HANDSHAKE_KEY, AuthenticationFailed
from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation
from ottla.wire.headers import decode_request_header

if TYPE_CHECKING:
    from ottla.server.dispatch.context import RequestContext
    from ottla.server.network.calls import Call, Calls
    from ottla.server.network.inbox import Inbox
    from ottla.server.network.readiness import Readiness
    from ottla.server.network.transport import Transport
    from ottla.server.security.sasl_listener import SaslListener

Result = TypeVar("Result")


class AddressThreads:
    """Thread limiter: at most `threads_max` threads in total, and one per client address."""

    def __init__(self, threads_max: int) -> None:
        self._threads = trio.CapacityLimiter(threads_max)
        self._limiters: dict[str, _Limiter] = {}

    async def run(self, address: str, step: Callable[[], Result]) -> Result:
        """Run `step` in a thread for the client at `address`, and return its result."""
        of_address = self._limiters.get(address)
        if of_address is None:
            of_address = self._limiters[address] = _Limiter(self._threads, self._limiters, address)
        # The declaration of trio asks for its own class, and its documentation for these two methods.
        limiter: Any = of_address
        try:
            return await trio.to_thread.run_sync(step, limiter=limiter, abandon_on_cancel=True)
        finally:
            of_address.leave()


class _Limiter:
    """Thread limiter for one address, in trio's interface. Each thread counts for its address and for the total."""

    def __init__(self, threads: trio.CapacityLimiter, limiters: dict[str, _Limiter], address: str) -> None:
        self._threads, self._limiters, self._address = threads, limiters, address
        self._own = trio.CapacityLimiter(1)

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        await self._own.acquire_on_behalf_of(borrower)
        try:
            await self._threads.acquire_on_behalf_of(borrower)
        except BaseException:
            self._own.release_on_behalf_of(borrower)
            raise

    def release_on_behalf_of(self, borrower: object) -> None:
        self._threads.release_on_behalf_of(borrower)
        self._own.release_on_behalf_of(borrower)
        self.leave()

    def leave(self) -> None:
        """Remove this limiter from the table of limiters if no thread of its address runs or waits."""
        statistics = self._own.statistics()
        if not statistics.borrowed_tokens and not statistics.tasks_waiting:
            self._limiters.pop(self._address, None)


AUTHENTICATION_S = 30.0
"""The default time that clients wait for an answer."""
_size = struct.Struct(">i").pack
_key = struct.Struct(">hh").unpack_from
_steps = AddressThreads(2)  # of mechanisms that work in threads


class Frame(NamedTuple):
    """Received frame. `is_end`: the stream has ended, and there is no frame."""

    data: bytes
    is_end: bool = False


class Authentication:
    """SASL authentication and reauthentication of one connection. `send` sends bytes to the client."""

    def __init__(
        self,
        listener: SaslListener,
        *,
        calls: Calls,
        context: RequestContext[Any],
        inbox: Inbox,
        readiness: Readiness,
        transport: Transport,
        send: Callable[[bytes], Awaitable[None]],
    ) -> None:
        self._listener = listener
        self._exchange = listener.exchange()
        self._calls, self._context, self._inbox = calls, context, inbox
        self._readiness, self._transport, self._send = readiness, transport, send
        self._address = ""

    async def run(self, address: str) -> Calls | ExpiringCalls:
        """Authenticate the client, and set the context's principal; return the table of calls for later requests.

        Raises ConnectionError if the connection must end; the reason is logged already.
        """
        self._address = address
        with (
            trio.move_on_after(AUTHENTICATION_S) as scope,
            self._listener.unauthenticated.counted(address, scope.cancel),
        ):
            try:
                await self._exchange_all()
            except _Refused as refused:
                self._note(address, str(refused))
                self._inbox.close()
                await trio.sleep(self._listener.failure_delay_s)
                await self._send(refused.frame)
                raise
            except (ProtocolViolation, CloseConnection) as error:
                self._note(address, str(error))
                raise _Refused(str(error)) from None
        if scope.cancelled_caught:
            is_late = trio.current_time() >= scope.deadline
            reason = f"not complete after {AUTHENTICATION_S:g} s" if is_late else "too many have not completed theirs"
            self._note(address, reason)
            raise _Refused(reason)
        return self._authenticated()

    async def _exchange_all(self) -> None:
        inbox = self._inbox
        frame_bytes_max, inbox.frame_bytes_max = inbox.frame_bytes_max, self._listener.receive_bytes_max
        while True:
            await self._handle(await self._next_frame())
            if self._exchange.is_complete:
                break
        inbox.frame_bytes_max = frame_bytes_max

    def _authenticated(self) -> Calls | ExpiringCalls:
        exchange = self._exchange
        assert exchange.login is not None
        self._context.principal = exchange.login.principal
        self._context.is_token_authenticated = exchange.login.by_token
        if exchange.expires_ms is None:
            return self._calls
        return ExpiringCalls(self._calls, self, time.monotonic() + (exchange.expires_ms - _now_ms()) / 1000)

    def begins_anew(self, api_key: int) -> bool:
        """True if this request of an authenticated client begins a reauthentication."""
        return api_key == SASL_HANDSHAKE_KEY and self._exchange.may_begin_anew(_now_ms())

    # ------------------------------------------------------------------ frames

    async def _next_frame(self) -> bytes:
        try:
            return await self._received_frame()
        except WrongProtocol as wrong:
            raise _Refused(str(wrong), HTTP_ANSWER if wrong.protocol == HTTP else b"") from None
        except ProtocolViolation as violation:
            raise _Refused(f"Failing SASL authentication due to invalid receive size: {violation}") from None

    async def _received_frame(self) -> bytes:
        inbox = self._inbox
        # A peer that pipelines may have sent it already.
        if (bounds := inbox.next_frame()) is not None:
            frame = bytes(inbox.buffer[bounds[0] : bounds[1]])
            inbox.detach()
            return frame
        inbox.detach()
        received: Frame = await self._transport.serving(self._readiness)(self._receive)
        if received.is_end:
            if (refusal := self._exchange.refusal) is not None:
                raise _Refused(refusal)
            raise ConnectionResetError("the peer has left during authentication")
        return received.data

    def _receive(self) -> Frame | Wait:
        """Receive a frame when the socket is readable; return a copy, because the receive buffer is shared."""
        inbox = self._inbox
        try:
            if inbox.receive(self._transport) == 0:
                return Frame(b"", is_end=True)
        except BlockingIOError:
            return WAIT_READABLE
        except NoRoom:
            # Unauthenticated clients do not queue with authenticated ones.
            raise CloseConnection("there is no memory for a large frame now") from None
        bounds = inbox.next_frame()
        frame = None if bounds is None else bytes(inbox.buffer[bounds[0] : bounds[1]])
        inbox.detach()
        return WAIT_READABLE if frame is None else Frame(frame)

    async def _handle(self, frame: bytes) -> None:
        exchange = self._exchange
        exchange.begin_bare(frame)
        if exchange.takes_bare_tokens:
            token = await self._answered(None, 0, partial(exchange.on_bare_token, frame, _now_ms()))
            await self._send(_size(len(token)) + token)
            return
        if len(frame) < 4:
            raise ProtocolViolation(f"a frame of {len(frame)} bytes is too short for a request header")
        api_key, version = _key(frame)
        await self._answered(None, 0, partial(exchange.expect, api_key))
        call = await self._call(api_key, version)
        header, position = decode_request_header(frame, 0, len(frame), 2 if call.flexible else 1)
        request = call.decode(frame, position, len(frame))
        self._context.api_version = version
        step = partial(self._step, api_key, call, request)
        answer = await self._answered(call, header.correlation_id, step)
        await self._send(_framed(call, header.correlation_id, answer))

    def _step(self, api_key: int, call: Call, request: Any) -> Any:
        exchange = self._exchange
        if exchange.takes_tokens and api_key != SASL_AUTHENTICATE_KEY:
            # A message, because these requests are short.
            refusal: Any = error_answer(call, KafkaError(ErrorCode.ILLEGAL_SASL_STATE), request)
            exchange.refuse_request(call.route.name, refusal)
        if api_key == SASL_AUTHENTICATE_KEY:
            return exchange.on_token(bytes(request.auth_bytes), _now_ms())
        if api_key == SASL_HANDSHAKE_KEY:
            if exchange.is_complete:
                return exchange.begin_anew(request.mechanism, call.version, _now_ms())
            return exchange.on_handshake(request.mechanism, call.version)
        answer: Any = call.handler(request, self._context)
        exchange.on_versions(is_error=answer.error_code != ErrorCode.NONE)
        return answer

    async def _answered(self, call: Call | None, correlation_id: int, step: Callable[[], Any]) -> Any:
        """Run `step`, in a thread if the mechanism needs one; return its result. Raises _Refused if login fails."""
        try:
            if self._exchange.works_in_thread and self._exchange.takes_tokens:
                return await _steps.run(self._address, step)
            return step()
        except AuthenticationFailed as failed:
            has_answer = call is not None and failed.answer is not None
            frame = _framed(call, correlation_id, failed.answer) if has_answer and call is not None else b""
            raise _Refused(str(failed), frame) from None

    async def _call(self, api_key: int, version: int) -> Call:
        while (call := self._calls.get((api_key << 16) + version) or self._calls.find(api_key, version)) is None:
            await self._calls.make(api_key, version)
        return call

    # ------------------------------------------------------------------ ends

    def _note(self, address: str, reason: str) -> None:
        self._listener.failures.note(address, reason)


class _Refused(ConnectionError):
    """Error that ends the connection. `frame`: response to send before the end."""

    def __init__(self, reason: str, frame: bytes = b"") -> None:
        super().__init__(reason)
        self.frame = frame


class ExpiringCalls:
    """Table of calls of a session that expires: all of the broker's before the expiry, then only SaslHandshake."""

    def __init__(self, calls: Calls, authentication: Authentication, end_s: float) -> None:
        self._calls, self._authentication, self._end_s = calls, authentication, end_s

    def get(self, key: int) -> Call | None:
        """Return the call for a key; None if it is not made yet, or for SaslHandshake.

        Raises CloseConnection if the session has expired and the request is no SaslHandshake.
        """
        if time.monotonic() > self._end_s:
            self._check(key >> 16)
        return None if key >> 16 == SASL_HANDSHAKE_KEY else self._calls.get(key)

    def find(self, api_key: int, version: int) -> Call | None:
        """Return the call for an API key and version.

        None: the call is not made yet (as in `Calls.find`), or a SaslHandshake begins a reauthentication.
        """
        if self._authentication.begins_anew(api_key):
            return None
        return self._calls.get((api_key << 16) + version) or self._calls.find(api_key, version)

    def _check(self, api_key: int) -> None:
        if not self._authentication.begins_anew(api_key):
            raise CloseConnection("its session has expired")

    async def until_open(self, api_key: int) -> None:
        await self._calls.until_open(api_key)

    async def make(self, api_key: int, version: int) -> None:
        await self._calls.make(api_key, version)


def _framed(call: Call, correlation_id: int, answer: Any) -> bytes:
    body = b"".join(call.encoded(answer))
    return call.envelope(len(body) + call.envelope_bytes, correlation_id) + body


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
