"""The right that each request asks for, by Kafka's rule: no key is served of which nobody has said which one it is."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottla.server.dispatch.access import AclOperation, ResourceType
from ottla.server.dispatch.dispatch import CloseConnection, Route, all_routes
from ottla.server.tests.administered import opened
from ottla.server.tests.rights import OnlyThese, ask
from ottla.wire.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from ottla.wire.messages.alter_configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from ottla.wire.messages.cluster import DescribeClusterRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest
from ottla.wire.schema import Array, Int8, Message, String, Struct

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, USER = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.USER,
)
OPERATION = AclOperation

RIGHTS: dict[str, tuple[ResourceType, AclOperation]] = {
    "Produce": (TOPIC, OPERATION.WRITE),
    "Fetch": (TOPIC, OPERATION.READ),
    "ListOffsets": (TOPIC, OPERATION.DESCRIBE),
    "Metadata": (TOPIC, OPERATION.DESCRIBE),
    "LeaderAndIsr": (CLUSTER, OPERATION.CLUSTER_ACTION),
    "StopReplica": (CLUSTER, OPERATION.CLUSTER_ACTION),
    "UpdateMetadata": (CLUSTER, OPERATION.CLUSTER_ACTION),
    "ControlledShutdown": (CLUSTER, OPERATION.CLUSTER_ACTION),
    "OffsetCommit": (GROUP, OPERATION.READ),
    "OffsetFetch": (GROUP, OPERATION.DESCRIBE),
    "FindCoordinator": (GROUP, OPERATION.DESCRIBE),
    "JoinGroup": (GROUP, OPERATION.READ),
    "Heartbeat": (GROUP, OPERATION.READ),
    "LeaveGroup": (GROUP, OPERATION.READ),
    "SyncGroup": (GROUP, OPERATION.READ),
    "DescribeGroups": (GROUP, OPERATION.DESCRIBE),
    "ListGroups": (CLUSTER, OPERATION.DESCRIBE),
    "CreateTopics": (CLUSTER, OPERATION.CREATE),
    "DeleteTopics": (TOPIC, OPERATION.DELETE),
    "DeleteRecords": (TOPIC, OPERATION.DELETE),
    "InitProducerId": (TRANSACTIONAL_ID, OPERATION.WRITE),
    "OffsetForLeaderEpoch": (TOPIC, OPERATION.DESCRIBE),
    "AddPartitionsToTxn": (CLUSTER, OPERATION.CLUSTER_ACTION),
    "AddOffsetsToTxn": (TRANSACTIONAL_ID, OPERATION.WRITE),
    "EndTxn": (TRANSACTIONAL_ID, OPERATION.WRITE),
    "WriteTxnMarkers": (CLUSTER, OPERATION.CLUSTER_ACTION),
    "TxnOffsetCommit": (TRANSACTIONAL_ID, OPERATION.WRITE),
    "DescribeAcls": (CLUSTER, OPERATION.DESCRIBE),
    "CreateAcls": (CLUSTER, OPERATION.ALTER),
    "DeleteAcls": (CLUSTER, OPERATION.ALTER),
    "DescribeConfigs": (TOPIC, OPERATION.DESCRIBE_CONFIGS),
    "AlterConfigs": (TOPIC, OPERATION.ALTER_CONFIGS),
    "AlterReplicaLogDirs": (CLUSTER, OPERATION.ALTER),
    "DescribeLogDirs": (CLUSTER, OPERATION.DESCRIBE),
    "CreatePartitions": (TOPIC, OPERATION.ALTER),
    "DeleteGroups": (GROUP, OPERATION.DELETE),
    "CreateDelegationToken": (USER, OPERATION.CREATE_TOKENS),
    "DescribeDelegationToken": (USER, OPERATION.DESCRIBE_TOKENS),
    "ElectLeaders": (CLUSTER, OPERATION.ALTER),
    "IncrementalAlterConfigs": (TOPIC, OPERATION.ALTER_CONFIGS),
    "AlterPartitionReassignments": (CLUSTER, OPERATION.ALTER),
    "ListPartitionReassignments": (CLUSTER, OPERATION.DESCRIBE),
    "OffsetDelete": (GROUP, OPERATION.DELETE),
    "DescribeClientQuotas": (CLUSTER, OPERATION.DESCRIBE_CONFIGS),
    "AlterClientQuotas": (CLUSTER, OPERATION.ALTER_CONFIGS),
    "DescribeUserScramCredentials": (CLUSTER, OPERATION.DESCRIBE),
    "AlterUserScramCredentials": (CLUSTER, OPERATION.ALTER),
    "AlterPartition": (CLUSTER, OPERATION.CLUSTER_ACTION),
    "UpdateFeatures": (CLUSTER, OPERATION.ALTER),
    "Envelope": (CLUSTER, OPERATION.CLUSTER_ACTION),
    "DescribeCluster": (CLUSTER, OPERATION.DESCRIBE),
    "DescribeProducers": (TOPIC, OPERATION.READ),
    "DescribeTransactions": (TRANSACTIONAL_ID, OPERATION.DESCRIBE),
    "ListTransactions": (TRANSACTIONAL_ID, OPERATION.DESCRIBE),
    "AllocateProducerIds": (CLUSTER, OPERATION.CLUSTER_ACTION),
    "ConsumerGroupHeartbeat": (GROUP, OPERATION.READ),
    "ConsumerGroupDescribe": (GROUP, OPERATION.DESCRIBE),
    "ListConfigResources": (CLUSTER, OPERATION.DESCRIBE_CONFIGS),
    "DescribeTopicPartitions": (TOPIC, OPERATION.DESCRIBE),
    "ShareGroupHeartbeat": (GROUP, OPERATION.READ),
    "ShareGroupDescribe": (GROUP, OPERATION.DESCRIBE),
    "ShareFetch": (GROUP, OPERATION.READ),
    "ShareAcknowledge": (GROUP, OPERATION.READ),
    "InitializeShareGroupState": (CLUSTER, OPERATION.CLUSTER_ACTION),
    "ReadShareGroupState": (CLUSTER, OPERATION.CLUSTER_ACTION),
    "WriteShareGroupState": (CLUSTER, OPERATION.CLUSTER_ACTION),
    "DeleteShareGroupState": (CLUSTER, OPERATION.CLUSTER_ACTION),
    "ReadShareGroupStateSummary": (CLUSTER, OPERATION.CLUSTER_ACTION),
    "StreamsGroupHeartbeat": (GROUP, OPERATION.READ),
    "StreamsGroupDescribe": (GROUP, OPERATION.DESCRIBE),
    "DescribeShareGroupOffsets": (GROUP, OPERATION.DESCRIBE),
    "AlterShareGroupOffsets": (GROUP, OPERATION.READ),
    "DeleteShareGroupOffsets": (GROUP, OPERATION.DELETE),
    "StreamsGroupTopologyDescriptionUpdate": (GROUP, OPERATION.READ),
    "DescribeQuorum": (CLUSTER, OPERATION.DESCRIBE),
    "UnregisterBroker": (CLUSTER, OPERATION.ALTER),
    "AddRaftVoter": (CLUSTER, OPERATION.ALTER),
    "RemoveRaftVoter": (CLUSTER, OPERATION.ALTER),
    "UnregisterController": (CLUSTER, OPERATION.ALTER),
}
"""Of keys that ask for several rights the one without which the rest does not count. Where one of two is enough, the wider
one; where brokers and clients ask in versions of their own, that of the last version. DescribeCluster asks for it only to
tell what the client may do."""

WITHOUT_RIGHTS = {
    # Whoever asks is not known yet.
    *("ApiVersions", "SaslHandshake", "SaslAuthenticate"),
    # The token says who may.
    *("RenewDelegationToken", "ExpireDelegationToken"),
    # As in Kafka whoever has a connection may push metrics.
    *("GetTelemetrySubscriptions", "PushTelemetry"),
}


def test_of_each_key_that_is_served_it_is_known_which_right_it_asks_for() -> None:
    served = {route.name for route in all_routes().values()}
    assert served == RIGHTS.keys() | WITHOUT_RIGHTS
    assert not RIGHTS.keys() & WITHOUT_RIGHTS


class AskedFor(OnlyThese):
    """Allows nothing, and notes also what is asked for quietly."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[tuple[ResourceType, AclOperation]] = set()

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str, quietly: bool
    ) -> bool:
        self.asked.add((resource_type, operation))
        return False


def filled(cls: type[Struct], number: int = 0) -> Any:
    """A message that has one element in each list, a letter in each string, and `number`, if it is one, in each byte."""
    made = cls.zero()
    for name, each in cls.wire_fields.items():
        item = each.type.item if isinstance(each.type, Array) else each.type
        one: Any = 0
        if isinstance(item, type) and issubclass(item, Struct):
            one = filled(item, number)
        elif item is String:
            one = "x"
        elif item is Int8 and number:
            one = number
        elif not isinstance(each.type, Array):
            continue
        setattr(made, name, [one] if isinstance(each.type, Array) else one)
    return made


# Requests that ask for nothing if they are filled in blindly.
EXAMPLES: dict[str, Message] = {
    "AlterConfigs": filled(AlterConfigsRequest, TOPIC),
    "CreateAcls": filled(CreateAclsRequest, 3),
    "DeleteAcls": filled(DeleteAclsRequest, 3),
    "DeleteTopics": DeleteTopicsRequest(topic_names=["x"], timeout_ms=1000),
    "DescribeAcls": filled(DescribeAclsRequest, 3),
    "DescribeCluster": DescribeClusterRequest(include_cluster_authorized_operations=True),
    "DescribeConfigs": filled(DescribeConfigsRequest, TOPIC),
    "IncrementalAlterConfigs": filled(IncrementalAlterConfigsRequest, TOPIC),
}
BY_NAME = {"Fetch": 12, "Produce": 12}
"""Later versions name topics by their ids, and of one that does not exist nobody asks."""
OF_WHAT_IS_THERE = {"ListTransactions", "DescribeDelegationToken"}
"""They ask for rights to what they have found."""
KNOWN = {"CreateDelegationToken"}
"""They are refused to everybody who is not known."""
CHECKED = [each for each in all_routes().values() if each.name in RIGHTS.keys() - OF_WHAT_IS_THERE]


@pytest.mark.parametrize("route", CHECKED, ids=lambda route: route.name)
async def test_a_key_asks_for_the_right_that_the_table_says(tmp_path: Path, route: Route) -> None:
    broker: Any = await opened(tmp_path)
    broker.authorizer = authorizer = AskedFor()
    request = EXAMPLES.get(route.name) or filled(route.request_class)
    security_protocol = "SASL_PLAINTEXT" if route.name in KNOWN else "PLAINTEXT"
    with suppress(CloseConnection):  # the answer to a refused Produce with acks=0
        await ask(broker, request, BY_NAME.get(route.name, route.versions.last), security_protocol=security_protocol)
    assert RIGHTS[route.name] in authorizer.asked
