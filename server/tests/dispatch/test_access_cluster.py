"""Requests about the whole cluster are refused to clients that lack the right, in Kafka's words, before anything is done."""

from pathlib import Path
from typing import Any, cast

import pytest

from ottla.server.api.handlers.controller_requests import leader_and_isr, stop_replica
from ottla.server.dispatch.access import (
    CLUSTER_NAME,
    OPERATIONS,
    OPERATIONS_NOT_ASKED,
    AclOperation,
    ResourceType,
)
from ottla.server.dispatch.context import RequestContext
from ottla.server.network.sliced_work import answer_partitions
from ottla.server.security.acls import Permission
from ottla.server.tests.administered import opened
from ottla.server.tests.rights import Right, ask, guard
from ottla.server.tests.security.test_authorizer import acl, authorizer_with
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.cluster import DescribeClusterRequest, FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.messages.controller_requests import (
    AlterPartitionRequest,
    ControlledShutdownRequest,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataRequest,
)
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
from ottla.wire.messages.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.producer_ids import AllocateProducerIdsRequest
from ottla.wire.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
)

CLUSTER = ResourceType.CLUSTER
CLUSTER_ACTION, ALTER, DESCRIBE = AclOperation.CLUSTER_ACTION, AclOperation.ALTER, AclOperation.DESCRIBE
FORBIDDEN = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
WHO = "User:a"


class Reached(Exception):
    """The request has come past the checks."""


class Beyond:
    """A broker of which nothing can be had but its authorizer."""

    def __init__(self) -> None:
        self.authorizer: Any = None

    def __getattr__(self, name: str) -> Any:
        raise Reached(name)

    def context(self, version: int) -> RequestContext:
        context: RequestContext = RequestContext(
            cast(Any, self), api_version=version, client_host="/127.0.0.1", principal=WHO
        )
        context.is_forwarded = True  # handlers are asked, as at the controller
        return context


def states(*indexes: int) -> list[LeaderAndIsrPartitionState]:
    return [
        LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=1,
            leader_epoch=1,
            isr=[1],
            partition_epoch=1,
            replicas=[1],
        )
        for index in indexes
    ]


LEAD = LeaderAndIsrRequest(
    controller_id=1,
    controller_epoch=1,
    topic_states=[
        LeaderAndIsrTopicState(topic_name="t", topic_id=b"t" * 16, partition_states=states(0, 2)),
        LeaderAndIsrTopicState(topic_name="u", topic_id=b"u" * 16, partition_states=states(1)),
    ],
    live_leaders=[],
)
STOP = StopReplicaRequest(
    controller_id=1,
    controller_epoch=1,
    topic_states=[
        StopReplicaTopicState(
            topic_name=name, partition_states=[StopReplicaPartitionState(partition_index=index) for index in indexes]
        )
        for name, indexes in (("t", (0, 2)), ("u", (1,)))
    ],
)
BETWEEN_BROKERS: list[tuple[Any, int, AclOperation]] = [
    (LEAD, 7, CLUSTER_ACTION),
    (STOP, 4, CLUSTER_ACTION),
    (UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=[]), 8, CLUSTER_ACTION),
    (ControlledShutdownRequest(broker_id=2, broker_epoch=9), 3, CLUSTER_ACTION),
    (AlterPartitionRequest(broker_id=2, topics=[]), 3, CLUSTER_ACTION),
    (AllocateProducerIdsRequest(broker_id=2, broker_epoch=9), 0, CLUSTER_ACTION),
]
NAMED = (("t", [0, 2]), ("u", [1]), ("t", [0]))
MOVE_DIRS = AlterReplicaLogDirsRequest(
    dirs=[
        AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=[0, 2]) for name in "tu"])
        for path in ("/a", "/b")
    ]
)
REASSIGN = AlterPartitionReassignmentsRequest(
    topics=[
        ReassignableTopic(
            name=name, partitions=[ReassignablePartition(partition_index=each, replicas=[1]) for each in indexes]
        )
        for name, indexes in NAMED
    ]
)
REASSIGNMENTS = ListPartitionReassignmentsRequest(
    topics=[ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes) for name, indexes in NAMED]
)
ELECT = ElectLeadersRequest(
    topic_partitions=[TopicPartitions(topic=name, partitions=indexes) for name, indexes in NAMED]
)
UPDATE = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="group.version", max_version_level=1)])
FROM_CLIENTS: list[tuple[Any, int, AclOperation]] = [
    (DescribeLogDirsRequest(topics=None), 5, DESCRIBE),
    (MOVE_DIRS, 2, ALTER),
    (REASSIGN, 1, ALTER),
    (REASSIGNMENTS, 0, DESCRIBE),
    (ListPartitionReassignmentsRequest(topics=None), 0, DESCRIBE),
    (ELECT, 2, ALTER),
    (ElectLeadersRequest(topic_partitions=None), 1, ALTER),
    (UPDATE, 0, ALTER),
    (UPDATE, 2, ALTER),
    (DescribeUserScramCredentialsRequest(users=None), 0, DESCRIBE),
    (
        AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="u", mechanism=1)], upsertions=[]),
        0,
        ALTER,
    ),
]
REQUESTS = BETWEEN_BROKERS + FROM_CLIENTS


def name_of(value: Any) -> str:
    return type(value).__name__


def told(response: Any) -> set[int]:
    """All errors of a response, wherever they are."""
    if isinstance(response, list):
        return set().union(*map(told, response))
    fields = getattr(type(response), "wire_fields", {})
    found = set().union(*(told(getattr(response, name)) for name in fields))
    return found | ({response.error_code} if "error_code" in fields else set())


@pytest.mark.parametrize(("request_", "version", "operation"), REQUESTS, ids=name_of)
async def test_a_request_about_the_cluster_needs_exactly_its_right(
    request_: Any, version: int, operation: AclOperation
) -> None:
    broker = Beyond()
    needed: Right = (operation, CLUSTER, CLUSTER_NAME)
    others = [(each, CLUSTER, CLUSTER_NAME) for each in AclOperation if each is not operation]
    for rights in ((), others):
        authorizer = guard(broker, *rights)
        response = await ask(broker, request_, version)
        assert told(response) == {FORBIDDEN}
        assert authorizer.refused == [needed]
        type(response).decode(response.encode(version), version)
    guard(broker, needed)
    with pytest.raises(Reached):
        await ask(broker, request_, version)


@pytest.mark.parametrize(("request_", "version", "operation"), REQUESTS, ids=name_of)
async def test_the_rules_of_the_cluster_decide_and_a_denial_comes_first(
    request_: Any, version: int, operation: AclOperation
) -> None:
    broker = Beyond()
    allowed = acl(CLUSTER_NAME, operation, of=CLUSTER)
    everything = acl(CLUSTER_NAME, AclOperation.ALL, who="User:*", of=CLUSTER)
    denied = acl(CLUSTER_NAME, operation, Permission.DENY, of=CLUSTER)
    for rules in ([], [denied], [allowed, denied], [everything, denied]):
        broker.authorizer = authorizer_with(rules)
        assert told(await ask(broker, request_, version)) == {FORBIDDEN}
    for rules in ([allowed], [everything]):
        broker.authorizer = authorizer_with(rules)
        with pytest.raises(Reached):
            await ask(broker, request_, version)


@pytest.mark.parametrize(("request_", "version", "operation"), REQUESTS, ids=name_of)
async def test_without_an_authorizer_nobody_is_asked_for_a_right(
    request_: Any, version: int, operation: AclOperation
) -> None:
    with pytest.raises(Reached):
        await ask(Beyond(), request_, version)


# ------------------------------------------------------------------ the form of refusals


def test_the_controller_is_told_of_each_partition() -> None:
    broker = Beyond()
    guard(broker)
    leading: Any = leader_and_isr(LEAD, broker.context(7))
    assert [
        (each.topic_id[:1], [error.partition_index for error in each.partition_errors]) for each in leading.topics
    ] == [
        (b"t", [0, 2]),
        (b"u", [1]),
    ]
    stopping: Any = stop_replica(STOP, broker.context(4))
    named = [(each.topic_name, each.partition_index) for each in stopping.partition_errors]
    assert named == [("t", 0), ("t", 2), ("u", 1)]


async def denied(request: Any, version: int) -> Any:
    """The refusal as it travels: what a version has no room for is lost."""
    broker = Beyond()
    guard(broker)
    response = await ask(broker, request, version)
    return type(response).decode(response.encode(version), version)


async def test_directories_are_hidden_and_the_reason_is_told_since_v3() -> None:
    for version, code in ((1, 0), (2, 0), (3, FORBIDDEN), (5, FORBIDDEN)):
        response = await denied(DescribeLogDirsRequest(topics=None), version)
        assert (response.error_code, response.results) == (code, [])


async def test_each_replica_that_may_not_be_moved_is_answered_as_often_as_it_is_named() -> None:
    response = await denied(MOVE_DIRS, 2)
    told_of = [(each.topic_name, [one.partition_index for one in each.partitions]) for each in response.results]
    assert told_of == [("t", [0, 2]), ("u", [0, 2])] * 2


@pytest.mark.parametrize("at_once", [1000, 0])
async def test_refusals_of_the_controller_name_what_was_asked_for(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(answer_partitions.__kwdefaults__, "at_once", at_once)
    reassigned = await denied(REASSIGN, 1)
    told_of = [(each.name, [one.partition_index for one in each.partitions]) for each in reassigned.responses]
    assert told_of == list(NAMED)
    text = "Request AlterPartitionReassignments needs ALTER permission."
    assert {one.error_message for each in reassigned.responses for one in each.partitions} == {text}
    assert (reassigned.error_message, reassigned.allow_replication_factor_change) == (text, True)
    listed = await denied(REASSIGNMENTS, 0)
    told_of = [(each.name, [one.partition_index for one in each.partitions]) for each in listed.topics]
    assert told_of == list(NAMED)
    assert listed.error_message == "Request ListPartitionReassignments needs DESCRIBE permission."
    elected = await denied(ELECT, 0)  # which has no error for the whole
    told_of = [
        (each.topic, [one.partition_id for one in each.partition_result]) for each in elected.replica_election_results
    ]
    assert told_of == list(NAMED) and elected.error_code == 0
    errors = {
        (one.error_code, one.error_message)
        for each in elected.replica_election_results
        for one in each.partition_result
    }
    assert errors == {(FORBIDDEN, "Request ElectLeaders needs ALTER permission.")}
    leading = await denied(LEAD, 7)
    assert [len(each.partition_errors) for each in leading.topics] == [2, 1]
    assert len((await denied(STOP, 4)).partition_errors) == 3


async def test_no_feature_is_named_in_a_refusal() -> None:
    for version in (0, 1, 2):
        response = await denied(UPDATE, version)
        assert (response.error_message, response.results) == ("Request UpdateFeatures needs ALTER permission.", [])


# ------------------------------------------------------------------ DescribeCluster


async def test_brokers_are_told_to_everybody_and_rights_to_whoever_may_describe_the_cluster(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    describe, create = ((each, CLUSTER, CLUSTER_NAME) for each in (DESCRIBE, AclOperation.CREATE))
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    for rights, bits in (((), 0), ((create,), 0), ((create, describe), 1 << AclOperation.CREATE | 1 << DESCRIBE)):
        authorizer = guard(broker, *rights)
        for version in (0, 2):
            response = await ask(broker, asked, version)
            assert (response.error_code, len(response.brokers)) == (0, 1)
            assert response.cluster_authorized_operations == bits
        assert set(authorizer.refused) == ({describe} if not bits else set())
        silent = await ask(broker, DescribeClusterRequest(include_cluster_authorized_operations=False), 2)
        assert silent.cluster_authorized_operations == OPERATIONS_NOT_ASKED
    broker.authorizer = None
    assert (await ask(broker, asked, 2)).cluster_authorized_operations == OPERATIONS[ResourceType.CLUSTER].bits


async def test_an_endpoint_that_is_none_of_a_broker_is_refused_before_rights_are_looked_at() -> None:
    broker = Beyond()
    authorizer = guard(broker)
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=2)
    assert (await ask(broker, asked, 1)).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert authorizer.refused == []


# ------------------------------------------------------------------ FindCoordinator


async def test_coordinators_of_share_partitions_are_for_brokers() -> None:
    broker = Beyond()
    needed = (CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
    asked = FindCoordinatorRequest(key_type=2, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAQ:0", "no key"])
    authorizer = guard(broker, (DESCRIBE, ResourceType.GROUP, "g"), (DESCRIBE, CLUSTER, CLUSTER_NAME))
    response = await ask(broker, asked, 6)
    assert [(each.error_code, each.node_id) for each in response.coordinators] == [(FORBIDDEN, -1)] * 2
    assert authorizer.refused == [needed]
    guard(broker, needed)
    with pytest.raises(Reached):
        await ask(broker, asked, 6)
