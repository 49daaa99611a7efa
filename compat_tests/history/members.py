"""Members of groups among the clients of the load: those of the simulation, by real connections, and those of librdkafka.

They read a topic of their own, which less is written to than to the others.
"""

import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import trio
from compat_tests.history.clients import NO_PROGRESS_S, QUICK, Client
from compat_tests.history.wire_network import Address, MonotonicClock, TcpNetwork
from compat_tests.simulation.group_members import SimClassicMember, SimConsumerMember
from compat_tests.simulation.groups import MEMBERS_SETTINGS, SESSION_TIMEOUT_MS, begin_share_group, is_drained
from compat_tests.simulation.share_members import SimShareMember
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.server.testing.client.connections import Connections
from ottla.server.testing.history.group_events import Disowned, Owned, ShareBegan
from ottla.server.testing.history.history import Recorder

SHARED_TOPIC = "shared"
DELIVERY_COUNT_LIMIT = 5
LIFE_S = 40.0  # on average
RECORDS_MAX = 500
SETTINGS = {name: value for name, value in MEMBERS_SETTINGS.items() if "replication" not in name} | {
    "group.share.delivery.count.limit": str(DELIVERY_COUNT_LIMIT)
}
SHARE, CONSUMER, CLASSIC = ALL = ("share", "consumer", "classic")
"""Kinds of groups."""


class Members(Client):
    """Members of a group of each kind, by Ottla's own messages, in one thread."""

    def __init__(
        self,
        record: Recorder,
        brokers: Mapping[int, Address],
        topic: str,
        partitions: int,
        kinds: Sequence[str],
        count: int,
    ) -> None:
        super().__init__("members", record)
        self._record, self._brokers = record, brokers
        self._topic, self._partitions = topic, partitions
        self.kinds, self._count = kinds, count
        self._shares: list[SimShareMember] = []

    @property
    def accepted(self) -> int:
        return sum(member.accepted for member in self._shares)

    def turn(self) -> None:
        """The only one: all their lives."""
        trio.run(self._main, clock=MonotonicClock())

    async def _main(self) -> None:
        async with trio.open_nursery() as nursery:
            network = TcpNetwork(nursery, self._brokers, self.name)
            make = partial(self._client, network, nursery)
            if SHARE in self.kinds:
                await begin_share_group(make("administrator"), SHARE)
                self._record.add(ShareBegan, SHARE, self._topic, DELIVERY_COUNT_LIMIT)
                self._shares = [self._share_member(make, number) for number in range(self._count)]
            others = self._others(make)
            for member in (*self._shares, *others):
                nursery.start_soon(member.run)
            while not self.is_over.is_set():
                await trio.sleep(0.2)
            for each in others:
                each.is_over = True
            await self._drain(make)
            nursery.cancel_scope.cancel()

    def _client(self, network: TcpNetwork, nursery: trio.Nursery, name: str) -> Connections:
        return Connections(network, nursery, 0, name, tuple(self._brokers))  # type: ignore[arg-type]

    def _share_member(self, make: Callable[[str], Connections], number: int) -> SimShareMember:
        clients = (make(f"share member {number}"), make(f"share member {number}, fetching"))
        return SimShareMember(*clients, self._record, SHARE, self._topic, RECORDS_MAX)

    def _others(self, make: Callable[[str], Connections]) -> list[SimConsumerMember | SimClassicMember]:
        kinds: dict[str, Any] = {CONSUMER: SimConsumerMember, CLASSIC: SimClassicMember}
        return [
            of_kind(make(f"{kind} member {number}"), self._record, f"{kind} group", self._topic, self._partitions)
            for kind, of_kind in kinds.items()
            if kind in self.kinds
            for number in range(self._count)
        ]

    async def _drain(self, make: Callable[[str], Connections]) -> None:
        """Let the share group get to the end of the topic."""
        if not self._shares:
            return
        for member in self._shares:
            member.is_draining = True
        administrator = make("administrator")
        accepted = self.accepted
        with trio.fail_after(NO_PROGRESS_S) as patience:
            while not await is_drained(administrator, SHARE, self._topic, range(self._partitions)):
                if self.accepted > accepted:
                    accepted = self.accepted
                    patience.deadline = trio.current_time() + NO_PROGRESS_S
                await trio.sleep(0.5)


class RecordedMember(Client):
    """A consumer of librdkafka in a group of KIP-848, which leaves and comes back.

    It tells no epochs, and revokes when it is told to. That it is told so may be as old as its session.
    """

    GROUP = "group of librdkafka"

    def __init__(self, name: str, record: Recorder, bootstrap: str, topic: str) -> None:
        super().__init__(name, record)
        self._random = random.Random(name)
        self._servers, self._topic = bootstrap, topic
        self._lives = 0
        self._member = ""
        self._owned: set[int] = set()
        self.owned = 0

    def turn(self) -> None:
        self._member = f"{self.name}/{self._lives}"
        self._lives += 1
        settings = {"bootstrap.servers": self._servers, "group.id": self.GROUP, "group.protocol": "consumer"}
        consumer = Consumer(QUICK | settings | {"enable.auto.commit": False, "auto.offset.reset": "earliest"})
        consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        end = time.monotonic() + self._random.expovariate(1 / LIFE_S)
        with contextlib.closing(consumer):
            while not self.is_over.is_set() and time.monotonic() < end:
                consumer.consume(500, timeout=0.1)
        self._disown(set(self._owned), was_member=0.0)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._owned.add(each.partition)
            self.owned += 1
            self.add(Owned, self.GROUP, self._member, -1, self._topic, each.partition)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        was_member = time.monotonic() - SESSION_TIMEOUT_MS / 1000
        self._disown({each.partition for each in partitions}, was_member)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._disown({each.partition for each in partitions}, was_member=0.0)

    def _disown(self, partitions: set[int], was_member: float) -> None:
        for each in sorted(partitions & self._owned):
            self.add(Disowned, self.GROUP, self._member, self._topic, each, was_member)
        self._owned -= partitions


def brokers_of(bootstrap: str) -> dict[int, Address]:
    """The addresses of all brokers that a cluster knows."""
    told = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).brokers
    return {each.id: (each.host, each.port) for each in told.values()}
