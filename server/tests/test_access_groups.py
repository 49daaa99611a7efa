"""Requests to coordinators are refused to clients that lack the rights, before a coordinator is asked."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.server.gate.access import CLUSTER_NAME
from ottla.server.gate.authorized_operations import AclOperation, ResourceType
from ottla.server.tests.rights import Right, ask, guard
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.offset_delete import OffsetDeleteRequest

READ_GROUP = (AclOperation.READ, ResourceType.GROUP, "g")
DELETE_GROUP = (AclOperation.DELETE, ResourceType.GROUP, "g")
WRITE_ID = (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "x")
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
        api_version=version, principal="User:x", client_host="/127.0.0.1", client_id="c", broker=broker
    )
    authorizer = guard(broker, *rights)
    response = await ask(broker, request_, version)
    assert response.error_code == code
    assert authorizer.refused == [missing]
