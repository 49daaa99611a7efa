"""Requests to coordinators are refused to clients that lack the rights, before a coordinator is asked."""

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.groupcoord.runtime.answers import finished
from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.dispatch.access import CLUSTER_NAME, AclOperation, ResourceType
from ottla.server.dispatch.dispatch import all_routes
from ottla.server.security.quotas.client_quotas import Charge, ClientQuotas
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.server.tests.rights import Right, ask, guard
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.classic_group import HeartbeatRequest, LeaveGroupRequest
from ottla.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.offsets import OffsetDeleteRequest
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.share_group_state import ReadShareGroupStateRequest
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    WriteTxnMarkersRequest,
)
from ottla.wire.schema import Message

READ_GROUP = (AclOperation.READ, ResourceType.GROUP, "g")
DELETE_GROUP = (AclOperation.DELETE, ResourceType.GROUP, "g")
WRITE_ID = (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "x")
SETTINGS = {"offsets.topic.num.partitions": "1"}
CLUSTER_ACTION = (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
ADD_OFFSETS = AddOffsetsToTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, group_id="g")


@pytest.mark.parametrize(
    ("request_", "version", "rights", "missing", "code"),
    [
        (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, (), READ_GROUP, NO_GROUP),
        (LeaveGroupRequest(group_id="g", member_id="m"), 2, (), READ_GROUP, NO_GROUP),
        (OffsetDeleteRequest(group_id="g", topics=[]), 0, (READ_GROUP,), DELETE_GROUP, NO_GROUP),
        (ADD_OFFSETS, 3, (), WRITE_ID, NO_ID),
        (ADD_OFFSETS, 3, (WRITE_ID,), READ_GROUP, NO_GROUP),
        (
            EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True),
            3,
            (),
            WRITE_ID,
            NO_ID,
        ),
        (InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000), 4, (), WRITE_ID, NO_ID),
        (
            AddPartitionsToTxnRequest(transactions=[]),
            4,
            (WRITE_ID,),
            CLUSTER_ACTION,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
    ],
)
async def test_a_request_to_a_coordinator_needs_its_right(
    request_: Any, version: int, rights: tuple[Right, ...], missing: Right, code: ErrorCode
) -> None:
    broker: Any = SimpleNamespace(transactions=None)
    broker.context = lambda version: SimpleNamespace(
        api_version=version, principal="User:x", client_host="/127.0.0.1", client_id="c", broker=broker, charge=None
    )
    authorizer = guard(broker, *rights)
    response = await ask(broker, request_, version)
    assert response.error_code == code
    assert authorizer.refused == [missing]


async def answered(broker: AdministeredBroker, request: Message, version: int) -> Any:
    """While the coordinator is being loaded it is asked again."""
    while (response := await ask(broker, request, version)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await trio.lowlevel.checkpoint()
    return response


def join_by_pattern(pattern: str, epoch: int = 0, member: str = "m") -> ConsumerGroupHeartbeatRequest:
    is_new = epoch == 0
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if is_new else -1,
        subscribed_topic_names=None,
        subscribed_topic_regex=pattern if is_new else None,
        topic_partitions=[] if is_new else None,
    )


@pytest.mark.parametrize("seen", [(), ("open",), ("open", "other")])
async def test_a_pattern_stands_for_topics_that_the_member_may_describe(
    tmp_path: Path, autojump_clock: MockClock, seen: tuple[str, ...]
) -> None:
    broker = await opened(tmp_path, SETTINGS)
    names = ("hidden", "open", "other")
    await broker.administration.create_topics([NewTopic(name=name, partition_count=1) for name in names])
    await ask(broker, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6)
    guard(broker, READ_GROUP, *((AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in seen))
    epoch = (await answered(broker, join_by_pattern(".*"), 1)).member_epoch
    # The pattern is resolved in a thread, and the group has another epoch afterwards.
    assigned: set[bytes] = set()
    for _ in range(20):
        await trio.sleep(0.1)
        response = await answered(broker, join_by_pattern(".*", epoch), 1)
        epoch = response.member_epoch
        if response.assignment is not None:
            assigned = {each.topic_id for each in response.assignment.topic_partitions}
    topics = broker.cluster.topics
    assert {name for name in names if topics[name].topic_id in assigned} == set(seen)
    assert len(assigned) == len(seen)
    await broker.stop()


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (WriteTxnMarkersRequest(markers=[]), 1),
        (ReadShareGroupStateRequest(group_id="g", topics=[]), 0),
        (AddPartitionsToTxnRequest(transactions=[]), 4),
    ],
)
async def test_who_only_says_that_it_is_a_broker_pays_for_its_requests(
    tmp_path: Path, request_: Message, version: int
) -> None:
    broker = await opened(tmp_path)
    quotas = ClientQuotas()
    quotas.take("users/x", {"request_percentage": "1"})
    for rights, pauses in (((), True), ((CLUSTER_ACTION,), False)):
        guard(broker, *rights)
        context = broker.context(version)
        context.charge = charge = Charge(quotas, lambda: 0, "User:x", "c", is_exempt=True)
        charge.spent_ns = 10**9
        with contextlib.suppress(KafkaError):
            await finished(all_routes()[request_.api_key].handler(request_, context))
        assert (charge.settle() > 0) == pauses
    await broker.stop()
