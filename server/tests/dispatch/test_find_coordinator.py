"""Who coordinates a group, a transactional id or a share partition, and how others are refused."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.groupcoord.share.coordinator.records import SharePartitionKey
from ottla.replication.cluster.metadata_cache import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerEndpoint,
    BrokerRegistration,
    MetadataCache,
    PartitionState,
    TopicState,
)
from ottla.server.api.handlers.find_coordinator import find_coordinator
from ottla.server.dispatch.context import RequestContext
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.tests.turns import counted_turns


class FakeCoordinator:
    """Loads a partition in `load_s`."""

    load_s = 0.5

    async def until_loaded(self, partition: int) -> None:
        await trio.sleep(self.load_s)


class FakeGroups(FakeCoordinator):
    def partition_for(self, group_id: str) -> int:
        return int(group_id)


class FakeTransactions(FakeCoordinator):
    """Its ids fall to other partitions than groups of the same name do."""

    def partition_for(self, transactional_id: str) -> int:
        return int(transactional_id) + 1


class FakeShareCoordinator:
    def partition_for(self, key: SharePartitionKey) -> int:
        return key.partition


class FakeBroker:
    """Two brokers, of which the second does not listen on the client's listener."""

    authorizer = None
    node_id = 1

    def __init__(self) -> None:
        self.cluster = MetadataCache()
        for node_id, listener in ((1, "PLAINTEXT"), (2, "OTHER")):
            endpoint = BrokerEndpoint(node_id, f"host{node_id}", 9092)
            self.cluster.put_broker(BrokerRegistration(node_id, {listener: endpoint}))
        self.groups = FakeGroups()
        self.share_coordinator = FakeShareCoordinator()
        self.transactions = FakeTransactions()
        self.refusal: KafkaError | None = None

    async def ensure_internal_topic(self, name: str) -> None:
        if self.refusal:
            raise self.refusal
        leaders = [PartitionState(leader, 0, (1,), (1,)) for leader in (1, 2, -1)]
        self.cluster.put_topic(TopicState(name, bytes(16), tuple(leaders), is_internal=True))


@pytest.fixture
def broker(autojump_clock: MockClock) -> FakeBroker:
    return FakeBroker()


async def find(broker: Any, version: int, *keys: str, key_type: int = 0) -> FindCoordinatorResponse:
    request = FindCoordinatorRequest(key=keys[0], coordinator_keys=list(keys), key_type=key_type)
    answer = find_coordinator(request, RequestContext(broker, api_version=version))
    return answer if isinstance(answer, FindCoordinatorResponse) else await answer


@pytest.mark.parametrize("version", [0, 3])
async def test_coordinator_leads_the_partition_of_the_group(broker: FakeBroker, version: int) -> None:
    response = await find(broker, version, "0")
    assert (response.error_code, response.node_id, response.host, response.port) == (0, 1, "host1", 9092)
    assert response.error_message == "NONE"


async def test_each_key_has_an_answer_of_its_own(broker: FakeBroker) -> None:
    response = await find(broker, 4, "0", "1", "2", "0")
    not_available = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [each.error_code for each in response.coordinators] == [0, not_available, not_available, 0]
    assert [each.node_id for each in response.coordinators] == [1, -1, -1, 1]
    assert [each.key for each in response.coordinators] == ["0", "1", "2", "0"]
    assert response.coordinators[0].error_message == ""


async def test_first_question_makes_the_topic(broker: FakeBroker) -> None:
    assert broker.cluster.topics.get(GROUP_METADATA_TOPIC) is None
    assert (await find(broker, 4, "0")).coordinators[0].node_id == 1
    topic = broker.cluster.topics.get(GROUP_METADATA_TOPIC)
    assert topic is not None and topic.is_internal


@pytest.mark.parametrize(("load_s", "waited_s"), [(0.25, 0.25), (3, 1)])
async def test_first_question_is_answered_when_the_coordinator_here_has_loaded_the_key(
    broker: FakeBroker, load_s: float, waited_s: float
) -> None:
    broker.groups.load_s = load_s
    for wanted_s in (waited_s, 0):  # later ones have a topic, and are answered as in Kafka
        began_s = trio.current_time()
        assert (await find(broker, 2, "0")).error_code == 0
        assert trio.current_time() - began_s == pytest.approx(wanted_s)


async def test_long_keys_of_a_first_question_do_not_share_one_turn(broker: FakeBroker) -> None:
    async with counted_turns() as turns:
        await find(broker, 4, "1", "01", "001", "0001")
        assert turns.count >= 2


async def test_first_question_waits_for_no_coordinator_elsewhere(broker: FakeBroker) -> None:
    broker.groups.load_s = 3
    await find(broker, 4, "1")
    assert trio.current_time() < 1


@pytest.mark.parametrize("version", [2, 6])
async def test_topic_that_cannot_be_made_yet_is_asked_for_again(broker: FakeBroker, version: int) -> None:
    broker.refusal = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers")
    response = await find(broker, version, "0")
    found = response if version < 4 else response.coordinators[0]
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE and ErrorCode.COORDINATOR_NOT_AVAILABLE.retriable
    assert found.error_message == "too few brokers" and found.node_id == -1


@pytest.mark.parametrize("version", [1, 3, 6])
async def test_coordinator_leads_the_partition_of_the_transactional_id(broker: FakeBroker, version: int) -> None:
    found = []
    for key in ("-1", "0"):
        response = await find(broker, version, key, key_type=1)
        found.append(response if version < 4 else response.coordinators[0])
    assert [each.error_code for each in found] == [0, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert (found[0].node_id, found[0].host) == (1, "host1")
    assert list(broker.cluster.topics) == [TRANSACTION_STATE_TOPIC]


@pytest.mark.parametrize(
    ("version", "key_type", "error"),
    [
        (5, 2, ErrorCode.INVALID_REQUEST),
        (6, 2, ErrorCode.INVALID_REQUEST),
        (6, 3, ErrorCode.INVALID_REQUEST),
        (4, -1, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_other_coordinators_are_refused(
    broker: FakeBroker, version: int, key_type: int, error: ErrorCode
) -> None:
    response = await find(broker, version, "a", "b", key_type=key_type)
    assert [each.error_code for each in response.coordinators] == [error, error]


async def test_coordinator_of_a_share_partition_leads_the_partition_of_its_key(broker: FakeBroker) -> None:
    keys = ["group:a" + SharePartitionKey("group:a", bytes(16), index).coordinator_key_end() for index in range(3)]
    response = await find(broker, 6, *keys, "group:0", key_type=2)
    not_available = ErrorCode.COORDINATOR_NOT_AVAILABLE
    expected = [ErrorCode.NONE, not_available, not_available, ErrorCode.INVALID_REQUEST]
    assert [each.error_code for each in response.coordinators] == expected
    assert [each.key for each in response.coordinators] == [*keys, "group:0"]
    assert broker.cluster.topics.get(SHARE_GROUP_STATE_TOPIC) is not None
    assert broker.cluster.topics.get(GROUP_METADATA_TOPIC) is None


async def test_old_answers_always_have_a_text(broker: FakeBroker) -> None:
    assert (await find(broker, 3, "a", key_type=2)).error_message == ErrorCode.INVALID_REQUEST.message
    assert (await find(broker, 3, "2")).error_message == ErrorCode.COORDINATOR_NOT_AVAILABLE.message
    new = await find(broker, 4, "2")
    assert new.coordinators[0].error_message == ""


async def test_very_many_keys_are_answered_in_turns_and_each_is_looked_up_once(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await find(broker, 4, "0")
    asked: list[str] = []

    def partition_for(group_id: str) -> int:
        asked.append(group_id)
        return 0

    monkeypatch.setattr(broker.groups, "partition_for", partition_for)
    response = await find(broker, 4, *[str(number % 100) for number in range(3_000)])
    assert [each.key for each in response.coordinators] == [str(number % 100) for number in range(3_000)]
    assert len(asked) == 100
