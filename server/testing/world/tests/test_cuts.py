"""Brokers that are cut off from each other, or killed."""

from __future__ import annotations

from typing import Any

import trio

from ottla.server.testing.world.cuts import CutPeer, Cuts
from ottla.wire.messages.metadata import MetadataRequest


class Peer:
    """A broker that answers at once."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def ask(self, request: Any, version: int, *, timeout_s: float) -> str:
        self.asked.append(request)
        return "answer"

    async def aclose(self) -> None:
        """Nothing is open."""


async def test_a_broker_that_was_killed_asks_no_other() -> None:
    peer: Any = Peer()
    asking = CutPeer(peer, 1, 2, Cuts())
    assert await asking.ask(MetadataRequest(topics=None), 9, timeout_s=1) == "answer"
    with trio.CancelScope() as life:
        life.cancel()
        await asking.ask(MetadataRequest(topics=None), 9, timeout_s=1)
    assert len(peer.asked) == 1
