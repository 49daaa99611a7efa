"""A conversation with a broker, written down so that two brokers' sides of it can be laid beside each other.

A scenario is a function that is given a `Talk` and asks questions in terms of Ottla's wire declarations:

    @scenario(ListOffsetsRequest)
    def special_timestamps(talk):
        topic = talk.topic()
        talk.ask(list_offsets(topic, timestamp=-1))

It is played once for every version of its subject that Ottla serves (`talk.version`, which `ask` uses for the subject's
requests; others go out in the newest version that the telling's release of Kafka knows), against Ottla and against
Apache Kafka: 4 where it speaks that version, 3.9 where only the older one does. What was answered becomes plain data
in `talk.steps`. Whatever must differ between two runs is replaced there: names and member ids of this run, uuids, producer and session ids by the order in which they
appear, the time of day, the port. All else is compared.
"""

import secrets
import select
from collections.abc import Callable
from typing import Any, NamedTuple

from compat_tests.differential.logins import ADMIN, SECURED, log_in
from compat_tests.differential.plain import Plain
from compat_tests.support.brokers import wait_until
from compat_tests.support.raw import receive_frame
from compat_tests.support.wire_client import WireClient

from ottla.server.dispatch.apis import APIS
from ottla.server.dispatch.dispatch import response_class_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offsets import OffsetFetchRequest
from ottla.wire.schema import ZERO_UUID, Message, VersionRange

TIMEOUT_S = 60
CLOSED = "the broker closes the connection"
COORDINATOR_IS_COMING = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class Topic(NamedTuple):
    name: str
    id: bytes


# What Apache Kafka 4 no longer parses and 3.9 still does, of the versions that Ottla serves (KIP-896).
ONLY_WITH_SETTING = {f"{api.name}Request": api.older for api in APIS if api.older is not None}
ONLY_IN_3 = {"ProduceRequest": VersionRange.parse("0-2"), "FetchRequest": VersionRange.parse("0-3")} | ONLY_WITH_SETTING
OLDER = {"older.api.versions.enable": "true"}
"""Settings with which Ottla serves the older versions in `APIS`. Kafka ignores a setting that it does not know."""

# The newest versions that 3.9 knows, where 4 knows newer ones.
NEWEST_IN_3 = {
    "ProduceRequest": 11,
    "FetchRequest": 17,
    "ListOffsetsRequest": 9,
    "MetadataRequest": 12,
    "OffsetCommitRequest": 9,
    "OffsetFetchRequest": 9,
    "DescribeGroupsRequest": 5,
    "DescribeLogDirsRequest": 4,
    "DeleteGroupsRequest": 2,
    "ApiVersionsRequest": 4,
    "DescribeClusterRequest": 1,
    "WriteTxnMarkersRequest": 1,
    "ListTransactionsRequest": 1,
}


def release_for(subject: type[Message], version: int) -> str:
    """The release of Apache Kafka that speaks this version: "kafka_4" or "kafka_3"."""
    old = ONLY_IN_3.get(subject.__name__)
    return "kafka_3" if old is not None and version in old else "kafka_4"


def served_versions(request: type[Message], *, has_older: bool = False) -> VersionRange:
    """Return the versions that Ottla serves; with `has_older` those that need the setting `OLDER`, too."""
    older = ONLY_WITH_SETTING.get(request.__name__)
    return request.versions if has_older or older is None else VersionRange(older.last + 1, request.versions.last)


def newest(request: type[Message], release: str = "kafka_4") -> int:
    """The newest version that both Ottla and that release know."""
    last = request.versions.last
    return min(last, NEWEST_IN_3.get(request.__name__, last)) if release == "kafka_3" else last


class Link:
    """One client's connection, whose name is the client id. Requests may be pipelined; answers are read in order."""

    def __init__(self, talk: "Talk", name: str) -> None:
        self.talk = talk
        self.name = name
        self.client = WireClient(talk.address, client_id=name, timeout_s=TIMEOUT_S)
        if talk.secured:
            log_in(self.client, talk.users.get(name, ADMIN))
        self.socket = self.client.socket
        self.sent: list[tuple[str, type[Message], int]] = []

    def send(
        self, request: Message, version: int | None = None, *, label: str | None = None, answered: bool = True
    ) -> None:
        """`answered` is False where the protocol has no answer (Produce with acks=0)."""
        version = self.talk.version_of(type(request)) if version is None else version
        self.client.send(request, version, answered=answered)
        if answered:
            label = label or type(request).__name__.removesuffix("Request")
            self.sent.append((label, response_class_of(type(request)), version))

    def send_bytes(self, data: bytes) -> None:
        """Anything at all. For well-formed frames that no declaration can spell, see `receive_bytes`."""
        self.socket.sendall(data)

    def receive_bytes(self) -> bytes | None:
        """The next frame without its length, of a link on which only `send_bytes` was used; None: closed."""
        return receive_frame(self.socket)

    def answer(self) -> Any:
        """The next answer, not written down; None if the broker closes the connection instead."""
        return self.client.receive()

    def receive(self, arrange: Callable[[Any], Any] | None = None) -> Any:
        """The next answer, written down under its request's label. `arrange` puts in order what Kafka leaves open."""
        label, answer_class, version = self.sent.pop(0)
        response = self.answer()
        if response is not None and arrange is not None:
            arrange(response)
        self.talk.note(f"{self.name} {label}", CLOSED if response is None else response, answer_class, version)
        return response

    def stays_quiet(self, seconds: float = 0.3) -> None:
        """Writes down whether anything arrives within this time."""
        quiet = not select.select([self.socket], [], [], seconds)[0]
        self.talk.note(f"{self.name} hears nothing yet", quiet)

    def close(self) -> None:
        self.client.close()


class Talk:
    """One telling of a scenario to one broker."""

    def __init__(
        self, address: tuple[str, int], subject: type[Message], version: int, *, secured: bool = False
    ) -> None:
        """`secured`: whether one has to log in, as `logins.SECURED` has it."""
        self.address = address
        self.secured = secured
        self.users: dict[str, str] = {}
        """Who logs in on the link of a name, if it is not the administrator."""

        self.subject = subject
        self.version = version
        self.release = release_for(subject, version)
        self.steps: list[tuple[str, Any]] = []
        self.run = secrets.token_hex(4)
        self.topics: dict[bytes, str] = {}
        """The names of the topics that were made, by their ids."""

        self._plain = Plain(self.run, address[1])
        self._links: dict[str, Link] = {}

    def version_of(self, request: type[Message]) -> int:
        return self.version if request is self.subject else newest(request, self.release)

    def link(self, name: str = "main") -> Link:
        """The connection of that name, made when it is first asked for."""
        if name not in self._links:
            self._links[name] = Link(self, name)
        return self._links[name]

    def hang_up(self, name: str) -> None:
        """Closes the connection of that name, unless the broker has."""
        if (link := self._links.pop(name, None)) is not None:
            link.close()

    def close(self) -> None:
        for link in self._links.values():
            link.close()

    # --- asking

    def ask(
        self,
        request: Message,
        version: int | None = None,
        *,
        of: str = "main",
        label: str | None = None,
        arrange: Callable[[Any], Any] | None = None,
    ) -> Any:
        """One request and its answer, written down. A link that the broker closed is replaced by a new one."""
        link = self.link(of)
        link.send(request, version, label=label)
        answer = link.receive(arrange)
        if answer is None:
            self._links.pop(of).close()
        return answer

    def do(self, request: Message, version: int | None = None, *, of: str = "stage hand") -> Any:
        """The same without a word in the transcript: setting the scene, on a link of its own."""
        link = self.link(of)
        link.send(request, newest(type(request), self.release) if version is None else version)
        link.sent.pop()
        return link.answer()

    def until(self, request: Message, happened: Callable[[Any], bool], version: int | None = None) -> Any:
        """Asks again and again, unrecorded, until `happened(answer)`; returns that answer."""
        answers: list[Any] = []

        def probe() -> bool:
            answers[:] = [self.do(request, version)]
            return happened(answers[0])

        wait_until(probe, f"{type(request).__name__} is answered as awaited")
        return answers[0]

    def note(self, label: str, data: Any, message: type[Message] | None = None, version: int = 0) -> None:
        self.steps.append((label, self._plain.of(data, message, version)))

    def note_records(self, label: str, data: bytes) -> None:
        """The batches of a fetched record set, one a line."""
        for batch in self._plain.records(data):
            self.steps.append((label, batch))

    # --- the scene

    def name(self, kind: str) -> str:
        """A name that no other telling uses; the transcript shows it as `kind`."""
        return f"{kind}-{self.run}"

    def topic(self, kind: str = "topic", partitions: int = 1, **configs: str) -> Topic:
        """A new topic whose partitions have leaders. `retention_ms="1000"` sets retention.ms; records are kept for ever."""
        given = {"retention.ms": "-1"} | {name.replace("_", "."): value for name, value in configs.items()}
        listed = [CreatableTopicConfig(name=name, value=value) for name, value in given.items()]
        new = CreatableTopic(
            name=self.name(kind), num_partitions=partitions, replication_factor=1, assignments=[], configs=listed
        )
        request = CreateTopicsRequest(topics=[new], timeout_ms=30_000)
        # Apache Kafka 3.9 takes connections before its controller knows of its broker.
        answer = self.until(request, lambda answer: answer.topics[0].error_code != ErrorCode.INVALID_REPLICATION_FACTOR)
        assert answer.topics[0].error_code == 0, answer
        return self.known_topic(kind, partitions)

    def known_topic(self, kind: str, partitions: int = 1) -> Topic:
        """Waits until a topic that somebody creates is served."""
        name = self.name(kind)
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=ZERO_UUID, name=name)], allow_auto_topic_creation=False
        )

        def is_led(answer: Any) -> bool:
            found = answer.topics[0].partitions
            return len(found) >= partitions and all(not each.error_code and each.leader_id >= 0 for each in found)

        topic = self.until(request, is_led).topics[0]
        asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        ends = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked)])
        self.until(ends, lambda answer: not any(each.error_code for each in answer.topics[0].partitions))
        self.topics[topic.topic_id] = name
        return Topic(name, topic.topic_id)

    def group(self, kind: str = "group") -> str:
        """The name of a new group, whose coordinator is ready."""
        name = self.name(kind)
        self.do(FindCoordinatorRequest(coordinator_keys=[name]))  # which makes the offsets topic
        request = OffsetFetchRequest(group_id=name, topics=[])
        self.until(request, lambda answer: answer.error_code not in COORDINATOR_IS_COMING, 7)
        return name


class Scenario(NamedTuple):
    area: str
    name: str
    subject: type[Message]
    versions: tuple[int, ...]
    settings: dict[str, str]
    play: Callable[[Talk], None]

    @property
    def id(self) -> str:
        return f"{self.area}/{self.name}"

    def tell(self, address: tuple[str, int], version: int) -> list[tuple[str, Any]]:
        talk = Talk(address, self.subject, version, secured=self.settings.items() >= SECURED.items())
        try:
            self.play(talk)
        finally:
            talk.close()
        return talk.steps


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    subject: type[Message], versions: str | None = None, settings: dict[str, str] | None = None
) -> Callable[[Callable[[Talk], None]], Callable[[Talk], None]]:
    """Registers a scenario for every version of `subject`, or those of `versions`, which says why if it leaves some out.

    `settings` are the broker's, for scenarios that need others than `support.brokers.SETTINGS`.
    """
    served = served_versions(subject, has_older=settings is not None and settings.items() >= OLDER.items())
    wanted = VersionRange.parse(versions) if versions else served
    chosen = tuple(each for each in range(served.first, served.last + 1) if each in wanted)
    assert chosen, f"no version of {subject.__name__} is in {versions}"

    def register(play: Callable[[Talk], None]) -> Callable[[Talk], None]:
        area = play.__module__.rpartition(".")[2]
        made = Scenario(area, play.__name__, subject, chosen, settings or {}, play)
        assert made.id not in SCENARIOS, f"two scenarios are called {made.id}"
        SCENARIOS[made.id] = made
        return play

    return register
