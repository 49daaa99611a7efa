"""The ports of several workers, held by the start that runs them as long as it lives.

It binds each of them alone, so that a port which somebody has is found at once, and nobody has two bootstrap addresses by
accident. Only then it lets its workers bind the same ones (SO_REUSEPORT), each with sockets of its own. It does not listen
itself, so no connection ever waits for a worker that is gone, and a worker that is started again finds its port free.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.server.net.listener import bind
from ottla.server.serving import StartupError
from ottla.server.settings.worker_places import Ports
from ottla.server.start.looking_again import looks

if TYPE_CHECKING:
    from ottla.server.settings.broker_config import BrokerConfig
    from ottla.server.settings.endpoint import Endpoint

PATIENCE_S: Final = 5.0  # for the sockets of workers of a start that was killed, which the kernel is just ending
LOOKS_AT_OTHERS: Final = 25  # at a port that others than workers have


class HeldPorts:
    """See the module's docstring. `by_listener` has the numbers, none of which is 0."""

    def __init__(self, config: BrokerConfig, wanted: Mapping[str, Ports]) -> None:
        """Raises StartupError that names the address that cannot be had."""
        self._sockets: list[socket.socket] = []
        try:
            self.by_listener = {
                each.listener: Ports(
                    self._hold(each, wanted[each.listener].shared),
                    [self._hold(each, port) for port in wanted[each.listener].own],
                )
                for each in config.listeners
            }
        except BaseException:
            self.close()
            raise

    def _hold(self, endpoint: Endpoint, port: int) -> int:
        try:
            sock = _patiently_bound(endpoint.host, port)
        except OSError as error:
            place = f"{endpoint.listener}://{endpoint.host}:{port}"
            told = place if port == endpoint.port else f"{place}, which a worker needs for itself"
            raise StartupError(f"cannot listen on {told}: {error.strerror or error}") from None
        self._sockets.append(sock)
        # From now on another process gets it only if it asks for company, as the workers do.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held: int = sock.getsockname()[1]
        return held

    def close(self) -> None:
        """Let go of them."""
        for sock in self._sockets:
            sock.close()


def _patiently_bound(host: str, port: int) -> socket.socket:
    """OSError: somebody has it who is not about to end."""
    problem = OSError("never looked at")
    at_others = 0
    for _ in looks(PATIENCE_S):
        try:
            return bind(host, port)
        except OSError as error:
            problem = error
        # Workers that end may get no processor for long. Nobody else is worth the wait.
        at_others += not _is_shared(host, port)
        if at_others > LOOKS_AT_OTHERS:
            break
    raise problem


def _is_shared(host: str, port: int) -> bool:
    """Whether those who have it let in others of this user, as workers do."""
    try:
        bind(host, port, with_others=True).close()
    except OSError:
        return False
    return True
