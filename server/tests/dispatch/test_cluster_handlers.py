"""What is asked of the controller, at the controller and elsewhere."""

from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Create
from ottla.replication.cluster.metadata_cache import PartitionState, TopicState
from ottla.replication.controller.elect_leaders import ElectionType
from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.api.handlers.api_versions import served_api_versions
from ottla.server.broker import Broker
from ottla.server.cluster.session import ClusterSession
from ottla.server.config.broker_config import load_config
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import all_routes, served_routes
from ottla.server.serving import calls_of
from ottla.server.tests.clustered import LISTENER, Cluster, clustered
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.limits import PARTITIONS_TO_CHANGE_MAX
from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.controller_requests import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
)
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.offsets import OffsetFetchRequest
from ottla.wire.messages.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

STATE = PartitionState(1, 5, (1, 2), (1, 2))


@pytest.mark.parametrize("key", [4, 5, 6, 7, 56, 67])
def test_a_broker_that_is_alone_does_not_serve_them(key: int) -> None:
    assert key in served_routes(is_in_cluster=True)
    assert key not in served_routes(is_in_cluster=False)


BETWEEN_BROKERS = {4, 5, 6, 7, 56, 67}
ENVELOPE = 58  # nobody is told of it


def test_requests_between_brokers_are_advertised_on_their_listener_only() -> None:
    def keys(**listener: bool) -> set[int]:
        return {each.api_key for each in served_api_versions(is_in_cluster=True, **listener)}

    assert keys() - keys(is_between_brokers=False) == BETWEEN_BROKERS
    assert keys(is_between_brokers=True) == keys()


async def test_a_listener_for_clients_does_not_advertise_requests_between_brokers(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        for listener, is_told in ((LISTENER, True), ("OUTSIDE", False)):
            context = RequestContext(cast(Any, cluster[1]), api_version=0, listener_name=listener)
            answer = all_routes()[ApiVersionsRequest.api_key].handler(ApiVersionsRequest(), context)
            assert ({each.api_key for each in answer.api_keys} >= BETWEEN_BROKERS) == is_told


async def test_requests_between_brokers_are_refused_on_other_listeners(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        for_brokers, for_clients = calls_of(cast(Any, cluster[1]))
        assert for_brokers is not for_clients
        for_brokers.opened.set()
        for_clients.opened.set()
        for key, route in served_routes(is_in_cluster=True).items():
            for calls in (for_brokers, for_clients):
                await calls.until_open(key)
                await calls.make(key, route.versions.last)
            inside, outside = (calls.find(key, route.versions.last) for calls in (for_brokers, for_clients))
            assert inside is not None and outside is not None
            assert inside.handler is route.handler
            if key in BETWEEN_BROKERS | {ENVELOPE}:
                with pytest.raises(KafkaError) as refusal:
                    outside.handler(None, None)
                assert refusal.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            else:
                assert outside.handler is route.handler


def test_requests_that_wait_for_zookeeper_or_the_controller_hold_up_no_others() -> None:
    routes = served_routes(is_in_cluster=True)
    waiting = (DescribeConfigsRequest, ListPartitionReassignmentsRequest, OffsetFetchRequest, CreateTopicsRequest)
    assert not [each for each in waiting if routes[each.api_key].few_at_once]
    assert routes[MetadataRequest.api_key].few_at_once


def test_topics_in_pages_are_not_served_where_zookeeper_coordinates() -> None:
    assert 75 in served_routes(is_in_cluster=False)
    assert 75 not in served_routes(is_in_cluster=True)


# ---------------------------------------------------------------------- ControlledShutdown


async def test_a_broker_that_stops_is_told_what_it_still_leads(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        cluster.controller.answers["controlled_shutdown"] = [("t", 1), ("u", 0)]
        response = await cluster[1].answer(ControlledShutdownRequest(broker_id=2, broker_epoch=9), 3)
        assert response.error_code == ErrorCode.NONE
        told = [(each.topic_name, each.partition_index) for each in response.remaining_partitions]
        assert told == [("t", 1), ("u", 0)]
        assert cluster.controller.asked == [("controlled_shutdown", 2, 9)]


async def refusal(member: Any, request: Any, version: int) -> ErrorCode:
    """Code of the error that the handler raises; the connection answers the request with it."""
    with pytest.raises(KafkaError) as raised:
        await member.answer(request, version)
    return raised.value.code


async def test_kafka_s_word_for_a_controller_that_has_moved(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        request = ControlledShutdownRequest(broker_id=2, broker_epoch=9)
        assert await refusal(cluster[2], request, 3) == ErrorCode.STALE_CONTROLLER_EPOCH
        for raised, told in (
            (ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_CONTROLLER_EPOCH),
            (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.STALE_BROKER_EPOCH),
            (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR),
        ):
            cluster.controller.answers["controlled_shutdown"] = KafkaError(raised)
            assert await refusal(cluster[1], request, 3) == told
        without_epoch = ControlledShutdownRequest(broker_id=2)
        assert await refusal(cluster[1], without_epoch, 1) == ErrorCode.BROKER_NOT_AVAILABLE


# ---------------------------------------------------------------------- AlterPartition


async def test_other_in_sync_replicas_are_for_the_controller_to_decide(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        request = AlterPartitionRequest(broker_id=2, topics=[])
        decided = AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=[])
        cluster.controller.answers["alter_partition"] = decided
        assert await cluster[1].answer(request, 3) is decided
        assert cluster.controller.asked == [("alter_partition", request, 3)]
        assert await refusal(cluster[2], request, 3) == ErrorCode.NOT_CONTROLLER
        cluster.controller.answers["alter_partition"] = KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        assert await refusal(cluster[1], request, 3) == ErrorCode.STALE_BROKER_EPOCH


# ---------------------------------------------------------------------- reassignments


def reassignment(targets: dict[str, dict[int, list[int] | None]], **options: Any) -> AlterPartitionReassignmentsRequest:
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[
                ReassignablePartition(partition_index=index, replicas=ids) for index, ids in partitions.items()
            ],
        )
        for name, partitions in targets.items()
    ]
    return AlterPartitionReassignmentsRequest(topics=topics, **options)


async def test_reassignments_are_begun_and_cancelled_each_by_itself(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        cluster.controller.answers["reassign"] = {
            ("u", 3): None,
            ("t", 1): KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
            ("t", 0): KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "why"),
        }
        request = reassignment({"t": {1: None, 0: []}, "u": {3: [2, 1]}}, allow_replication_factor_change=False)
        response = await cluster[1].answer(request, 1)
        assert cluster.controller.asked == [("reassign", {("t", 1): None, ("t", 0): [], ("u", 3): [2, 1]}, False)]
        told = {
            (topic.name, each.partition_index): (each.error_code, each.error_message)
            for topic in response.responses
            for each in topic.partitions
        }
        assert told == {
            ("t", 0): (ErrorCode.INVALID_REPLICA_ASSIGNMENT, "why"),
            ("t", 1): (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS.message),
            ("u", 3): (ErrorCode.NONE, None),
        }
        assert (response.error_code, response.allow_replication_factor_change) == (0, False)


async def test_a_request_that_names_too_many_partitions_is_refused_as_a_whole(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        too_many = PARTITIONS_TO_CHANGE_MAX + 1
        reassigned = await cluster[1].answer(reassignment({"t": {index: [1] for index in range(too_many)}}), 0)
        assert (reassigned.error_code, reassigned.responses) == (ErrorCode.POLICY_VIOLATION, [])
        named = [TopicPartitions(topic="t", partitions=[0] * too_many)]
        elected = await cluster[1].answer(ElectLeadersRequest(topic_partitions=named), 2)
        assert (elected.error_code, elected.replica_election_results) == (ErrorCode.POLICY_VIOLATION, [])
        assert cluster.controller.asked == []


async def test_reassignments_elsewhere_than_at_the_controller(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        cluster.controller.answers = dict.fromkeys(["reassign", "reassignments"], KafkaError(ErrorCode.NOT_CONTROLLER))
        for node_id in (1, 2):
            for request in (reassignment({"t": {0: [1]}}), ListPartitionReassignmentsRequest()):
                response = await cluster[node_id].answer(request, 0)
                assert response.error_code == ErrorCode.NOT_CONTROLLER
                assert response.error_message == ErrorCode.NOT_CONTROLLER.message


async def test_ongoing_reassignments_are_listed(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        moving = PartitionState(1, 5, (3, 1), (1,), adding_replicas=(3,), removing_replicas=(1,))
        cluster.controller.answers["reassignments"] = {("u", 0): moving, ("t", 1): moving, ("t", 0): moving}
        everything = await cluster[1].answer(ListPartitionReassignmentsRequest(topics=None), 0)
        assert [(each.name, [one.partition_index for one in each.partitions]) for each in everything.topics] == [
            ("t", [0, 1]),
            ("u", [0]),
        ]
        asked = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[1, 7]) for name in ("t", "x")]
        some = await cluster[1].answer(ListPartitionReassignmentsRequest(topics=asked), 0)
        ((found,),) = [topic.partitions for topic in some.topics]
        told = (found.partition_index, found.replicas, found.adding_replicas, found.removing_replicas)
        assert told == (1, [3, 1], [3], [1])
        nothing = await cluster[1].answer(ListPartitionReassignmentsRequest(topics=[]), 0)
        assert nothing.topics == []


# ---------------------------------------------------------------------- ElectLeaders


def show(cluster: Cluster, **partitions: list[PartitionState]) -> None:
    for name, states in partitions.items():
        cluster.show(name, TopicState(name, name.encode() * 16, tuple(states)))


def elections(response: ElectLeadersResponse) -> dict[tuple[str, int], tuple[int, str | None]]:
    return {
        (topic.topic, each.partition_id): (each.error_code, each.error_message)
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


async def test_an_election_is_answered_when_the_new_leader_shows(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        show(cluster, t=[STATE, STATE])
        cluster.controller.answers["elect_leaders"] = {
            ("t", 0): None,
            ("t", 1): KafkaError(ErrorCode.ELECTION_NOT_NEEDED),
            ("x", 0): KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "why"),
        }
        request = ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic="t", partitions=[1, 0]), TopicPartitions(topic="x", partitions=[0])]
        )
        cluster.controller.decided["t", 0] = PartitionState(2, 7, (1, 2), (2,))
        answers: list[ElectLeadersResponse] = []

        async def ask() -> None:
            answers.append(await cluster[1].answer(request, 2))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            show(cluster, u=[STATE])
            show(cluster, t=[PartitionState(1, 6, (1, 2), (1,)), STATE])  # of an earlier decision
            await trio.testing.wait_all_tasks_blocked()
            show(cluster, t=[PartitionState(-1, 7, (1, 2), (1,)), STATE])
            await trio.testing.wait_all_tasks_blocked()
            assert not answers
            show(cluster, t=[PartitionState(2, 8, (1, 2), (2,)), STATE])
        assert elections(answers[0]) == {
            ("t", 0): (ErrorCode.NONE, None),
            ("t", 1): (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED.message),
            ("x", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "why"),
        }
        assert cluster.controller.asked == [("elect_leaders", ElectionType.PREFERRED, [("t", 0), ("t", 1), ("x", 0)])]


async def test_of_all_partitions_only_those_are_told_that_needed_an_election(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with clustered(tmp_path) as cluster:
        show(cluster, t=[STATE, STATE], u=[STATE])
        cluster.controller.answers["elect_leaders"] = {
            ("t", 0): KafkaError(ErrorCode.ELECTION_NOT_NEEDED),
            ("t", 1): KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "why"),
            ("u", 0): None,
        }
        cluster.controller.decided["u", 0] = PartitionState(2, 6, (1, 2), (2,))
        request = ElectLeadersRequest(election_type=1, topic_partitions=None, timeout_ms=1500)
        started = trio.current_time()
        response = await cluster[1].answer(request, 2)
        assert trio.current_time() - started == pytest.approx(1.5)
        assert elections(response) == {
            ("t", 1): (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "why"),
            ("u", 0): (ErrorCode.REQUEST_TIMED_OUT, None),
        }
        assert cluster.controller.asked == [("elect_leaders", ElectionType.UNCLEAN, [("t", 0), ("t", 1), ("u", 0)])]


async def test_elections_elsewhere_than_at_the_controller(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        show(cluster, t=[STATE])
        cluster.controller.answers["elect_leaders"] = KafkaError(ErrorCode.NOT_CONTROLLER)
        for node_id in (1, 2):
            response = await cluster[node_id].answer(ElectLeadersRequest(topic_partitions=None), 2)
            assert elections(response) == {("t", 0): (ErrorCode.NOT_CONTROLLER, None)}
            assert response.error_code == ErrorCode.NONE


async def test_an_unknown_type_of_election(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        show(cluster, t=[STATE])
        response = await cluster[1].answer(ElectLeadersRequest(election_type=2, topic_partitions=None), 2)
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert elections(response) == {("t", 0): (ErrorCode.UNKNOWN_SERVER_ERROR, None)}


# ---------------------------------------------------------------------- AllocateProducerIds


async def test_blocks_of_producer_ids_are_given_out_once(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        await cluster.tree.multi([Create(znodes.broker_path(2), b"{}")])
        epoch = (await cluster.tree.get(znodes.broker_path(2))).creation_id
        request = AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch)
        blocks = [await cluster[1].answer(request, 0) for _ in range(2)]
        assert [(each.error_code, each.producer_id_start, each.producer_id_len) for each in blocks] == [
            (0, 0, 1000),
            (0, 1000, 1000),
        ]
        assert znodes.decode_producer_id_block((await cluster.tree.get(znodes.PRODUCER_ID_BLOCK)).data) == (1000, 1999)


async def test_who_gets_no_producer_ids(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        await cluster.tree.multi([Create(znodes.broker_path(2), b"{}")])
        epoch = (await cluster.tree.get(znodes.broker_path(2))).creation_id

        async def refusal(at: int, broker_id: int, broker_epoch: int) -> int:
            request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
            response: AllocateProducerIdsResponse = await cluster[at].answer(request, 0)
            assert response.producer_id_len == 0
            return response.error_code

        assert await refusal(2, 2, epoch) == ErrorCode.NOT_CONTROLLER
        assert await refusal(1, 3, epoch) == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert await refusal(1, 2, epoch - 1) == ErrorCode.STALE_BROKER_EPOCH
        cluster.tree.close()
        assert await refusal(1, 2, epoch) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# ---------------------------------------------------------------------- settings


def described(response: DescribeConfigsResponse) -> dict[str, str | None]:
    return {each.name: each.value for result in response.results for each in result.configs}


async def test_settings_are_described_as_they_are_written(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        await cluster[1].administration.create_topics([NewTopic(name="t", configs={"retention.ms": "5"})])
        await cluster[3].administration.settings.alter_broker(lambda _: {"log.flush.interval.ms": "6"}, for_all=True)
        resources = [
            DescribeConfigsResource(
                resource_type=2, resource_name="t", configuration_keys=["retention.ms", "flush.ms"]
            ),
            DescribeConfigsResource(resource_type=4, resource_name="2", configuration_keys=["log.flush.interval.ms"]),
        ]
        request = DescribeConfigsRequest(resources=resources)
        expected = {"retention.ms": "5", "flush.ms": "6", "log.flush.interval.ms": "6"}
        assert described(await cluster[2].answer(request, 4)) == expected
        cluster[2].administration.settings._coordination = ClusterSession()
        assert described(await cluster[2].answer(request, 4)) == expected


async def test_a_broker_changes_its_own_settings_and_those_of_all_but_not_another_s(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        for name, code in (("2", ErrorCode.NONE), ("", ErrorCode.NONE), ("1", ErrorCode.INVALID_REQUEST)):
            change = IncrementalConfig(name="log.flush.interval.ms", config_operation=0, value="6")
            resource = IncrementalConfigsResource(resource_type=4, resource_name=name, configs=[change])
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            (response,) = (await cluster[2].answer(request, 1)).responses
            assert response.error_code == code
        assert response.error_message == "Unexpected broker id, expected 2, but received 1"
        cluster[2].administration.settings._coordination = ClusterSession()
        resource = IncrementalConfigsResource(resource_type=4, resource_name="", configs=[])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        (response,) = (await cluster[2].answer(request, 1)).responses
        assert response.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_broker_that_is_alone_has_one_table_of_calls() -> None:
    for_brokers, for_clients = calls_of(Broker(load_config({})))
    assert for_brokers is for_clients
    assert {route.api_key for route in for_clients.routes} == served_routes(is_in_cluster=False).keys()
