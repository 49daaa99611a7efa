"""Versions of APIs that brokers tell their clients, by release and service.

Apache Kafka: as brokers of 0.10.2, 1.1, 2.8 and 3.9 (with ZooKeeper) and of 4.4 answer ApiVersions; requests between brokers are
told, too, and not served. Redpanda: as the handlers in its source declare them (v24.3). WarpStream: the requests that its page
"Protocol and Feature Support" lists, in the versions of Kafka 3.9, as the page has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.server.dispatch.apis import APIS
from ottla.wire.schema import VersionRange

Versions = Mapping[int, VersionRange]

_KEYS: Final = {api.name: api.api_key for api in APIS}


def _table(text: str) -> Versions:
    """Read a table: names of APIs and their versions, such as "Produce 0-3, Heartbeat 0"."""
    pairs = (each.split() for each in text.split(","))
    return {_KEYS[name]: VersionRange.parse(versions) for name, versions in pairs}


def without(versions: Versions, names: Iterable[str]) -> Versions:
    """Return a table without some APIs."""
    gone = {_KEYS[name] for name in names}
    return {key: each for key, each in versions.items() if key not in gone}


def only(versions: Versions, names: Iterable[str]) -> Versions:
    """Return a table with these APIs alone."""
    return {_KEYS[name]: versions[_KEYS[name]] for name in names}


KAFKA_0_10 = _table(
    """
    Produce 0-2, Fetch 0-3, ListOffsets 0-1, Metadata 0-2, LeaderAndIsr 0, StopReplica 0, UpdateMetadata 0-3,
    ControlledShutdown 1, OffsetCommit 0-2, OffsetFetch 0-2, FindCoordinator 0, JoinGroup 0-1, Heartbeat 0,
    LeaveGroup 0, SyncGroup 0, DescribeGroups 0, ListGroups 0, SaslHandshake 0, ApiVersions 0, CreateTopics 0-1,
    DeleteTopics 0
    """
)

KAFKA_1_1 = _table(
    """
    Produce 0-5, Fetch 0-7, ListOffsets 0-2, Metadata 0-5, LeaderAndIsr 0-1, StopReplica 0, UpdateMetadata 0-4,
    ControlledShutdown 0-1, OffsetCommit 0-3, OffsetFetch 0-3, FindCoordinator 0-1, JoinGroup 0-2, Heartbeat
    0-1, LeaveGroup 0-1, SyncGroup 0-1, DescribeGroups 0-1, ListGroups 0-1, SaslHandshake 0-1, ApiVersions 0-1,
    CreateTopics 0-2, DeleteTopics 0-1, DeleteRecords 0, InitProducerId 0, OffsetForLeaderEpoch 0,
    AddPartitionsToTxn 0, AddOffsetsToTxn 0, EndTxn 0, WriteTxnMarkers 0, TxnOffsetCommit 0, DescribeAcls 0,
    CreateAcls 0, DeleteAcls 0, DescribeConfigs 0-1, AlterConfigs 0, AlterReplicaLogDirs 0, DescribeLogDirs 0,
    SaslAuthenticate 0, CreatePartitions 0, CreateDelegationToken 0, RenewDelegationToken 0,
    ExpireDelegationToken 0, DescribeDelegationToken 0, DeleteGroups 0
    """
)

KAFKA_2_8 = _table(
    """
    Produce 0-9, Fetch 0-12, ListOffsets 0-6, Metadata 0-11, LeaderAndIsr 0-5, StopReplica 0-3, UpdateMetadata
    0-7, ControlledShutdown 0-3, OffsetCommit 0-8, OffsetFetch 0-7, FindCoordinator 0-3, JoinGroup 0-7,
    Heartbeat 0-4, LeaveGroup 0-4, SyncGroup 0-5, DescribeGroups 0-5, ListGroups 0-4, SaslHandshake 0-1,
    ApiVersions 0-3, CreateTopics 0-7, DeleteTopics 0-6, DeleteRecords 0-2, InitProducerId 0-4,
    OffsetForLeaderEpoch 0-4, AddPartitionsToTxn 0-3, AddOffsetsToTxn 0-3, EndTxn 0-3, WriteTxnMarkers 0-1,
    TxnOffsetCommit 0-3, DescribeAcls 0-2, CreateAcls 0-2, DeleteAcls 0-2, DescribeConfigs 0-4, AlterConfigs
    0-2, AlterReplicaLogDirs 0-2, DescribeLogDirs 0-2, SaslAuthenticate 0-2, CreatePartitions 0-3,
    CreateDelegationToken 0-2, RenewDelegationToken 0-2, ExpireDelegationToken 0-2, DescribeDelegationToken 0-2,
    DeleteGroups 0-2, ElectLeaders 0-2, IncrementalAlterConfigs 0-1, AlterPartitionReassignments 0,
    ListPartitionReassignments 0, OffsetDelete 0, DescribeClientQuotas 0-1, AlterClientQuotas 0-1,
    DescribeUserScramCredentials 0, AlterUserScramCredentials 0, AlterPartition 0, UpdateFeatures 0,
    DescribeCluster 0, DescribeProducers 0
    """
)

KAFKA_3_9 = _table(
    """
    Produce 0-11, Fetch 0-17, ListOffsets 0-9, Metadata 0-12, LeaderAndIsr 0-7, StopReplica 0-4, UpdateMetadata
    0-8, ControlledShutdown 0-3, OffsetCommit 0-9, OffsetFetch 0-9, FindCoordinator 0-6, JoinGroup 0-9,
    Heartbeat 0-4, LeaveGroup 0-5, SyncGroup 0-5, DescribeGroups 0-5, ListGroups 0-5, SaslHandshake 0-1,
    ApiVersions 0-4, CreateTopics 0-7, DeleteTopics 0-6, DeleteRecords 0-2, InitProducerId 0-5,
    OffsetForLeaderEpoch 0-4, AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4, EndTxn 0-4, WriteTxnMarkers 0-1,
    TxnOffsetCommit 0-4, DescribeAcls 0-3, CreateAcls 0-3, DeleteAcls 0-3, DescribeConfigs 0-4, AlterConfigs
    0-2, AlterReplicaLogDirs 0-2, DescribeLogDirs 0-4, SaslAuthenticate 0-2, CreatePartitions 0-3,
    CreateDelegationToken 0-3, RenewDelegationToken 0-2, ExpireDelegationToken 0-2, DescribeDelegationToken 0-3,
    DeleteGroups 0-2, ElectLeaders 0-2, IncrementalAlterConfigs 0-1, AlterPartitionReassignments 0,
    ListPartitionReassignments 0, OffsetDelete 0, DescribeClientQuotas 0-1, AlterClientQuotas 0-1,
    DescribeUserScramCredentials 0, AlterUserScramCredentials 0, AlterPartition 0-3, UpdateFeatures 0-1,
    Envelope 0, DescribeCluster 0-1, DescribeProducers 0, DescribeTransactions 0, ListTransactions 0-1,
    AllocateProducerIds 0, ConsumerGroupHeartbeat 0, ConsumerGroupDescribe 0
    """
)

KAFKA_4_4 = _table(
    """
    Produce 0-13, Fetch 4-18, ListOffsets 1-11, Metadata 0-13, OffsetCommit 2-10, OffsetFetch 1-10,
    FindCoordinator 0-6, JoinGroup 0-9, Heartbeat 0-4, LeaveGroup 0-5, SyncGroup 0-5, DescribeGroups 0-6,
    ListGroups 0-5, SaslHandshake 0-1, ApiVersions 0-5, CreateTopics 2-7, DeleteTopics 1-6, DeleteRecords 0-2,
    InitProducerId 0-5, OffsetForLeaderEpoch 2-4, AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4, EndTxn 0-5,
    WriteTxnMarkers 1-2, TxnOffsetCommit 0-6, DescribeAcls 1-3, CreateAcls 1-3, DeleteAcls 1-3, DescribeConfigs 1-4, AlterConfigs 0-2, AlterReplicaLogDirs 1-2, DescribeLogDirs 1-5, SaslAuthenticate 0-2, CreatePartitions
    0-3, CreateDelegationToken 1-3, RenewDelegationToken 1-2, ExpireDelegationToken 1-2, DescribeDelegationToken
    1-3, DeleteGroups 0-3, ElectLeaders 0-2, IncrementalAlterConfigs 0-1, AlterPartitionReassignments 0-1,
    ListPartitionReassignments 0, OffsetDelete 0, DescribeClientQuotas 0-1, AlterClientQuotas 0-1,
    DescribeUserScramCredentials 0, AlterUserScramCredentials 0, DescribeQuorum 0-2, UpdateFeatures 0-2,
    DescribeCluster 0-2, DescribeProducers 0, UnregisterBroker 0, DescribeTransactions 0, ListTransactions 0-2,
    ConsumerGroupHeartbeat 0-1, ConsumerGroupDescribe 0-1, ListConfigResources 0-1, DescribeTopicPartitions 0,
    ShareGroupHeartbeat 1, ShareGroupDescribe 1, ShareFetch 1-2, ShareAcknowledge 1-2, AddRaftVoter 0-1,
    RemoveRaftVoter 0, InitializeShareGroupState 0, ReadShareGroupState 0, WriteShareGroupState 0-1,
    DeleteShareGroupState 0, ReadShareGroupStateSummary 0-1, StreamsGroupHeartbeat 0-1, StreamsGroupDescribe
    0-1, DescribeShareGroupOffsets 0-1, AlterShareGroupOffsets 0, DeleteShareGroupOffsets 0,
    StreamsGroupTopologyDescriptionUpdate 0, UnregisterController 0
    """
)

REDPANDA = _table(
    """
    Produce 0-7, Fetch 4-11, ListOffsets 0-4, Metadata 0-8, OffsetCommit 1-8, OffsetFetch 1-7, FindCoordinator 0-3,
    JoinGroup 0-6, Heartbeat 0-4, LeaveGroup 0-4, SyncGroup 0-4, DescribeGroups 0-5, ListGroups 0-4,
    SaslHandshake 0-1, ApiVersions 0-3, CreateTopics 0-6, DeleteTopics 0-5, DeleteRecords 0-2, InitProducerId 0-3,
    OffsetForLeaderEpoch 0-4, AddPartitionsToTxn 0-3, AddOffsetsToTxn 0-1, EndTxn 0-3, TxnOffsetCommit 0-3,
    DescribeAcls 0-2, CreateAcls 0-2, DeleteAcls 0-2, DescribeConfigs 0-4, AlterConfigs 0-2, DescribeLogDirs 0-2,
    SaslAuthenticate 0-2, CreatePartitions 0-3, DeleteGroups 0-2, IncrementalAlterConfigs 0-1,
    AlterPartitionReassignments 0, ListPartitionReassignments 0, OffsetDelete 0, DescribeClientQuotas 0-1,
    AlterClientQuotas 0-1, DescribeProducers 0, DescribeTransactions 0, ListTransactions 0
    """
)

WARPSTREAM = only(
    KAFKA_3_9,
    [
        "Produce",
        "InitProducerId",
        "Fetch",
        "ListOffsets",
        "Metadata",
        "OffsetCommit",
        "OffsetFetch",
        "FindCoordinator",
        "JoinGroup",
        "Heartbeat",
        "SyncGroup",
        "OffsetDelete",
        "ApiVersions",
        "CreateTopics",
        "DeleteTopics",
        "ListGroups",
        "AlterConfigs",
        "DescribeConfigs",
        "DescribeCluster",
        "DescribeGroups",
        "DeleteGroups",
        "LeaveGroup",
        "CreateAcls",
        "DescribeAcls",
        "DeleteAcls",
        "CreatePartitions",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "EndTxn",
        "TxnOffsetCommit",
        "DescribeTransactions",
        "ListTransactions",
        "SaslHandshake",
        "SaslAuthenticate",
    ],
)
