"""This broker's way to whoever is the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.replication.cluster.peers import Peer, PeerUnavailable
from ottla.replication.cluster.state import NO_CONTROLLER

if TYPE_CHECKING:
    from ottla.replication.cluster.state import BrokerEndpoint
    from ottla.wire.schema import Message


class WayToController:
    """One connection, which follows the controller from broker to broker and from address to address.

    `endpoint` tells where a broker is now, None while nobody knows; `connect` makes a way there. Several may ask at once.
    """

    def __init__(self, endpoint: Callable[[int], BrokerEndpoint | None], connect: Callable[[int], Peer]) -> None:
        self._endpoint = endpoint
        self._connect = connect
        self._known: tuple[int, BrokerEndpoint | None] | None = None
        self._peer: Peer | None = None

    async def ask(self, controller_id: int, request: Message, version: int, *, timeout_s: float) -> Any:
        """Ask once. Raises PeerUnavailable."""
        if controller_id == NO_CONTROLLER:
            raise PeerUnavailable("there is no controller")
        wanted = (controller_id, self._endpoint(controller_id))
        if self._peer is None or wanted != self._known:
            # The former way is closed last. Others who ask in the meantime share the new one.
            former, self._peer = self._peer, None
            try:
                self._peer = self._connect(controller_id)
                self._known = wanted
            finally:
                if former is not None:
                    await former.aclose()
        peer = self._peer
        if peer is None:  # somebody else found meanwhile that nobody knows the way
            raise PeerUnavailable(f"broker {controller_id} is not known")
        return await peer.ask(request, version, timeout_s=timeout_s)

    async def aclose(self) -> None:
        """Hang up. Who asks again has a new connection."""
        peer, self._peer = self._peer, None
        if peer is not None:
            await peer.aclose()
