"""One connection of the HTTP endpoint: requests one after the other, each answered before the next is read.

Theory
    waiting for a request    IDLE_S until its first byte
    head, then body          REQUEST_S for both together; HEAD_BYTES_MAX, HEADERS_MAX, TARGET_BYTES_MAX, and the body that the
                             route allows. Who may ask is checked, and the route found, before a body is read. What it takes
                             to read them is paid for: chunks of a byte cost as much as a long answer.
    answer                   ANSWER_S from the call of the handler to the last byte, unless it lasts; SEND_S for each piece of
                             PIECE_BYTES, lasting or not. So a reader that stops, or trickles, is ended.
    a next request           if both sides keep the connection, and the request was read to its end

h11 knows the protocol: bytes go in, events come out. Whatever it refuses is answered with its hint (400, 431), and the
connection ends. It has at most HEAD_BYTES_MAX of an incomplete head, and is given RECEIVE_BYTES at a time.

A lasting answer has no end, so its reader is listened to while it is sent: when that closes its side, or goes on talking, the
answer is cancelled. No connection is used again after one.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote

import h11
import trio

from ottla.server.http.guard import Guard
from ottla.server.http.messages import Handler, Refused, Request, Response
from ottla.server.http.pace import Pace
from ottla.server.http.room import Room
from ottla.server.http.routes import Route, Routes

logger = logging.getLogger("ottla.http")

IDLE_S, REQUEST_S, ANSWER_S, SEND_S, LINGER_S = 75.0, 10.0, 60.0, 10.0, 1.0
HEAD_BYTES_MAX, TARGET_BYTES_MAX, HEADERS_MAX, QUERY_FIELDS_MAX = 16 * 1024, 8 * 1024, 100, 100
RECEIVE_BYTES, PIECE_BYTES, LINGER_BYTES_MAX = 16 * 1024, 64 * 1024, 256 * 1024
LENGTH_DIGITS_MAX = 18  # of a Content-Length
LINES_MAX = HEADERS_MAX + 1  # of a head
_EMPTY_LINE = re.compile(rb"\n\r?\n")

_STRICT = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""What every answer says to browsers, unless it says it otherwise."""


class Gone(Exception):
    """The peer has left, or is too slow to be served."""


class Conversation:
    """See the module's docstring. `is_idle` says whether it may be ended without cutting anything off, `since` when it began to
    idle, or else when its request began.
    """

    def __init__(
        self,
        stream: trio.abc.HalfCloseableStream,
        peer: str,
        routes: Routes,
        guard: Guard,
        pace: Pace,
        room: Room | None = None,
    ) -> None:
        self._note_idle(is_idle=True)
        self.cancel_scope = trio.CancelScope()
        self._stream, self.peer, self._routes, self._guard, self._pace = stream, peer, routes, guard, pace
        self._room = room or Room()
        self._method = ""  # of the request that is answered, as far as it is known
        self._worked_s = 0.0  # with what is read, and not paid for yet
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def run(self) -> None:
        """Until one side ends it. Nothing is raised for what a peer does."""
        with self.cancel_scope:
            try:
                while await self._serve_one():
                    self._note_idle(is_idle=True)
                await self._linger()
            except (Gone, trio.BrokenResourceError, trio.ClosedResourceError):
                pass

    def _note_idle(self, *, is_idle: bool) -> None:
        self.is_idle, self.since = is_idle, trio.current_time()

    async def _serve_one(self) -> bool:
        """One request and its answer; answers whether another may follow."""
        self._method = ""
        try:
            if (found := await self._request()) is None:
                return False
            await self._answer(*found)
        except Refused as refused:
            await self._refuse(refused)
        except h11.RemoteProtocolError as error:
            await self._refuse(Refused(error.error_status_hint, f"This is no HTTP request: {error}"))
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def _answer(self, request: Request, handler: Handler) -> None:
        with trio.move_on_after(ANSWER_S) as limit:
            response = await _called(handler, request)
            if response.is_lasting:
                limit.deadline = math.inf
            with self._room.held(len(response.body) if isinstance(response.body, bytes) else 0):
                await self._send(response)
        if limit.cancelled_caught:
            raise Gone

    # ------------------------------------------------------------------ reading

    async def _request(self) -> tuple[Request, Handler] | None:
        """The next request and who answers it; None at the end. Raises Refused, RemoteProtocolError, Gone."""
        await self._first_byte()
        await self._pace.request()
        with trio.move_on_after(REQUEST_S):
            event = await self._event(is_head=True)
            if not isinstance(event, h11.Request):
                return None
            self._method = event.method.decode("latin-1")
            request, route = self._judged(event)
            return replace(request, body=await self._body(route)), route.handler
        raise Refused(408, f"The request was not complete after {REQUEST_S:g} s.")

    async def _first_byte(self) -> None:
        # A request that came together with the one before is here already.
        if not self._http.trailing_data[0]:
            with trio.move_on_after(IDLE_S):
                self._http.receive_data(await self._received())
                self._note_idle(is_idle=False)
                return
            raise Gone
        self._note_idle(is_idle=False)

    async def _received(self) -> bytes:
        return bytes(await self._stream.receive_some(RECEIVE_BYTES))

    async def _event(self, *, is_head: bool = False) -> h11.Event | None:
        """None: there is nothing more to come in this request."""
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
        """Raises Refused for a head of very many lines: to read them would hold the loop for tens of milliseconds."""
        received = self._http.trailing_data[0]
        end = _EMPTY_LINE.search(received)
        if received.count(b"\n", 0, len(received) if end is None else end.start()) > LINES_MAX:
            raise _too_many_headers()

    def _judged(self, event: h11.Request) -> tuple[Request, Route]:
        """The head of a request, and its route. Raises Refused."""
        if len(event.headers) > HEADERS_MAX:
            raise _too_many_headers()
        if len(event.target) > TARGET_BYTES_MAX:
            raise Refused(414, f"The target has more than {TARGET_BYTES_MAX} bytes.")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        self._guard.check_host(headers.get("host"))
        # The target of a request to a proxy is a whole address, which nothing here answers.
        path, _, query = event.target.decode("latin-1").partition("?")
        method = self._method
        try:
            fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX))
        except ValueError:
            raise Refused(400, f"The query has more than {QUERY_FIELDS_MAX} parameters.") from None
        request = Request(method=method, path=unquote(path), query=fields, headers=headers, peer=self.peer)
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

    async def _body(self, route: Route) -> bytes:
        body = bytearray()
        if self._http.they_are_waiting_for_100_continue and route.body_bytes_max:
            await self._write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
            if len(body) > route.body_bytes_max:
                raise _too_long(route)
        if not isinstance(event, h11.EndOfMessage):
            raise Gone
        return bytes(body)

    # ------------------------------------------------------------------ answering

    async def _refuse(self, refused: Refused) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            # What is left of the request is not read, so no other can follow.
            closing = Refused(refused.status, str(refused), (*refused.headers, ("Connection", "close")))
            await self._send(closing.response)

    async def _send(self, response: Response) -> None:
        body = response.body
        headers = {**_STRICT, "content-type": response.content_type}
        if isinstance(body, bytes):
            headers["content-length"] = str(len(body))
        headers |= {name.lower(): value for name, value in response.headers}
        if response.is_lasting:
            headers["connection"] = "close"
        reason = HTTPStatus(response.status).phrase
        head = h11.Response(status_code=response.status, headers=list(headers.items()), reason=reason)
        await self._write(self._http.send(head))
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
        except Exception:
            # Its reader finds out, because the last chunk is missing.
            logger.exception("bug: an answer over HTTP")
            raise Gone from None

    async def _send_lasting(self, pieces: AsyncGenerator[bytes, None]) -> None:
        """Raises Gone if the reader goes before the end."""
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
        """Read on for a moment: a system that closes over unread bytes takes the answer back from the peer."""
        await self._stream.send_eof()
        left = LINGER_BYTES_MAX
        with trio.move_on_after(LINGER_S):
            while left > 0 and (data := await self._received()):
                left -= len(data)


async def _called(handler: Handler, request: Request) -> Response:
    try:
        return await handler(request)
    except Refused:
        raise
    except Exception:
        logger.exception("bug: the answer to %r %r", request.method, request.path)
        return Response(b"The broker has a bug here, which its log tells of.\n", status=500)


def _too_many_headers() -> Refused:
    return Refused(431, f"There are more than {HEADERS_MAX} headers.")


def _too_long(route: Route) -> Refused:
    return Refused(413, f"The body may have {route.body_bytes_max} bytes here.")
