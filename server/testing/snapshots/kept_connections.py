"""Connections that outlive their broker: an old broker gives up their sockets, and the new one serves them on.

Only a connection whose peer waits for nothing can change its broker, or one whose peer waits for a long poll: that ends first,
with what it has found. Whoever waits for anything else, such as a rebalance or a commit, would wait for ever, so those
connections break. So do encrypted ones and those with SASL, as the new broker knows nothing of their keys and logins.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.server.network.connection import Connection
from ottla.server.network.outbox import DONE
from ottla.wire.answers import PendingAnswer

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.network.listener import Listener
    from ottla.server.testing.wire_tap.ruled_conversation import RuledConversation


class GivenUp(NamedTuple):
    """Socket of a client on its way from one broker to another."""

    listener: str
    host: str
    sock: socket.socket


def give_up(broker: Broker) -> list[GivenUp]:
    """End the connections of a broker that can go on elsewhere, and return their sockets, which stay open."""
    given_up: list[GivenUp] = []
    for listener in broker.listeners:
        if listener.sasl is None and listener._encryption is None:
            for connection in list(listener.connections):
                with contextlib.suppress(OSError):  # the peer has left just now
                    if _becomes_idle(connection, listener):
                        sock = connection._transport.socket.dup()
                        given_up.append(GivenUp(listener.name, connection._peer, sock))
                        # This calls at once what takes the socket out of the event loop: nothing more is read from it here.
                        connection.cancel_scope.cancel()
    return given_up


def _becomes_idle(connection: Connection, listener: Listener) -> bool:
    """End the long polls of a connection; return True if its peer has an answer to everything that it asked for."""
    pending, sock = connection._pending, connection._transport.socket
    is_served = sock.fileno() in listener.readiness._served  # else its task is at work, or waits for something
    if not is_served or connection._throttling.is_muted or not connection._inbox.is_empty or connection._outbox.parts:
        return False
    if not all(each.is_ready or each.is_abandonable for each in pending):
        return False
    for each in pending:
        if isinstance(each.answer, PendingAnswer):
            each.answer.become_ready()
    pending.hand_over_ready(time.monotonic())
    if pending or (connection._outbox.parts and connection._outbox.send(connection._transport) is not DONE):
        return False
    # A rule of the tap may hold a request or an answer back, which would end with this broker.
    conversation: RuledConversation | None = getattr(connection._transport, "conversation", None)
    return conversation is None or conversation.is_idle


def take_up(broker: Broker, given_up: Iterable[GivenUp]) -> None:
    """Serve connections that another broker has given up; close those for which this broker has no listener."""
    listeners = {listener.name: listener for listener in broker.listeners}
    for name, host, sock in given_up:
        listener, nursery = listeners.get(name), broker._nursery
        if listener is None or nursery is None or not listener.limits.admit(host, name):
            sock.close()
            continue
        connection = listener.connection_of(listener._accept(sock), host)
        nursery.start_soon(listener._serve, connection, host)
