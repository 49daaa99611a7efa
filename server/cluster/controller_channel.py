"""Connection from this broker to the active controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.cluster.metadata_cache import NO_CONTROLLER
from ottla.replication.cluster.peers import Peer, PeerUnavailable

if TYPE_CHECKING:
    from ottla.replication.cluster.metadata_cache import BrokerEndpoint
    from ottla.server.cluster.controller.controller_election import ControllerElection
    from ottla.wire.schema import Message

MOVE_GRACE_S = 2.0
"""Seconds that a replaced controller may take for its last answers."""


async def ask_active_controller(
    channel: ControllerChannel, election: ControllerElection, request: Message, version: int, *, timeout_s: float
) -> Any:
    """Send one request to the controller and return its response. Raises PeerUnavailable.

    If another broker becomes controller meanwhile, the request fails after MOVE_GRACE_S seconds, without a retry.
    """
    answer: Any = None
    controller_id = election.controller_id
    problem: Exception = PeerUnavailable(f"broker {controller_id} is not the controller any more")
    async with trio.open_nursery() as nursery:

        async def give_up() -> None:
            while election.controller_id == controller_id:
                await election.moved.wait()
            nursery.cancel_scope.deadline = trio.current_time() + MOVE_GRACE_S

        nursery.start_soon(give_up)
        try:
            answer = await channel.ask(controller_id, request, version, timeout_s=timeout_s)
        except Exception as error:  # noqa: BLE001 - raised below, where the nursery puts it into no group
            problem = error
        nursery.cancel_scope.cancel()
    if answer is None:
        raise problem
    return answer


class ControllerChannel:
    """Connection to the active controller; it follows the controller (Kafka's NodeToControllerChannelManager).

    `endpoint` returns a broker's address, None if unknown; `connect` opens a connection. Tasks may send concurrently.
    """

    def __init__(self, endpoint: Callable[[int], BrokerEndpoint | None], connect: Callable[[int], Peer]) -> None:
        self._endpoint, self._connect = endpoint, connect
        self._known: tuple[int, BrokerEndpoint | None] | None = None
        self._peer: Peer | None = None

    async def ask(self, controller_id: int, request: Message, version: int, *, timeout_s: float) -> Any:
        """Send one request to broker `controller_id` and return the response. Raises PeerUnavailable."""
        if controller_id == NO_CONTROLLER:
            raise PeerUnavailable("there is no controller")
        wanted = (controller_id, self._endpoint(controller_id))
        if self._peer is None or wanted != self._known:
            # The former connection is closed last. Others who ask in the meantime share the new one.
            former, self._peer = self._peer, None
            try:
                self._peer = self._connect(controller_id)
                self._known = wanted
            finally:
                if former is not None:
                    await former.aclose()
        peer = self._peer
        if peer is None:  # somebody else found meanwhile that its address is not known
            raise PeerUnavailable(f"broker {controller_id} is not known")
        return await peer.ask(request, version, timeout_s=timeout_s)

    async def aclose(self) -> None:
        """Close the connection. The next request opens a new one."""
        peer, self._peer = self._peer, None
        if peer is not None:
            await peer.aclose()
