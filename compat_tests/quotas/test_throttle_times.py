"""The same traffic beyond the same quota: both brokers tell the same pause, and both do not read the client meanwhile.

A pause follows from what was sent and from the time since the first of it, by which it is shorter. That time the broker knows;
a client knows how long it may have been, which on a busy machine is not the same. So a pause is compared as a span.
"""

import secrets
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from compat_tests.differential.scenarios.client_quotas import alter, describe, entry
from compat_tests.support.brokers import BrokerProcess, wait_until
from compat_tests.support.wire_client import WireClient

from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record
from ottla.wire.schema import ZERO_UUID

TOLERANCE = 0.02
TELLINGS = 4
WINDOW_MS = 1_000  # a quota counts by seconds


class Pause(NamedTuple):
    """A pause that a broker told, in milliseconds. Had no time gone by, it would have told `least` to `most`."""

    told: int
    least: float
    most: float

    def is_close(self, other: object) -> bool:
        if not isinstance(other, Pause):
            return False
        return self.least <= other.most * (1 + TOLERANCE) and other.least <= self.most * (1 + TOLERANCE)


class Client:
    """One client id with quotas of its own, at one broker."""

    def __init__(self, broker: BrokerProcess, **quotas: float) -> None:
        self.address = broker.host, broker.port
        self.name = f"client-{secrets.token_hex(4)}"
        self.topic = f"topic-{self.name}"
        self.stage_hand = WireClient(self.address, client_id="stage hand")
        self.link = WireClient(self.address, client_id=self.name)
        self._first_ms: tuple[float, float] | None = None
        """When the first request that the quotas count was sent, and when its answer had come."""
        self.set(**quotas)
        created = self.stage_hand.ask(creation(self.topic), 7)
        assert created.topics[0].error_code == 0, created
        wait_until(
            lambda: self.stage_hand.ask(ends_of(self.topic), 7).topics[0].partitions[0].error_code == 0, "a leader"
        )
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=ZERO_UUID, name=self.topic)], allow_auto_topic_creation=False
        )
        self.topic_id = self.stage_hand.ask(asked, 12).topics[0].topic_id

    def set(self, **quotas: float) -> None:
        named = [("client-id", self.name)]
        self.stage_hand.ask(alter(entry(named, *quotas.items())), 1)
        found = describe(("client-id", 0, self.name))
        wait_until(lambda: not quotas or self.stage_hand.ask(found, 1).entries, "the quota is known")
        time.sleep(0.1)  # until Kafka's broker obeys what it describes

    def ask(self, request: Any, version: int, by: WireClient | None = None) -> tuple[Any, int | Pause]:
        """Something that the quotas count; the pause beside the answer."""
        sent_ms = time.monotonic() * 1000
        answer = (by or self.link).ask(request, version)
        received_ms = time.monotonic() * 1000
        first_sent_ms, first_received_ms = self._first_ms = self._first_ms or (sent_ms, received_ms)
        most = received_ms - first_sent_ms
        # Where a window may have ended meanwhile, nobody can tell from here which part of the time counts.
        least = max(0, sent_ms - first_received_ms) if most < WINDOW_MS else 0
        told = answer.throttle_time_ms
        return answer, told and Pause(told, told + least, told + most)

    def produce(self, size: int, *, version: int = 9) -> int | Pause:
        return self.ask(self._production(size), version)[1]

    def fill(self, size: int) -> None:
        """Produce as somebody whom no quota counts."""
        self.stage_hand.ask(self._production(size), 9)

    def _production(self, size: int) -> ProduceRequest:
        batch = encode_batch([Record(0, 1, None, b"x" * size)])
        data = PartitionProduceData(index=0, records=batch)
        topics = [TopicProduceData(name=self.topic, topic_id=self.topic_id, partition_data=[data])]
        return ProduceRequest(acks=1, timeout_ms=9000, topic_data=topics)

    def fetch(self, offset: int, *, version: int = 12, session: tuple[int, int] = (0, -1)) -> tuple[Any, int | Pause]:
        asked = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
        topics = [FetchTopic(topic=self.topic, topic_id=self.topic_id, partitions=asked)] if offset >= 0 else []
        request = FetchRequest(
            topics=topics,
            forgotten_topics_data=[],
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=session[0],
            session_epoch=session[1],
        )
        return self.ask(request, version)

    def is_read(self) -> bool:
        """Whether a request is answered within a quarter of a second."""
        self.link.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12)
        self.link.socket.settimeout(0.25)
        try:
            return self.link.receive() is not None
        except TimeoutError:
            return False

    def close(self) -> None:
        self.stage_hand.close()
        self.link.close()


def creation(name: str, partitions: int = 1, *, is_trial: bool = False) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=is_trial)


def ends_of(name: str) -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked)])


Story = Callable[[Client], list[Any]]


@pytest.fixture
def both(brokers: list[BrokerProcess]) -> Callable[..., list[Any]]:
    """Tells a story to each of the brokers; what comes of it has to be the same, pauses within the tolerance.

    Kafka's broker may not obey yet what it describes. So this tells the story again if something differs; once the brokers have
    to agree.
    """

    def tell(story: Story, **quotas: float) -> list[Any]:
        for _ in range(TELLINGS):
            ours, kafkas = (_told(story, broker, quotas) for broker in brokers)
            if len(ours) == len(kafkas) and all(map(_is_alike, ours, kafkas)):
                return ours
        raise AssertionError(f"they differ each time: {ours} and {kafkas}")

    return tell


def _told(story: Story, broker: BrokerProcess, quotas: dict[str, float]) -> list[Any]:
    client = Client(broker, **quotas)
    try:
        return story(client)
    finally:
        client.close()


def _is_alike(mine: Any, theirs: Any) -> bool:
    return mine.is_close(theirs) if isinstance(mine, Pause) else bool(mine == theirs)


def test_a_producer_beyond_its_quota(both: Callable[..., list[Any]]) -> None:
    def story(client: Client) -> list[Any]:
        return [client.produce(5_000), client.produce(15_000), client.is_read()]

    within, beyond, is_read = both(story, producer_byte_rate=1000.0)
    assert (within, is_read) == (0, False) and beyond.most > 10_000 and beyond.least < 11_000


@pytest.mark.parametrize("version", [3, 5, 13])
def test_every_version_of_a_produce_request(both: Callable[..., list[Any]], version: int) -> None:
    def story(client: Client) -> list[Any]:
        return [client.produce(25_000, version=version), client.is_read()]

    pause, is_read = both(story, producer_byte_rate=1000.0)
    assert pause.told > 10_000 and not is_read


def test_a_pause_ends(both: Callable[..., list[Any]]) -> None:
    def story(client: Client) -> list[Any]:
        pause = client.produce(10_300)
        assert isinstance(pause, Pause)
        began = time.monotonic()
        client.link.socket.settimeout(60)
        client.link.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12)
        return [pause, -0.05 < time.monotonic() - began - pause.told / 1000 < 20]

    pause, is_right = both(story, producer_byte_rate=1000.0)
    assert 300 < pause.told < 600 and is_right


@pytest.mark.parametrize("version", [4, 12, 16])
def test_a_consumer_beyond_its_quota_gets_nothing(both: Callable[..., list[Any]], version: int) -> None:
    def story(client: Client) -> list[Any]:
        answers = []
        # Two at a time are within what the windows let through at once. Of more Kafka would give a part of a batch.
        for offset in (0, 2):
            client.fill(4_000)
            client.fill(4_000)
            answers.append(client.fetch(offset, version=version))
        told: list[Any] = []
        for answer, pause in answers:
            records = [len(each.records or b"") for topic in answer.responses for each in topic.partitions]
            told += [pause, len(answer.responses), sum(records) // 1000]
        return [*told, answers[-1][0].session_id, client.is_read()]

    told = both(story, consumer_byte_rate=1000.0)
    # The first answer is as long as the windows let through at once, the second is empty.
    assert told[:3] == [0, 1, 8] and told[3].told > 0 and told[4:] == [0, 0, 0, False]


def test_a_session_goes_on_after_a_pause(both: Callable[..., list[Any]]) -> None:
    def story(client: Client) -> list[Any]:
        client.fill(4_000)
        client.fill(4_000)
        first, no_pause = client.fetch(0, session=(0, 0))
        assert first.session_id > 0
        client.fill(4_000)
        refused, pause = client.fetch(2, session=(first.session_id, 1))
        client.set(consumer_byte_rate=1e9)
        told = [no_pause, pause, refused.session_id == first.session_id, refused.error_code]
        client.link.socket.settimeout(60)
        again, no_pause = client.fetch(-1, session=(first.session_id, 2))
        return [*told, again.error_code, len(again.responses), no_pause]

    told = both(story, consumer_byte_rate=1000.0)
    assert told[0] == 0 and told[1].told > 0 and told[2:] == [True, 0, 0, 1, 0]


def test_a_refused_fetch_begins_no_session(both: Callable[..., list[Any]]) -> None:
    def story(client: Client) -> list[Any]:
        client.fill(30_000)
        answer, pause = client.fetch(0, session=(0, 0))
        return [pause, answer.session_id, len(answer.responses), answer.error_code]

    assert both(story, consumer_byte_rate=1000.0)[1:] == [0, 0, 0]


@pytest.mark.parametrize("version", [5, 7])
def test_changes_of_topics(both: Callable[..., list[Any]], version: int) -> None:
    def story(client: Client) -> list[Any]:
        told: list[Any] = []
        trial, pause = client.ask(creation(f"{client.topic}-a", 16, is_trial=True), version)
        told += [pause, trial.topics[0].error_code]
        with WireClient(client.address, client_id=client.name) as other:  # the first one may have to pause
            answer, pause = client.ask(creation(f"{client.topic}-b", 1), version, by=other)
        told += [pause, answer.topics[0].error_code, answer.topics[0].error_message]
        return told

    told = both(story, controller_mutation_rate=1.0)
    assert told[3] == (89 if version > 5 else 0)


def test_more_partitions_and_fewer_topics(both: Callable[..., list[Any]]) -> None:
    def story(client: Client) -> list[Any]:
        client.ask(creation(f"{client.topic}-a", 16, is_trial=True), 7)
        told: list[Any] = []
        asked = [CreatePartitionsTopic(name=client.topic, count=2, assignments=None)]
        for version in (3, 2):
            with WireClient(client.address, client_id=client.name) as other:
                request = CreatePartitionsRequest(topics=asked, timeout_ms=30_000, validate_only=True)
                extended, pause = client.ask(request, version, by=other)
            told += [pause, extended.results[0].error_code, extended.results[0].error_message]
        for version in (6, 4):
            with WireClient(client.address, client_id=client.name) as other:
                request = DeleteTopicsRequest(timeout_ms=30_000)
                request.topics = [DeleteTopicState(name=client.topic, topic_id=ZERO_UUID)] if version > 5 else []
                request.topic_names = [client.topic] if version <= 5 else []
                deleted, pause = client.ask(request, version, by=other)
            told += [pause, deleted.responses[0].error_code]
            told += [deleted.responses[0].error_message] if version >= 5 else []
        return told

    told = both(story, controller_mutation_rate=1.0)
    assert 89 in told


def test_time_of_requests(both: Callable[..., list[Any]]) -> None:
    def story(client: Client) -> list[Any]:
        answer = client.link.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
        return [answer.throttle_time_ms, client.is_read()]

    assert both(story, request_percentage=1e-7) == [1000, False]
