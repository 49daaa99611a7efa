"""Client of one cluster: finds its brokers, leaders and coordinators, and the offsets of partitions (ListOffsets).

The first broker that answers names the others. A connection is made when it is needed and kept for the command's life. A retriable
error, such as a missing leader during an election, is retried (`patiently`) for as long as one answer may take.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.server.cli.client.connection import (
    ANSWER_TIMEOUT_S,
    CLIENT_ID,
    PATIENCE_S,
    Address,
    BrokerConnection,
    connect,
)
from ottla.server.cli.client.output import ConnectionLost, RequestFailed, UsageError, ids, say
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.schema import VersionRange

if TYPE_CHECKING:
    from ottla.server.cli.client.security import Security
    from ottla.wire.messages.metadata import MetadataResponseTopic
    from ottla.wire.schema import Message

PORT = 9092
RETRY_S, PAUSE_S = 0.1, 0.2
CREATION_S = 5.0
"""Time for a broker to create a topic by itself, in seconds."""

_NAMES_MAX_VERSION = (
    12  # of Metadata: from 13 on there is an error for all, which only says that the cluster is another one
)

T = TypeVar("T")


class TemporaryFailure(Exception):
    """Refusal of a request with a retriable error; the text gives the reason."""


def parse_bootstrap(text: str) -> list[Address]:
    """Parse HOST:PORT,HOST:PORT and so on. The default port is Kafka's. Raises UsageError."""
    found = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        # kcat and Kafka's own settings may name the protocol before the host.
        place = each.rpartition("://")[2]
        host, separator, port = place.rpartition(":")
        if not separator or place.endswith("]") or place.count(":") > 1 and not place.startswith("["):
            host, port = place, str(PORT)
        host = host.strip("[]")
        if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port[:6]) < 65536:
            raise UsageError(f"-b {text}: {each!r} is not HOST:PORT")
        found.append(Address(host, int(port)))
    if not found:
        raise UsageError("-b: no broker is named; give HOST:PORT")
    return found


def failed(what: str, code: int, message: str | None = None) -> RequestFailed:
    """Make the exception for an error code. `what`: subject of the request. `message` None: Kafka's text."""
    error = ErrorCode.of(code)
    return RequestFailed(f"{what}: {message or error.message} ({error.name})")


def only(answered: Sequence[T], what: str) -> T:
    """Return the only result in a response. Raises RequestFailed if `answered` has none or several."""
    if len(answered) != 1:
        raise RequestFailed(
            f"{what}: the broker gives {len(answered)} answers, where one is wanted; is it a Kafka broker?"
        )
    return answered[0]


def check_answered(what: str, wanted: Iterable[T], answered: Iterable[T]) -> None:
    """Raise RequestFailed if a response lacks the result of something that was asked for: a name or a partition."""
    if missing := set(wanted).difference(answered):
        first = next(iter(missing))
        name = f"{first[0]}-{first[1]}" if isinstance(first, tuple) else first
        raise RequestFailed(f"{what}: the broker does not say what became of {name}; is it a Kafka broker?")


NEAREST_AMONG_MAX = 20_000
"""Limit of names that are compared with a misspelt one: each takes some 10 us."""


def nearest(name: str, known: Sequence[str]) -> str:
    """Return "did you mean NAME? " with the name in `known` nearest to `name`; empty if none is near."""
    from ottla.server.config.broker_config import nearest_name  # only for a message that ends the process

    found = nearest_name(name, known[:NEAREST_AMONG_MAX])
    return f"did you mean {found}? " if found else ""


class Cluster:
    """Client of a cluster. Create it by `Cluster.reached` and call `close` at the end."""

    def __init__(
        self, first: BrokerConnection, security: Security, timeout_s: float, client_id: str = CLIENT_ID
    ) -> None:
        self.first = first
        """The connection to the broker that was found first."""

        self._security, self._timeout_s, self._client_id = security, timeout_s, client_id
        self._addresses: dict[int, Address] = {}
        self._connections: dict[int, BrokerConnection] = {}

    @classmethod
    def reached(
        cls, servers: Sequence[Address], security: Security, timeout_s: float, client_id: str = CLIENT_ID
    ) -> Cluster:
        """Connect to the first server that answers, and read the metadata. Raises RequestFailed after `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        failure: RequestFailed | None = None
        for index, address in enumerate(servers):
            # Each of those that are left gets its share of the time, so that one that hangs does not take it all.
            share_s = max(0.1, (deadline_s - time.monotonic()) / (len(servers) - index))
            end_s = time.monotonic() + share_s
            try:
                cluster = cls(connect(address, security, share_s, client_id), security, timeout_s, client_id)
                cluster._learn(cluster._metadata_of(cluster.first, (), False, max(0.1, end_s - time.monotonic())))
                return cluster
            except RequestFailed as error:
                failure = failure or error
        assert failure is not None
        raise failure

    def close(self) -> None:
        for each in {self.first, *self._connections.values()}:
            each.close()

    # --- whom to ask

    def metadata(self, topics: Iterable[str] | None, *, creates: bool = False) -> MetadataResponse:
        """Request metadata of `topics`; None: of all topics.

        `creates`: brokers create missing topics if auto.create.topics.enable.
        """
        answer = self.ask_any(lambda broker: self._metadata_of(broker, topics, creates, ANSWER_TIMEOUT_S))
        self._learn(answer)
        return answer

    def topics(self, names: Sequence[str], *, creates: bool = False) -> list[MetadataResponseTopic]:
        """Request sorted metadata of topics. `creates`: as in `metadata`. Raises RequestFailed if one is missing."""

        end_s = time.monotonic() + (CREATION_S if creates else 0)

        def look() -> list[MetadataResponseTopic]:
            found = {each.name: each for each in self.metadata(names, creates=creates).topics}
            for name in names:
                code = found[name].error_code if name in found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and time.monotonic() >= end_s:
                    raise self._missing(name)
                self.check(f"topic {name}", code)
            return [found[name] for name in names]

        topics = self.patiently(look)
        for topic in topics:
            topic.partitions.sort(key=lambda each: each.partition_index)
        return topics

    def _missing(self, name: str) -> RequestFailed:
        """Return the exception for a topic that does not exist; it suggests the topic with the nearest name."""
        return RequestFailed(
            f"topic {name} does not exist: {self._nearest_topic(name)}`ottla topics create {name}` makes it"
        )

    def _nearest_topic(self, name: str) -> str:
        try:
            known = [each.name or "" for each in self.metadata(None).topics if not each.is_internal]
        except (RequestFailed, TemporaryFailure):
            known = []
        return nearest(name, known)

    def note_new_topic(self, name: str) -> None:
        """Say on stderr if a topic does not exist and has nearly the name of one that does. Raises RequestFailed."""
        found = self.metadata([name]).topics
        is_new = any(each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in found)
        if is_new and (hint := self._nearest_topic(name)):
            say(f"topic {name} does not exist yet: {hint}")

    def broker(self, node_id: int) -> BrokerConnection:
        """Return the shared connection to a broker that the metadata contains."""
        known = self._connections.get(node_id)
        if known is None:
            is_first = self._addresses.get(node_id) == self.first.address and not self.first.is_closed
            known = self._connections[node_id] = self.first if is_first else self.connected(node_id)
        return known

    def connected(self, node_id: int) -> BrokerConnection:
        """Open a separate connection to a broker, for a caller that keeps requests in flight."""
        if node_id not in self._addresses:
            raise TemporaryFailure(f"broker {node_id} is not there")
        address = self._addresses[node_id]
        try:
            return connect(address, self._security, self._timeout_s, self._client_id)
        except RequestFailed as error:
            raise ConnectionLost(
                f"the cluster says that broker {node_id} is at {address}, and: {error}"
                " (advertised.listeners of that broker says how clients reach it)"
            ) from None

    def brokers(self) -> list[int]:
        """Return the ids of all brokers in the metadata, sorted."""
        return sorted(self._addresses)

    def check_broker(self, node_id: int) -> None:
        """Raise RequestFailed if the latest metadata has no broker with this id."""
        if node_id not in (known := self.brokers()):
            raise RequestFailed(f"there is no broker {node_id}; the cluster has {ids(known)}")

    def controller(self) -> BrokerConnection:
        """Return the connection to the controller; in a KRaft cluster, to any broker: it forwards changes."""
        controller_id = self.metadata(()).controller_id
        if controller_id < 0:
            raise TemporaryFailure("there is no controller")
        return self.broker(controller_id)

    def coordinator(
        self, key: str, *, of_transaction: bool = False, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> BrokerConnection:
        """Find the coordinator of a group, or of a transactional id; return its connection. `timeout_s`: for retries."""
        request = FindCoordinatorRequest(key=key, key_type=int(of_transaction), coordinator_keys=[key])

        def find() -> BrokerConnection:
            answer = self.ask_any(lambda broker: broker.ask(request))
            found = answer.coordinators[0] if answer.coordinators else answer
            what = "transactional id" if of_transaction else "group"
            self.check(f"the coordinator of {what} {key}", found.error_code, found.error_message)
            self._addresses[found.node_id] = Address(found.host, found.port)
            return self.broker(found.node_id)

        return self.patiently(find, timeout_s)

    # --- how to ask

    def ask_any(self, question: Callable[[BrokerConnection], T]) -> T:
        """Call `question` with the bootstrap broker, or with another broker if the bootstrap broker is gone."""
        failure: ConnectionLost | TemporaryFailure | None = None
        if not self.first.is_closed:
            try:
                return question(self.first)
            except ConnectionLost as error:
                self.drop(self.first)
                failure = error
        for node_id in random.sample(self.brokers(), len(self._addresses)):
            try:
                self.first = self.broker(node_id)
                return question(self.first)
            except ConnectionLost as error:
                self.drop(self.first)
                failure = failure or error
            except TemporaryFailure as error:
                failure = failure or error
        raise ConnectionLost(str(failure or "no broker is known any more"))

    def drop(self, connection: BrokerConnection) -> None:
        """Close a broken connection; the next request to that broker opens a new one."""
        connection.close()
        for node_id in [each for each, known in self._connections.items() if known is connection]:
            del self._connections[node_id]

    def check(self, what: str, code: int, message: str | None = None) -> None:
        """Raise TemporaryFailure if `code` is retriable, RequestFailed for any other error; return if `code` is 0."""
        if not code:
            return
        if ErrorCode.of(code).retriable:
            raise TemporaryFailure(str(failed(what, code, message)))
        raise failed(what, code, message)

    def patiently(self, question: Callable[[], T], timeout_s: float = ANSWER_TIMEOUT_S) -> T:
        """Call `question` and return its answer. Retry on TemporaryFailure; after `timeout_s` raise RequestFailed.

        RequestFailed has the reason of the last failure.
        """
        began_s = time.monotonic()
        is_said = False
        while True:
            try:
                return question()
            except TemporaryFailure as error:
                waited_s = time.monotonic() - began_s
                if waited_s > timeout_s:
                    raise RequestFailed(f"{error}; given up after {timeout_s:g} s") from None
                if waited_s > PATIENCE_S and not is_said:
                    is_said = True
                    say(f"still trying, {error}")
                time.sleep(RETRY_S)

    def change(self, request: Message) -> Any:
        """Send a change to the controller; return the response. Let `check` see its results, such as NOT_CONTROLLER."""
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


LATEST, EARLIEST = -1, -2
READ_COMMITTED = 1
LIST_OFFSETS_MAX_VERSION = 9  # later ones only add times that are not asked for here

Partition = tuple[str, int]
"""A topic's name and the number of one of its partitions."""


def offsets_at(
    cluster: Cluster, partitions: Mapping[str, Sequence[int]], timestamp: int, *, isolation: int = 0
) -> dict[Partition, int]:
    """Return each partition's offset at `timestamp`: ms, EARLIEST or LATEST; -1 if all records are older.

    With `isolation` READ_COMMITTED, LATEST is the last stable offset.
    """
    found: dict[Partition, int] = {}

    def ask() -> None:
        left = {
            topic: [each for each in numbers if (topic, each) not in found] for topic, numbers in partitions.items()
        }
        left = {topic: numbers for topic, numbers in left.items() if numbers}
        for leader, places in leaders_of(cluster, left).items() if left else ():
            found.update(_offsets_from(cluster, leader, places, timestamp, isolation))

    cluster.patiently(ask)
    return found


class Patience:
    """Time for which a command goes on in spite of errors: ANSWER_TIMEOUT_S from the first error since `renew`."""

    def __init__(self) -> None:
        self._failing_since_s: float | None = None

    def renew(self) -> None:
        """Note that requests succeed again."""
        self._failing_since_s = None

    def bear(self, error: Exception) -> None:
        """Pause after an error, before the caller tries again; print the first. Raises RequestFailed at the end."""
        now_s = time.monotonic()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
            say(f"{error}; trying again")
        elif now_s - self._failing_since_s > ANSWER_TIMEOUT_S:
            raise RequestFailed(f"{error}; given up after {ANSWER_TIMEOUT_S:g} s") from None
        time.sleep(PAUSE_S)


def offsets_since(
    cluster: Cluster, partitions: Mapping[str, Sequence[int]], timestamp_ms: int, *, isolation: int = 0
) -> dict[Partition, int]:
    """Return, for each partition, the first offset at or after `timestamp_ms`; if there is none, the current end."""
    found = offsets_at(cluster, partitions, timestamp_ms)
    late = by_topic([place for place, offset in found.items() if offset < 0])
    return found | (offsets_at(cluster, late, LATEST, isolation=isolation) if late else {})


def by_topic(partitions: Sequence[Partition]) -> dict[str, list[int]]:
    """Return the partitions' numbers by topic."""
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found


def leaders_of(cluster: Cluster, partitions: Mapping[str, Sequence[int]]) -> dict[int, dict[str, list[int]]]:
    """Group partitions by leader (broker id), then by topic. Raises TemporaryFailure if a partition has no leader."""
    leaders: dict[int, dict[str, list[int]]] = {}
    found = {}
    for topic in cluster.metadata(partitions).topics:
        if topic.name in partitions:
            cluster.check(f"topic {topic.name}", topic.error_code)
            found.update({(topic.name, each.partition_index): each.leader_id for each in topic.partitions})
    for name, number in ((topic, number) for topic, numbers in partitions.items() for number in numbers):
        leader = found.get((name, number), -1)
        if leader < 0:
            raise TemporaryFailure(f"partition {name}-{number} has no leader")
        leaders.setdefault(leader, {}).setdefault(name, []).append(number)
    return leaders


def leader_of_each(cluster: Cluster, partitions: Sequence[Partition]) -> dict[Partition, int]:
    """Return the leader (broker id) of each partition. Raises TemporaryFailure if one has no leader."""
    return {
        (topic, number): leader
        for leader, topics in leaders_of(cluster, by_topic(partitions)).items()
        for topic, numbers in topics.items()
        for number in numbers
    }


def _offsets_from(
    cluster: Cluster, leader: int, places: Mapping[str, Sequence[int]], timestamp: int, isolation: int
) -> dict[Partition, int]:
    times = {(topic, number): timestamp for topic, numbers in places.items() for number in numbers}
    answer = cluster.broker(leader).ask(list_offsets_request(times, isolation), at_most=LIST_OFFSETS_MAX_VERSION)
    answered = {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}
    found = {}
    for place in times:
        if place not in answered:
            raise TemporaryFailure(f"broker {leader} does not tell the offsets of {place[0]}-{place[1]}")
        cluster.check(f"the offsets of {place[0]}-{place[1]}", answered[place].error_code)
        found[place] = answered[place].offset
    return found


def list_offsets_request(times: Mapping[Partition, int], isolation: int) -> ListOffsetsRequest:
    """Return a request for each partition's offset at its time in `times`: ms, EARLIEST or LATEST."""
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[ListOffsetsPartition(partition_index=each, timestamp=times[topic, each]) for each in numbers],
        )
        for topic, numbers in by_topic(list(times)).items()
    ]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)


# No request tells the release. Each has a version of a request that the one before did not serve (Kafka's message declarations).
_SINCE = (
    ("4.4", 93, 0),  # StreamsGroupTopologyDescriptionUpdate
    ("4.3", 35, 5),  # DescribeLogDirs
    ("4.2", 2, 11),  # ListOffsets
    ("4.1", 0, 13),  # Produce
    ("4.0", 2, 10),  # ListOffsets
    ("3.9", 1, 17),  # Fetch
    ("3.8", 0, 11),  # Produce
    ("3.7", 1, 16),  # Fetch
    ("3.6", 24, 4),  # AddPartitionsToTxn
    ("3.5", 1, 15),  # Fetch
    ("3.3", 29, 3),  # DescribeAcls
    ("3.2", 11, 9),  # JoinGroup
    ("3.1", 1, 13),  # Fetch
    ("3.0", 2, 7),  # ListOffsets
    ("2.8", 0, 9),  # Produce
    ("2.7", 1, 12),  # Fetch
)


def release_of(versions: Mapping[int, VersionRange]) -> str:
    """Return the newest release of Apache Kafka whose requests the broker supports, such as "4.4"."""
    for release, api_key, version in _SINCE:
        if api_key in versions and version in versions[api_key]:
            return release
    return "2.6 or older"


def live_brokers(cluster: Cluster) -> list[int]:
    """Return the ids of the live brokers."""
    found = sorted(each.node_id for each in cluster.metadata(()).brokers)
    if not found:
        raise RequestFailed("the broker knows of no broker; it may just be starting")
    return found
