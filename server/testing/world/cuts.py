"""Cuts between the brokers of a world: what one asks another waits until the cut ends or its time is up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import trio

from ottla.replication.cluster.peers import Peer, Peers, PeerUnavailable

if TYPE_CHECKING:
    from ottla.replication.cluster.metadata_cache import BrokerEndpoint
    from ottla.wire.schema import Message


GRACE_S = 1.0


class Cuts:
    """Pairs of brokers that cannot reach each other, and time limits of requests between brokers."""

    def __init__(self) -> None:
        self._pairs: set[tuple[str, frozenset[int]]] = set()
        """Who has cut, and the two brokers."""
        self.paused: set[int] = set()
        """Brokers that can reach nobody, whatever pairs are cut."""
        self._changed = trio.Event()
        self._limits: set[trio.CancelScope] = set()

    def cut(self, one: int, other: int, by: str) -> None:
        self._pairs.add((by, frozenset((one, other))))

    def heal(self, broker: int, by: str | None) -> None:
        """End the cuts of a broker that `by` has made; None: all of them."""
        self._pairs = {(maker, pair) for maker, pair in self._pairs if broker not in pair or by not in (None, maker)}
        self._note_change()

    def resume(self, broker: int) -> None:
        self.paused.discard(broker)
        self._note_change()

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def is_cut(self, one: int, other: int) -> bool:
        both = frozenset((one, other))
        return any(pair == both for _, pair in self._pairs) or one in self.paused or other in self.paused

    async def until_open(self, one: int, other: int) -> None:
        while self.is_cut(one, other):
            await self._changed.wait()

    @contextmanager
    def time_limit(self, seconds: float) -> Iterator[None]:
        """End the block after some seconds, as `trio.move_on_after`, but not by a jump of the clock alone."""
        with trio.move_on_after(seconds) as scope:
            self._limits.add(scope)
            try:
                yield
            finally:
                self._limits.discard(scope)

    def put_off(self) -> None:
        """Put off, once for each request, the time limits that the clock has just jumped over.

        The answers are due at the same moment, and would be late or not by chance.
        """
        now = trio.current_time()
        for scope in [each for each in self._limits if each.deadline <= now]:
            scope.deadline = now + GRACE_S
            self._limits.discard(scope)


class CutPeers:
    """Connections of one broker to others, as far as it is not cut off from them."""

    def __init__(self, peers: Peers, node_id: int, cuts: Cuts) -> None:
        self._peers, self._node_id, self._cuts = peers, node_id, cuts
        self._made: WeakSet[Peer] = WeakSet()

    def to(self, endpoint: BrokerEndpoint, *, client_id: str) -> CutPeer:
        peer = self._peers.to(endpoint, client_id=client_id)
        self._made.add(peer)
        return CutPeer(peer, self._node_id, endpoint.node_id, self._cuts)

    async def aclose(self) -> None:
        """Close all connections, as the end of a process does."""
        for peer in list(self._made):
            await peer.aclose()


class CutPeer:
    """Connection to one broker; see `Peer`."""

    def __init__(self, peer: Peer, node_id: int, other: int, cuts: Cuts) -> None:
        self._peer, self._node_id, self._other, self._cuts = peer, node_id, other, cuts

    async def ask(self, request: Message, version: int, *, timeout_s: float) -> Any:
        with self._cuts.time_limit(timeout_s):
            await self._cuts.until_open(self._node_id, self._other)
            # Until a killed broker has ended, others hear nothing of what it does.
            await trio.lowlevel.checkpoint_if_cancelled()
            answer = await self._peer.ask(request, version, timeout_s=math.inf)
            if not self._cuts.is_cut(self._node_id, self._other):
                return answer
            # It came too late: its bytes may not be kept, so it is lost, although the request was carried out.
            await self._cuts.until_open(self._node_id, self._other)
            raise PeerUnavailable(f"the answer of broker {self._other} to broker {self._node_id} was lost in a cut")
        raise PeerUnavailable(f"broker {self._other} did not answer broker {self._node_id} within {timeout_s:g} s")

    async def aclose(self) -> None:
        await self._peer.aclose()
