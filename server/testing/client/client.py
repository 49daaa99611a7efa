"""A client for tests, in trio.

async with connect("127.0.0.1:9092") as client:          # or `sim.client()` in a simulation
    await client.create_topic("orders", partitions=3)
    producer = client.producer()
    await producer.send("orders", b"one", key=b"a")
    async with client.consumer("orders", group="billing") as consumer:
        records = await consumer.poll()
        await consumer.commit()
"""

import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import trio

from ottla.server.testing.client.admin import TIMEOUT_S, Admin
from ottla.server.testing.client.answers import NoAnswer
from ottla.server.testing.client.connections import Connections
from ottla.server.testing.client.consumer import Consumer, ConsumerRecord
from ottla.server.testing.client.producer import Producer
from ottla.server.testing.client.streams import Address, OpenStream, StreamNetwork
from ottla.server.testing.history.observed import Observations


class Client(Admin):
    """A client of one cluster. `history` notes what its producers and consumers see; None: nobody does."""

    def __init__(
        self, connections: Connections, timeout_s: float = TIMEOUT_S, history: Observations | None = None
    ) -> None:
        super().__init__(connections, timeout_s)
        self.history = history
        self._made = 0

    def __repr__(self) -> str:
        return f"Client({self.name!r})"

    def producer(self, **options: Any) -> Producer:
        """Make a producer; options as those of `Producer`."""
        return Producer(self, self._next_name("producer"), history=self.history, **options)

    def consumer(self, *topics: str, group: str | None = None, **options: Any) -> Consumer:
        """Make a consumer of topics, as the member of a group or (None) of all partitions; options as those of `Consumer`."""
        return Consumer(self, self._next_name("consumer"), topics, group, history=self.history, **options)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        try:
            await super().delete_topic(name)
        except NoAnswer:
            if self.history is not None:
                self.history.topic_deleted(name, is_sure=False)
            raise
        if self.history is not None:
            self.history.topic_deleted(name)

    async def read_all(self, topic: str, *, committed_only: bool = False) -> list[ConsumerRecord]:
        """Return all records of a topic, from the first to the present end of each partition, partition by partition."""
        ends = {
            (topic, partition): await self.end(topic, partition, committed_only=committed_only)
            for partition in await self.partitions_of(topic)
        }
        found: list[ConsumerRecord] = []
        async with self.consumer(topic, committed_only=committed_only) as consumer:

            async def attempt() -> bool | None:
                found.extend(await consumer.poll())
                return True if all(consumer.positions.get(place, 0) >= end for place, end in ends.items()) else None

            if any(ends.values()):
                await self.insist(f"the records of {topic!r}", attempt)
        before = [each for each in found if each.offset < ends[each.topic, each.partition]]
        return sorted(before, key=lambda each: (each.partition, each.offset))

    def close(self) -> None:
        """Close all connections."""
        self.connections.close()

    def _next_name(self, kind: str) -> str:
        self._made += 1
        return f"{self.name} {kind} {self._made}"


def addresses_in(bootstrap: str) -> list[Address]:
    """Return the addresses in HOST:PORT[,HOST:PORT]. Raises ValueError."""
    found = []
    for each in bootstrap.split(","):
        host, colon, port = each.strip().rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"{each.strip()!r} is not HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    return found


@contextlib.asynccontextmanager
async def connect(
    bootstrap: str,
    name: str = "ottla-testing",
    *,
    timeout_s: float = TIMEOUT_S,
    open_stream: OpenStream | None = None,
    seed: int | None = None,
    history: Observations | None = None,
) -> AsyncIterator[Client]:
    """Open a client of a cluster in trio. `open_stream` gets host and port; None: TCP. `seed` of choices among brokers; None: any."""
    # Ids that no broker has, for addresses of which nobody says whose they are.
    addresses = {-1 - number: each for number, each in enumerate(addresses_in(bootstrap))}
    error: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            network = StreamNetwork(nursery, addresses, open_stream or trio.open_tcp_stream, random.Random(seed))
            nursery.start_soon(network.agenda.run)
            connections = Connections(network, nursery, 0, name, tuple(addresses))
            connections.locate = network.locate
            try:
                yield Client(connections, timeout_s, history)
            except Exception as found:  # noqa: BLE001 - raised again, and not within a group
                error = found
            connections.close()
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        error = error or _only(group)
        if error is None:
            raise
    if error is not None:
        raise error


def _only(error: BaseException) -> Exception | None:
    """Return the exception within groups of one; None if there are several, or it is no error, such as a cancellation."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, Exception) and not isinstance(error, BaseExceptionGroup) else None
