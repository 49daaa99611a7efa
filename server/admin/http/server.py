"""Server of the HTTP endpoint: its connections, within limits of their own.

Limits of connections
    CONNECTIONS_MAX in all, CONNECTIONS_PER_ADDRESS from one address, unless the server has limits of its own. They count as
    descriptors of the broker, which has a few in reserve for them: health can be asked when clients have taken everything. If an address has as many as it may have, its longest idle one is
    closed for the new one: behind a proxy everybody has one address. If all connections or those descriptors are taken, the longest idle
    one of all is closed. If none idles, the address with most connections loses the one whose request or answer began first, if it has
    at least two more than the newcomer's address. So a few addresses with slow requests do not keep others out. Else the new one is
    closed.

States of one connection
    idle                     IDLE_S until the first byte of a request
    head, then body          REQUEST_S for both together; HEAD_BYTES_MAX, HEADERS_MAX, TARGET_BYTES_MAX, and the body that the
                             route allows. The guard is asked, and the route found, before a body is read. Reading is paid for
                             (`Pace`): chunks of a byte cost as much as a long answer.
    answer                   ANSWER_S from the call of the handler to the last byte, unless it lasts; SEND_S for each piece of
                             PIECE_BYTES, lasting or not. So a reader that stops, or trickles, is cut off. 504 if no byte is sent by then.
    stream                   a body that is read while it is answered, without a limit of its length; STREAM_IDLE_S until its next piece
    idle again               if both sides keep the connection, and the request was read to its end

h11 knows the protocol: bytes go in, events come out. Whatever it refuses is answered with its hint (400, 431), and the
connection ends. It has at most HEAD_BYTES_MAX of an incomplete head, and is given RECEIVE_BYTES at a time.

A lasting answer has no end, so its reader is listened to while it is sent: when that closes its side, or goes on talking, the
answer is cancelled. No connection is used again after one.

Whole answers in flight share ANSWERS_BYTES_MAX of memory (`Room`), and so do bodies. A long answer should come in pieces. One that is made at once, such
as a page of records, stays until a reader has it, and a slow reader has a minute.
"""

from __future__ import annotations

import logging
import math
import re
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, unquote

import h11
import trio

from ottla.replication.log.faults import Fault, classify
from ottla.replication.reminders import Reminder
from ottla.server.admin.http.routes import Guard, Handler, Pace, Refused, Request, Response, Route, Routes
from ottla.server.network.connection_limits import RETRY_SECONDS, plain_address

if TYPE_CHECKING:
    import ssl

    from ottla.replication.log.descriptors import Descriptors

ANSWERS_BYTES_MAX = 64 * 1024 * 1024


class Room:
    """Memory limit of the endpoint, either for request bodies or for complete answers that are being sent."""

    def __init__(self, bytes_max: int = ANSWERS_BYTES_MAX) -> None:
        self._left = self._bytes_max = bytes_max

    def take(self, size: int) -> None:
        """Reserve memory for a part of a body, until `give` is called. Raises Refused if other bodies use the memory."""
        if size > self._left:
            raise Refused(503, "Other requests are being read; try again.", (("Retry-After", "1"),))
        self._left -= size

    def give(self, size: int) -> None:
        self._left += size

    @contextmanager
    def held(self, size: int) -> Iterator[None]:
        """Reserve memory while an answer is sent; a lone answer always fits. Raises Refused if memory is short."""
        if size > self._left and self._left < self._bytes_max:
            raise Refused(503, "Other answers are on their way, which have not been read.")
        self._left -= size
        try:
            yield
        finally:
            self._left += size


logger = logging.getLogger("ottla.http")

IDLE_S, REQUEST_S, ANSWER_S, SEND_S, LINGER_S = 75.0, 10.0, 60.0, 10.0, 1.0
STREAM_IDLE_S = 300.0
LEAVE_S, STOP_S = 0.1, 5.0
"""Time in which a request that is on its way arrives at a server that stops, and time for all answers then."""

HEAD_BYTES_MAX, TARGET_BYTES_MAX, HEADERS_MAX, QUERY_FIELDS_MAX = 16 * 1024, 8 * 1024, 100, 100
RECEIVE_BYTES, PIECE_BYTES, LINGER_BYTES_MAX = 16 * 1024, 64 * 1024, 256 * 1024
LENGTH_DIGITS_MAX = 18  # of a Content-Length
LINES_MAX = HEADERS_MAX + 1  # of a head
_EMPTY_LINE = re.compile(rb"\n\r?\n")


class Gone(Exception):
    """End of a connection, because the peer closed it or is too slow."""


class HttpConnection:
    """HTTP connection that answers its requests in order; if `is_leaving`, it closes after the current request.

    `is_idle`: waiting for a request. `since`: when it became idle, or when the current request began.
    """

    is_leaving = False

    def __init__(
        self,
        stream: trio.abc.Stream,
        peer: str,
        routes: Routes,
        guard: Guard,
        pace: Pace,
        room: Room | None = None,
        bodies: Room | None = None,
    ) -> None:
        self._note_idle(is_idle=True)
        self.cancel_scope = trio.CancelScope()
        self._stream, self.peer, self._routes, self._guard, self._pace = stream, peer, routes, guard, pace
        self._room, self._bodies = room or Room(), bodies or Room()
        self._idle_scope = trio.CancelScope()  # of the wait for the next request
        self._piece_scope = trio.CancelScope()  # of the wait for the next piece of a stream
        self._body_bytes = 0  # of the request that is read or answered, taken of `_bodies`
        self._method = ""  # of the request that is answered, as far as it is known
        # True if that request has a login. Only then a refusal is delayed: a browser asks without a login first.
        self._has_login = False
        self._worked_s = 0.0  # with what is read, and not paid for yet
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def run(self) -> None:
        """Serve requests until one side ends the connection. Errors of the peer raise nothing."""
        with self.cancel_scope:
            try:
                while await self._serve_one():
                    self._note_idle(is_idle=True)
                await self._linger()
            except (Gone, trio.BrokenResourceError, trio.ClosedResourceError):
                pass

    def leave(self) -> None:
        """Close the connection: soon if idle, else after the current answer. A stream ends with the pieces it has."""
        self.is_leaving = True
        self._idle_scope.deadline = min(self._idle_scope.deadline, trio.current_time() + LEAVE_S)
        self._piece_scope.cancel()

    def _note_idle(self, *, is_idle: bool) -> None:
        self.is_idle, self.since = is_idle, trio.current_time()

    async def _serve_one(self) -> bool:
        """Serve one request; tell whether another request may follow."""
        self._method, self._has_login = "", False
        try:
            if (found := await self._request()) is None:
                return False
            await self._answer(*found)
        except Refused as refused:
            if refused.status == HTTPStatus.UNAUTHORIZED and self._has_login:
                await self._pace.wrong_login()
            await self._refuse(refused)
        except h11.RemoteProtocolError as error:
            await self._refuse(Refused(error.error_status_hint, f"This is no HTTP request: {error}"))
        finally:
            self._bodies.give(self._body_bytes)
            self._body_bytes = 0
        if self.is_leaving or self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def _answer(self, request: Request, handler: Handler) -> None:
        with trio.move_on_after(ANSWER_S) as limit:
            response = await self._called(handler, request)
            if response.is_lasting or request.pieces is not None:
                limit.deadline = math.inf
            with self._room.held(len(response.body) if isinstance(response.body, bytes) else 0):
                await self._send(response)
        if limit.cancelled_caught:
            if self._http.our_state is h11.SEND_RESPONSE:  # the handler has not come to an answer
                raise Refused(504, f"There is no answer after {ANSWER_S:g} s.")
            raise Gone

    async def _called(self, handler: Handler, request: Request) -> Response:
        try:
            return await handler(request)
        except Refused:
            raise
        except Exception:
            logger.exception("bug: the answer to %r %r", request.method, request.path)
            return self._routes.refusal(Refused(500, "The broker has a bug here, which its log tells of."))

    # ------------------------------------------------------------------ reading

    async def _request(self) -> tuple[Request, Handler] | None:
        """Read a request and find its handler; None if the connection ends. Raises Refused, RemoteProtocolError, Gone."""
        await self._first_byte()
        await self._pace.request()
        with trio.move_on_after(REQUEST_S):
            event = await self._event(is_head=True)
            if not isinstance(event, h11.Request):
                return None
            self._method = event.method.decode("latin-1")
            request, route = self._judged(event)
            if route.streams and "transfer-encoding" in request.headers:
                await self._continue()  # before the answer begins
                return replace(request, pieces=self._pieces()), route.handler
            self._take(int(request.headers.get("content-length", "0")))
            return replace(request, body=await self._body(route)), route.handler
        raise Refused(408, f"The request was not complete after {REQUEST_S:g} s.")

    async def _first_byte(self) -> None:
        # A request that came together with the one before is here already.
        if not self._http.trailing_data[0]:
            with trio.move_on_after(LEAVE_S if self.is_leaving else IDLE_S) as self._idle_scope:
                self._http.receive_data(await self._received())
                self._note_idle(is_idle=False)
                return
            raise Gone
        self._note_idle(is_idle=False)

    async def _received(self) -> bytes:
        return bytes(await self._stream.receive_some(RECEIVE_BYTES))

    async def _event(self, *, is_head: bool = False) -> h11.Event | None:
        while True:
            if is_head:
                self._check_lines()
            begun = trio.current_time()
            event = self._http.next_event()
            self._worked_s += trio.current_time() - begun
            if self._worked_s > self._pace.PIECE_S:
                worked_s, self._worked_s = self._worked_s, 0.0
                await self._pace.pay(worked_s)
            if event is not h11.NEED_DATA:
                return event if isinstance(event, h11.Event) else None
            self._http.receive_data(await self._received())

    def _check_lines(self) -> None:
        """Raise Refused if the head has too many lines. Parsing them would block the event loop for tens of ms."""
        received = self._http.trailing_data[0]
        end = _EMPTY_LINE.search(received)
        if received.count(b"\n", 0, len(received) if end is None else end.start()) > LINES_MAX:
            raise _too_many_headers()

    def _judged(self, event: h11.Request) -> tuple[Request, Route]:
        """Check the head of a request; return its route. Raises Refused."""
        if len(event.headers) > HEADERS_MAX:
            raise _too_many_headers()
        if len(event.target) > TARGET_BYTES_MAX:
            raise Refused(414, f"The target has more than {TARGET_BYTES_MAX} bytes.")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        self._has_login = "authorization" in headers
        self._guard.check_host(headers.get("host"))
        # The target of a request to a proxy is a whole address, which nothing here answers.
        path, _, query = event.target.decode("latin-1").partition("?")
        method = self._method
        try:
            fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX))
        except ValueError:
            raise Refused(400, f"The query has more than {QUERY_FIELDS_MAX} parameters.") from None
        request = Request(
            method=method,
            path=unquote(path),
            raw_path=path,
            raw_query=query,
            query=fields,
            headers=headers,
            peer=self.peer,
        )
        route = self._routes.find(method, request.path)
        if method in ("GET", "HEAD"):
            self._guard.check_read(headers)
        else:
            self._guard.check_change(headers)
        route.check(request)
        if "transfer-encoding" in headers and not route.body_bytes_max:
            raise _too_long(route)
        length = headers.get("content-length", "0")
        if len(length) > LENGTH_DIGITS_MAX or int(length) > route.body_bytes_max:
            raise _too_long(route)
        return request, route

    async def _continue(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            await self._write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the request's body in pieces. Raises Gone or RemoteProtocolError."""
        while True:
            event: h11.Event | None = None
            with trio.move_on_after(STREAM_IDLE_S) as self._piece_scope:
                if not self.is_leaving:
                    event = await self._event()
            if isinstance(event, h11.EndOfMessage) or (event is None and self.is_leaving):
                return
            if not isinstance(event, h11.Data):
                raise Gone
            yield bytes(event.data)

    def _take(self, size: int) -> None:
        self._bodies.take(size)
        self._body_bytes += size

    async def _body(self, route: Route) -> bytes:
        body = bytearray()
        if route.body_bytes_max:
            await self._continue()
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
            if len(body) > route.body_bytes_max:
                raise _too_long(route)
            if len(body) > self._body_bytes:  # its length was not said
                self._take(len(body) - self._body_bytes)
        if not isinstance(event, h11.EndOfMessage):
            raise Gone
        return bytes(body)

    # ------------------------------------------------------------------ answering

    async def _refuse(self, refused: Refused) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            # What is left of the request is not read, so no other can follow.
            closing = Refused(refused.status, str(refused), (*refused.headers, ("Connection", "close")))
            await self._send(self._routes.refusal(closing))

    async def _send(self, response: Response) -> None:
        body = response.body
        headers = {**self._routes.headers, "content-type": response.content_type}
        if isinstance(body, bytes):
            headers["content-length"] = str(len(body))
        headers |= {name.lower(): value for name, value in response.headers}
        if response.is_lasting or self.is_leaving:
            headers["connection"] = "close"
        reason = HTTPStatus(response.status).phrase
        head = self._http.send(h11.Response(status_code=response.status, headers=list(headers.items()), reason=reason))
        if isinstance(body, bytes) and len(body) <= PIECE_BYTES:
            data = b"" if self._method == "HEAD" else self._http.send(h11.Data(data=body))
            await self._write(b"".join(filter(None, (head, data, self._http.send(h11.EndOfMessage())))))
            return
        await self._write(head)
        if isinstance(body, bytes):
            if self._method != "HEAD":
                await self._send_piece(body)
        else:
            async with aclosing(body):
                if self._method != "HEAD":
                    await (self._send_lasting(body) if response.is_lasting else self._send_pieces(body))
        await self._write(self._http.send(h11.EndOfMessage()))

    async def _send_pieces(self, pieces: AsyncGenerator[bytes, None]) -> None:
        try:
            async for piece in pieces:
                await self._send_piece(piece)
        except (Gone, trio.BrokenResourceError, trio.ClosedResourceError):
            raise
        except h11.RemoteProtocolError:  # of a body that is read meanwhile
            raise Gone from None
        except Exception:
            # Its reader finds out, because the last chunk is missing.
            logger.exception("bug: an answer over HTTP")
            raise Gone from None

    async def _send_lasting(self, pieces: AsyncGenerator[bytes, None]) -> None:
        """Send a stream that has no planned end. Raises Gone if the client closes the connection."""
        is_whole = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, nursery.cancel_scope)
            # A nursery would wrap what is raised in it.
            with suppress(Gone, trio.BrokenResourceError, trio.ClosedResourceError):
                await self._send_pieces(pieces)
                is_whole = True
            nursery.cancel_scope.cancel()
        if not is_whole:
            raise Gone

    async def _listen(self, answer: trio.CancelScope) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._stream.receive_some(1)
        answer.cancel()

    async def _send_piece(self, piece: bytes) -> None:
        for start in range(0, len(piece), PIECE_BYTES):
            await self._write(self._http.send(h11.Data(data=piece[start : start + PIECE_BYTES])))

    async def _write(self, data: bytes | None) -> None:
        if data:
            with trio.move_on_after(SEND_S):
                await self._stream.send_all(data)
                return
            raise Gone

    async def _linger(self) -> None:
        """Read for a moment before closing, because a close with unread bytes would make the peer lose the answer."""
        if isinstance(self._stream, trio.abc.HalfCloseableStream):  # TLS has no half of a connection to close
            await self._stream.send_eof()
        left = LINGER_BYTES_MAX
        with trio.move_on_after(LINGER_S):
            while left > 0 and (data := await self._received()):
                left -= len(data)


def _too_many_headers() -> Refused:
    return Refused(431, f"There are more than {HEADERS_MAX} headers.")


def _too_long(route: Route) -> Refused:
    return Refused(413, f"The body may have {route.body_bytes_max} bytes here.")


CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS = 128, 64


class ConnectionLimits(NamedTuple):
    """Maximal numbers of connections: in all, and from one address."""

    all: int
    per_address: int


RESERVE_PART = 8  # this part of the reserve of descriptors may be used


class HttpServer:
    """HTTP server. It closes connections to keep its limits. `context`: TLS context; None for plain HTTP."""

    def __init__(
        self,
        routes: Routes,
        guard: Guard,
        descriptors: Descriptors,
        pace: Pace,
        limits: ConnectionLimits | None = None,
        context: ssl.SSLContext | None = None,
        bodies: Room | None = None,
    ) -> None:
        self._routes, self._guard, self._descriptors, self._pace = routes, guard, descriptors, pace
        self._limits = limits or ConnectionLimits(CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS)
        self._context = context
        self._room, self._bodies = Room(), bodies or Room()
        self._connections: set[HttpConnection] = set()
        self._accepting = trio.CancelScope()
        self._are_taken, self._shortage = Reminder(), Reminder()

    @property
    def connection_count(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    async def run(self, sock: socket.socket) -> None:
        """Serve a listening socket until cancelled; after `stop`, until the last request is answered."""
        listener = trio.socket.from_stdlib_socket(sock)
        async with trio.open_nursery() as nursery:
            with self._accepting:
                await self._accept(listener, nursery)
            listener.close()

    async def run_until(self, stopping: trio.Event, sock: socket.socket) -> None:
        """Serve a listening socket until `stopping`; then answer the open requests, for at most STOP_S seconds."""

        async def stop() -> None:
            await stopping.wait()
            self.stop()
            await trio.sleep(STOP_S)
            logger.warning("%d requests are not answered after %g s", len(self._connections), STOP_S)
            self.cut_off()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop)
            await self.run(sock)
            nursery.cancel_scope.cancel()

    def stop(self) -> None:
        """Stop accepting connections. Close idle connections now, and busy ones after their answers."""
        self._accepting.cancel()
        for each in self._connections:
            each.leave()

    def cut_off(self) -> None:
        """Close all open connections without waiting for their answers."""
        for each in self._connections:
            each.cancel_scope.cancel()

    async def _accept(self, listener: trio.socket.SocketType, nursery: trio.Nursery) -> None:
        while True:
            try:
                accepted, address = await listener.accept()
            except OSError as error:
                await self._after_failed_accept(error)
                continue
            host = plain_address(address[0])
            if self._has_room(host):
                nursery.start_soon(self._serve, accepted, host)
            else:
                accepted.close()

    async def _after_failed_accept(self, error: OSError) -> None:
        # The socket stays readable, so without a pause the loop would do nothing but fail.
        if classify(error) is Fault.TRANSIENT:
            self._shortage.tell(logger.error, "cannot accept over HTTP for now: %s", error)
            await trio.sleep(RETRY_SECONDS)

    def _has_room(self, host: str) -> bool:
        """Tell whether a new connection from `host` may stay; if necessary close another connection for it."""
        descriptors = self._descriptors
        staying = [each for each in self._connections if not each.cancel_scope.cancel_called]
        of_host = [each for each in staying if each.peer == host]
        if len(of_host) >= self._limits.per_address:
            leaver = _longest_idle(of_host)
            if leaver is None:
                self._warn("one address has %d connections over HTTP, and gets no more", self._limits.per_address)
                return False
            leaver.cancel_scope.cancel()
            return True
        are_left = descriptors.connections < descriptors.connections_max + descriptors.reserve // RESERVE_PART
        if are_left and len(self._connections) < self._limits.all:
            return True
        leaver = _longest_idle(staying) or _of_largest_share(staying, host)
        if leaver is None:
            self._warn("all %d connections over HTTP are in use", len(self._connections))
            return False
        leaver.cancel_scope.cancel()
        return True

    def _warn(self, message: str, count: int) -> None:
        self._are_taken.tell(logger.warning, message, count)

    async def _serve(self, sock: trio.socket.SocketType, host: str) -> None:
        self._descriptors.connection_opened()
        # The stream sets options of the socket, and puts up with a peer that has gone already.
        plain = trio.SocketStream(sock)
        stream: trio.abc.Stream = plain
        if self._context is not None:
            stream = trio.SSLStream(plain, self._context, server_side=True, https_compatible=True)
        connection = HttpConnection(stream, host, self._routes, self._guard, self._pace, self._room, self._bodies)
        self._connections.add(connection)
        if self._accepting.cancel_called:
            connection.leave()
        try:
            await connection.run()
        except Exception:  # it would end the endpoint, and with it the broker
            logger.exception("bug: a connection over HTTP of %s", host)
        finally:
            sock.close()
            self._connections.discard(connection)
            self._descriptors.connection_closed()


def _longest_idle(connections: Sequence[HttpConnection]) -> HttpConnection | None:
    return min((each for each in connections if each.is_idle), key=_since, default=None)


def _of_largest_share(staying: Sequence[HttpConnection], host: str) -> HttpConnection | None:
    """Return the longest-busy connection of the address with the most connections.

    None unless that address has at least 2 connections more than `host`.
    """
    counts = Counter(each.peer for each in staying)
    most = max(counts.values(), default=0)
    if most < counts[host] + 2:
        return None
    return min((each for each in staying if counts[each.peer] == most), key=_since)


def _since(connection: HttpConnection) -> float:
    return connection.since
