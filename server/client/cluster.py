"""The brokers of one cluster, as a command sees them: it knows one or some, and they tell of the others.

Connections are made when they are needed and kept for the command's life. What a broker refuses only for the moment, such as
while a leader is elected, is asked again (`patiently`) for as long as one answer may take.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.server.client.connection import (
    ANSWER_TIMEOUT_S,
    PATIENCE_S,
    Address,
    BrokerConnection,
    connect,
)
from ottla.server.client.escaping import say
from ottla.server.client.failures import AskingFailed, HungUp, WrongUse
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from ottla.server.client.security import Security
    from ottla.wire.messages.metadata import MetadataResponseTopic
    from ottla.wire.schema import Message

PORT = 9092
RETRY_S = 0.1
CREATION_S = 5.0
"""In which a broker that creates topics by itself has created one."""

_NAMES_MAX_VERSION = (
    12  # of Metadata: from 13 on there is an error for all, which only says that the cluster is another one
)

T = TypeVar("T")


class NotNow(Exception):
    """A broker refused something only for the moment; the text is why."""


def parse_bootstrap(text: str) -> list[Address]:
    """HOST:PORT,HOST:PORT ...; the port may be left out. WrongUse."""
    found = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        # kcat and Kafka's own settings may name the protocol before the host.
        place = each.rpartition("://")[2]
        host, separator, port = place.rpartition(":")
        if not separator or place.endswith("]") or place.count(":") > 1 and not place.startswith("["):
            host, port = place, str(PORT)
        host = host.strip("[]")
        if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port[:6]) < 65536:
            raise WrongUse(f"-b {text}: {each!r} is not HOST:PORT")
        found.append(Address(host, int(port)))
    if not found:
        raise WrongUse("-b: no broker is named; give HOST:PORT")
    return found


def failed(what: str, code: int, message: str | None = None) -> AskingFailed:
    """The failure that an error code stands for, in the broker's words where it has some."""
    error = ErrorCode.of(code)
    return AskingFailed(f"{what}: {message or error.message} ({error.name})")


def only(answered: Sequence[T], what: str) -> T:
    """The one result of a request that asked for one thing. AskingFailed if the broker answers something else."""
    if len(answered) != 1:
        raise AskingFailed(
            f"{what}: the broker gives {len(answered)} answers, where one is wanted; is it a Kafka broker?"
        )
    return answered[0]


class Cluster:
    """Made by `Cluster.reached`; `close` it at the end."""

    def __init__(self, first: BrokerConnection, security: Security, timeout_s: float) -> None:
        self.first = first
        """The connection to the broker that was found first."""

        self._security = security
        self._timeout_s = timeout_s
        self._addresses: dict[int, Address] = {}
        self._connections: dict[int, BrokerConnection] = {}

    @classmethod
    def reached(cls, servers: Sequence[Address], security: Security, timeout_s: float) -> Cluster:
        """Reach any of these brokers and have it tell of the others; AskingFailed after `timeout_s` at the latest."""
        deadline_s = time.monotonic() + timeout_s
        failure: AskingFailed | None = None
        for index, address in enumerate(servers):
            # Each of those that are left gets its share of the time, so that one that hangs does not take it all.
            share_s = max(0.1, (deadline_s - time.monotonic()) / (len(servers) - index))
            end_s = time.monotonic() + share_s
            try:
                cluster = cls(connect(address, security, share_s), security, timeout_s)
                cluster._learn(cluster._metadata_of(cluster.first, (), False, max(0.1, end_s - time.monotonic())))
                return cluster
            except AskingFailed as error:
                failure = failure or error
        assert failure is not None
        raise failure

    def close(self) -> None:
        for each in {self.first, *self._connections.values()}:
            each.close()

    # --- whom to ask

    def metadata(self, topics: Iterable[str] | None, *, creates: bool = False) -> MetadataResponse:
        """What the cluster says of these topics (None: of all)."""
        answer = self.ask_any(lambda broker: self._metadata_of(broker, topics, creates, ANSWER_TIMEOUT_S))
        self._learn(answer)
        return answer

    def topics(self, names: Sequence[str], *, creates: bool = False) -> list[MetadataResponseTopic]:
        """These topics, each with its partitions in their order. AskingFailed if one is not there.

        `creates`: the broker may create them, if it does so by itself.
        """

        def look() -> list[MetadataResponseTopic]:
            found = {each.name: each for each in self.metadata(names, creates=creates).topics}
            for name in names:
                code = found[name].error_code if name in found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not creates:
                    raise AskingFailed(f"topic {name} does not exist: `ottla topics create {name}` makes it")
                self.check(f"topic {name}", code)
            return [found[name] for name in names]

        topics = self.patiently(look, CREATION_S if creates else ANSWER_TIMEOUT_S)
        for topic in topics:
            topic.partitions.sort(key=lambda each: each.partition_index)
        return topics

    def broker(self, node_id: int) -> BrokerConnection:
        """The connection for questions to a broker that the cluster has told of."""
        known = self._connections.get(node_id)
        if known is None:
            is_first = self._addresses.get(node_id) == self.first.address and not self.first.is_closed
            known = self._connections[node_id] = self.first if is_first else self.connected(node_id)
        return known

    def connected(self, node_id: int) -> BrokerConnection:
        """A new connection to such a broker, which is the caller's own: to have requests under way while others ask."""
        if node_id not in self._addresses:
            raise NotNow(f"broker {node_id} is not there")
        address = self._addresses[node_id]
        try:
            return connect(address, self._security, self._timeout_s)
        except AskingFailed as error:
            raise HungUp(
                f"the cluster says that broker {node_id} is at {address}, and: {error}"
                " (advertised.listeners of that broker says how clients reach it)"
            ) from None

    def brokers(self) -> list[int]:
        """The ids of all brokers that the cluster has told of."""
        return sorted(self._addresses)

    def controller(self) -> BrokerConnection:
        """The broker to ask for changes; with KRaft any broker passes them on."""
        controller_id = self.metadata(()).controller_id
        if controller_id < 0:
            raise NotNow("there is no controller")
        return self.broker(controller_id)

    def coordinator(self, group: str) -> BrokerConnection:
        """The coordinator of a group."""

        def find() -> BrokerConnection:
            request = FindCoordinatorRequest(key=group, coordinator_keys=[group])
            answer = self.ask_any(lambda broker: broker.ask(request))
            found = answer.coordinators[0] if answer.coordinators else answer
            self.check(f"the coordinator of group {group}", found.error_code, found.error_message)
            self._addresses[found.node_id] = Address(found.host, found.port)
            return self.broker(found.node_id)

        return self.patiently(find)

    # --- how to ask

    def ask_any(self, question: Callable[[BrokerConnection], T]) -> T:
        """Ask the broker that was found first, or another one when that one is gone."""
        failure: HungUp | NotNow | None = None
        if not self.first.is_closed:
            try:
                return question(self.first)
            except HungUp as error:
                self.drop(self.first)
                failure = error
        for node_id in random.sample(self.brokers(), len(self._addresses)):
            try:
                self.first = self.broker(node_id)
                return question(self.first)
            except HungUp as error:
                self.drop(self.first)
                failure = failure or error
            except NotNow as error:
                failure = failure or error
        raise HungUp(str(failure or "no broker is known any more"))

    def drop(self, connection: BrokerConnection) -> None:
        """A connection is of no more use; the next question to that broker makes another one."""
        connection.close()
        for node_id in [each for each, known in self._connections.items() if known is connection]:
            del self._connections[node_id]

    def check(self, what: str, code: int, message: str | None = None) -> None:
        """Nothing if there was no error; NotNow if it may be gone the next time, else AskingFailed."""
        if not code:
            return
        if ErrorCode.of(code).retriable:
            raise NotNow(str(failed(what, code, message)))
        raise failed(what, code, message)

    def patiently(self, question: Callable[[], T], timeout_s: float = ANSWER_TIMEOUT_S) -> T:
        """Ask until the answer is not NotNow. AskingFailed, with the last reason, when that takes too long."""
        began_s = time.monotonic()
        is_told = False
        while True:
            try:
                return question()
            except NotNow as error:
                waited_s = time.monotonic() - began_s
                if waited_s > timeout_s:
                    raise AskingFailed(f"{error}; given up after {timeout_s:g} s") from None
                if waited_s > PATIENCE_S and not is_told:
                    is_told = True
                    say(f"still trying, {error}")
                time.sleep(RETRY_S)

    def change(self, request: Message) -> Any:
        """Ask the controller. Whoever has just ceased to be one says NOT_CONTROLLER in each of its results: see `check`."""
        return self.patiently(lambda: self.controller().ask(request))

    # --- parts

    def _metadata_of(
        self, broker: BrokerConnection, topics: Iterable[str] | None, creates: bool, timeout_s: float
    ) -> MetadataResponse:
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=creates)
        answer: MetadataResponse = broker.ask(request, at_most=_NAMES_MAX_VERSION, timeout_s=timeout_s)
        return answer

    def _learn(self, answer: MetadataResponse) -> None:
        # A broker that starts tells of nobody yet; what was known before may still help.
        if answer.brokers:
            self._addresses = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
