"""Accepts the connections of the HTTP endpoint, within limits that are its own.

CONNECTIONS_MAX in all and CONNECTIONS_PER_ADDRESS from one address. They count as descriptors of the broker, which has a few in
reserve for them: health can be asked when clients have taken everything. If an address has as many as it may have, that one of its
own makes room which has idled longest: behind a proxy everybody has one address. If all are taken, or those descriptors are, the
one that has idled longest of all between two requests makes room; if none idles, the one whose request or answer began first of the address that
has most, if that has two more than the address of the new one. So a few addresses with slow requests do not keep others out. Else
the new one is closed.
"""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from ottla.replication.log.faults import Fault, classify
from ottla.replication.reminders import Reminder
from ottla.server.http.conversation import Conversation
from ottla.server.http.room import Room
from ottla.server.net.connection_limits import RETRY_SECONDS, plain_address

if TYPE_CHECKING:
    from ottla.replication.log.descriptors import Descriptors
    from ottla.server.http.guard import Guard
    from ottla.server.http.pace import Pace
    from ottla.server.http.routes import Routes

logger = logging.getLogger("ottla.http")

CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS = 128, 64
RESERVE_PART = 8  # this part of the reserve of descriptors may be used


class HttpServer:
    """See the module's docstring."""

    def __init__(self, routes: Routes, guard: Guard, descriptors: Descriptors, pace: Pace) -> None:
        self._routes, self._guard, self._descriptors, self._pace = routes, guard, descriptors, pace
        self._room = Room()
        self._conversations: set[Conversation] = set()
        self._are_taken, self._shortage = Reminder(), Reminder()

    @property
    def connection_count(self) -> int:
        """How many there are."""
        return len(self._conversations)

    async def run(self, sock: socket.socket) -> None:
        """Serve a listening socket until cancelled."""
        listener = trio.socket.from_stdlib_socket(sock)
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    accepted, address = await listener.accept()
                except OSError as error:
                    await self._after_failed_accept(error)
                    continue
                host = plain_address(address[0])
                if self._has_room(host):
                    nursery.start_soon(self._converse, accepted, host)
                else:
                    accepted.close()

    async def _after_failed_accept(self, error: OSError) -> None:
        # The socket stays readable, so without a pause the loop would do nothing but fail.
        if classify(error) is Fault.TRANSIENT:
            self._shortage.tell(logger.error, "cannot accept over HTTP for now: %s", error)
            await trio.sleep(RETRY_SECONDS)

    def _has_room(self, host: str) -> bool:
        """Whether another connection of this address is served."""
        descriptors = self._descriptors
        staying = [each for each in self._conversations if not each.cancel_scope.cancel_called]
        of_host = [each for each in staying if each.peer == host]
        if len(of_host) >= CONNECTIONS_PER_ADDRESS:
            leaver = _longest_idle(of_host)
            if leaver is None:
                self._tell("one address has %d connections over HTTP, and gets no more", CONNECTIONS_PER_ADDRESS)
                return False
            leaver.cancel_scope.cancel()
            return True
        are_left = descriptors.connections < descriptors.connections_max + descriptors.reserve // RESERVE_PART
        if are_left and len(self._conversations) < CONNECTIONS_MAX:
            return True
        leaver = _longest_idle(staying) or _of_largest_share(staying, host)
        if leaver is None:
            self._tell("all %d connections over HTTP are in use", len(self._conversations))
            return False
        leaver.cancel_scope.cancel()
        return True

    def _tell(self, message: str, count: int) -> None:
        self._are_taken.tell(logger.warning, message, count)

    async def _converse(self, sock: trio.socket.SocketType, host: str) -> None:
        self._descriptors.connection_opened()
        # The stream sets options of the socket, and puts up with a peer that has gone already.
        conversation = Conversation(trio.SocketStream(sock), host, self._routes, self._guard, self._pace, self._room)
        self._conversations.add(conversation)
        try:
            await conversation.run()
        except Exception:  # it would end the endpoint, and with it the broker
            logger.exception("bug: a connection over HTTP of %s", host)
        finally:
            sock.close()
            self._conversations.discard(conversation)
            self._descriptors.connection_closed()


def _longest_idle(conversations: Sequence[Conversation]) -> Conversation | None:
    return min((each for each in conversations if each.is_idle), key=_since, default=None)


def _of_largest_share(staying: Sequence[Conversation], host: str) -> Conversation | None:
    """Whose request began first, of the address that has most; None if this address would come to have as many."""
    counts = Counter(each.peer for each in staying)
    most = max(counts.values(), default=0)
    if most < counts[host] + 2:
        return None
    return min((each for each in staying if counts[each.peer] == most), key=_since)


def _since(conversation: Conversation) -> float:
    return conversation.since
