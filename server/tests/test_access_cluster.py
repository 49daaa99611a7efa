"""Requests about the whole cluster are refused to clients that lack the right, in Kafka's words, before anything is done."""

from typing import Any, cast

import pytest

from ottla.server.auth.acls import Permission
from ottla.server.gate.access import CLUSTER_NAME
from ottla.server.gate.authorized_operations import AclOperation, ResourceType
from ottla.server.gate.context import RequestContext
from ottla.server.handlers.leader_and_isr import leader_and_isr
from ottla.server.handlers.stop_replica import stop_replica
from ottla.server.tests.rights import Right, ask, guard
from ottla.server.tests.test_authorizer import acl, authorizer_with
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.messages.alter_partition import AlterPartitionRequest
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.wire.messages.update_metadata import UpdateMetadataRequest

CLUSTER = ResourceType.CLUSTER
CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
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
        return RequestContext(cast(Any, self), api_version=version, client_host="/127.0.0.1", principal=WHO)


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
REQUESTS = BETWEEN_BROKERS


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
