"""Transactional clients that speak the newest protocol, each transaction with an epoch of its own (KIP-890), which librdkafka does not.

They are those of the simulation, over sockets: what they do, and what they note, is in `compat_tests/simulation/transactions.py`.
Each is a process of its own until its input ends, as those of `processors.py` are.
"""

import contextlib
import random
import sys
from pathlib import Path
from typing import Any

import trio
from compat_tests.simulation.transactions import NEW, SimProcessor
from compat_tests.support.wire_client import WireClient

from ottla.server.testing.client.connections import BACKOFF_S, REQUEST_TIMEOUT_S, Connections
from ottla.server.testing.history.history import Event, HistoryFile, Recorder
from ottla.wire.errors import KafkaError
from ottla.wire.schema import Message

Address = tuple[str, int]


class SocketClient(Connections):
    """A client of real brokers: one request at a time, which holds its process."""

    def __init__(self, name: str, bootstrap: str, topic: str) -> None:
        """`topic`: one that is there, whose metadata tell where brokers are."""
        self.name = name
        self._topic = topic
        self.network: Any = self  # has the choices that are left to chance
        self.chance = random.Random(name)
        pairs = [each.rsplit(":", 1) for each in bootstrap.split(",")]
        self.brokers: Any = tuple((host, int(port)) for host, port in pairs)
        self.leaders = {}
        self.topic_ids = {}
        self._seen_epochs = {}
        self._refreshing = None
        self._addresses: dict[int, Address] = {}
        self._connections: dict[Address, WireClient] = {}

    async def ask(self, broker: Any, request: Message, version: int, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """`broker`: its id, or where it is."""
        await trio.lowlevel.checkpoint()
        address = broker if isinstance(broker, tuple) else self._addresses.get(broker)
        if address is None:  # it was away whenever metadata were asked for
            await self.refresh(self._topic)
            return None
        try:
            if address not in self._connections:
                self._connections[address] = WireClient(address, client_id=self.name, timeout_s=timeout_s)
            return self._connections[address].ask(request, version)
        except (OSError, EOFError, AssertionError, KafkaError):
            if address in self._connections:
                self._connections.pop(address).close()
            await trio.sleep(BACKOFF_S)
            return None

    def _take(self, response: Any) -> None:
        self._addresses |= {each.node_id: (each.host, each.port) for each in response.brokers}
        super()._take(response)


async def work(name: str, file: str, bootstrap: str, topic: str, partitions: str) -> None:
    """One processor, until the input ends."""
    history = HistoryFile(Path(file))

    def note(event: Event) -> None:
        history.append(event)
        history.flush()

    client = SocketClient(name, bootstrap, topic)
    where = [(topic, index) for index in range(int(partitions))]
    # Nobody here knows who is the coordinator of a group, so nothing is concluded from the offsets that it tells of.
    processor = SimProcessor(client, Recorder(note), where, lambda *_: False, versions=NEW)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(processor.run)
        await trio.to_thread.run_sync(sys.stdin.read)
        processor.is_over = True
    history.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        trio.run(work, *sys.argv[1:])
