"""Handlers of Kafka's requests. Each file has the name of the one in `wire/messages/` that declares them.

acls.py                       CreateAcls, DescribeAcls, DeleteAcls
alter_configs.py              IncrementalAlterConfigs, AlterConfigs
api_versions.py               ApiVersions
classic_group.py              JoinGroup, SyncGroup, Heartbeat, LeaveGroup
client_quotas.py              DescribeClientQuotas, AlterClientQuotas
cluster.py                    DescribeCluster, UpdateFeatures
consumer_group.py             ConsumerGroupHeartbeat, ConsumerGroupDescribe
controller_requests.py        LeaderAndIsr, StopReplica, UpdateMetadata, AlterPartition, ControlledShutdown
create_topics.py              CreateTopics, CreatePartitions
delegation_tokens.py          CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken
delete_topics.py              DeleteTopics, DeleteRecords
describe_configs.py           DescribeConfigs, ListConfigResources
describe_topic_partitions.py  DescribeTopicPartitions
describe_transactions.py      DescribeTransactions, ListTransactions, DescribeProducers
elect_leaders.py              ElectLeaders
envelope.py                   Envelope
fetch.py                      Fetch
find_coordinator.py           FindCoordinator
groups.py                     DescribeGroups, ListGroups, DeleteGroups
list_offsets.py               ListOffsets
log_dirs.py                   AlterReplicaLogDirs, DescribeLogDirs
metadata.py                   Metadata
offset_for_leader_epoch.py    OffsetForLeaderEpoch
offsets.py                    OffsetCommit, OffsetFetch, OffsetDelete
partition_reassignments.py    AlterPartitionReassignments, ListPartitionReassignments
produce.py                    Produce
producer_ids.py               InitProducerId, AllocateProducerIds
quorum.py                     DescribeQuorum, AddRaftVoter, RemoveRaftVoter, UnregisterBroker, UnregisterController
sasl.py                       SaslHandshake, SaslAuthenticate
scram_credentials.py          DescribeUserScramCredentials, AlterUserScramCredentials
share_fetch.py                ShareFetch, ShareAcknowledge
share_group.py                ShareGroupHeartbeat, ShareGroupDescribe, and the offsets of share groups
share_group_state.py          state of share partitions: initialize, read, write, delete
streams_group.py              StreamsGroupHeartbeat, StreamsGroupDescribe, StreamsGroupTopologyDescriptionUpdate
telemetry.py                  GetTelemetrySubscriptions, PushTelemetry
transactions.py               AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, WriteTxnMarkers
"""
