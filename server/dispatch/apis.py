"""The requests that this broker serves: Kafka's key and name of each, its versions, and how it is served.

APIs of one thing share a module: `CreateAcls` is declared in `wire/messages/acls.py` and handled in `server/api/handlers/acls.py`. A start reads
this table and imports neither; both are imported when a client first sends such a request. `server/tests/dispatch/test_routes.py` holds the
table to handlers and messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.wire.schema import VersionRange


@dataclass(eq=False)
class Api:
    """A Kafka API (type of request) that this broker serves: its versions, its handler's module, where it is served."""

    name: str
    """Kafka's, such as `ListOffsets`."""
    api_key: int
    versions: VersionRange
    """Versions that are advertised and served."""
    module: str
    """Name of the module of the handler, and of that of the messages."""
    abandonable: bool = False
    """May be cancelled when its peer has closed the connection: it waits for long before it changes anything."""
    reads_only: bool = False
    """May be cancelled in the same way: it works for long if it is asked for much, and changes nothing."""
    answers_at_length: bool = False
    """Its answer is encoded in a thread, if it had to be awaited."""
    few_at_once: bool = False
    """Two of them are worked on at a time, if they have to be awaited: a few bytes may ask for much work."""
    forwarded: bool = False
    """Carried out only by the controller; other members forward it, and refuse it if that fails."""
    alone_only: bool = False
    """Neither served nor advertised by a member of a cluster."""
    between_brokers: bool = False
    """Served only by members of a cluster, and only on their inter-broker listener."""
    in_cluster_only: bool = False
    """Neither served nor advertised by a broker that is alone."""
    with_receiver_only: bool = False
    """Neither served nor advertised by a broker without a receiver of client metrics."""
    unadvertised: bool = False
    """Left out of ApiVersions answers."""
    unmetered: bool = False
    """The time that it takes does not count for the quota of its client, as in Kafka."""
    long_bytes: bool = False
    """Allowed to be longer than other requests: it has a field of bytes, and nothing that costs for each of many."""
    pipelined: bool = False
    """Handled while answers to earlier requests of the connection are pending."""
    older: VersionRange | None = None
    """Versions below these that Kafka 3.9 had: advertised and served with `older.api.versions.enable`. None: there are none."""

    def __post_init__(self) -> None:
        # A broker that is alone has no others that could ask.
        self.in_cluster_only |= self.between_brokers
        self.unmetered |= self.between_brokers

    def served(self, *, has_older: bool) -> VersionRange:
        """Return the versions that are served; `has_older`: those of Kafka 3.9, too."""
        return VersionRange(self.older.first, self.versions.last) if has_older and self.older else self.versions


def _api(api_key: int, name: str, versions: str, module: str, *, older: str | None = None, **options: bool) -> Api:
    told = None if older is None else VersionRange.parse(older)
    return Api(name, api_key, VersionRange.parse(versions), module, older=told, **options)


APIS: Final = (
    _api(0, "Produce", "0-13", "produce", pipelined=True),
    _api(1, "Fetch", "0-18", "fetch", abandonable=True, answers_at_length=True),
    _api(2, "ListOffsets", "1-11", "list_offsets", older="0", reads_only=True),
    _api(3, "Metadata", "0-13", "metadata", answers_at_length=True, few_at_once=True, reads_only=True),
    _api(4, "LeaderAndIsr", "5-7", "controller_requests", between_brokers=True),
    _api(5, "StopReplica", "3-4", "controller_requests", between_brokers=True),
    _api(6, "UpdateMetadata", "7-8", "controller_requests", between_brokers=True),
    _api(7, "ControlledShutdown", "0-3", "controller_requests", between_brokers=True),
    _api(8, "OffsetCommit", "2-10", "offsets", older="0-1"),
    _api(9, "OffsetFetch", "1-10", "offsets", older="0", reads_only=True),
    _api(10, "FindCoordinator", "0-6", "find_coordinator"),
    _api(11, "JoinGroup", "0-9", "classic_group", abandonable=True),
    _api(12, "Heartbeat", "0-4", "classic_group"),
    _api(13, "LeaveGroup", "0-5", "classic_group"),
    _api(14, "SyncGroup", "0-5", "classic_group", abandonable=True),
    _api(15, "DescribeGroups", "0-6", "groups", answers_at_length=True, few_at_once=True, reads_only=True),
    _api(16, "ListGroups", "0-5", "groups", answers_at_length=True, few_at_once=True, reads_only=True),
    _api(17, "SaslHandshake", "0-1", "sasl"),
    _api(18, "ApiVersions", "0-5", "api_versions"),
    _api(19, "CreateTopics", "2-7", "create_topics", older="0-1", answers_at_length=True, forwarded=True),
    _api(20, "DeleteTopics", "1-6", "delete_topics", older="0", forwarded=True),
    _api(21, "DeleteRecords", "0-2", "delete_topics"),
    _api(22, "InitProducerId", "0-5", "producer_ids"),
    _api(23, "OffsetForLeaderEpoch", "2-4", "offset_for_leader_epoch", older="0-1", reads_only=True),
    _api(24, "AddPartitionsToTxn", "0-5", "transactions"),
    _api(25, "AddOffsetsToTxn", "0-4", "transactions"),
    _api(26, "EndTxn", "0-5", "transactions"),
    _api(27, "WriteTxnMarkers", "1-2", "transactions", older="0", unmetered=True),
    _api(28, "TxnOffsetCommit", "0-6", "transactions"),
    _api(29, "DescribeAcls", "1-3", "acls", older="0", answers_at_length=True, few_at_once=True, reads_only=True),
    _api(30, "CreateAcls", "1-3", "acls", older="0", few_at_once=True),
    _api(31, "DeleteAcls", "1-3", "acls", older="0", answers_at_length=True, few_at_once=True),
    _api(32, "DescribeConfigs", "1-4", "describe_configs", older="0", answers_at_length=True, reads_only=True),
    _api(33, "AlterConfigs", "0-2", "alter_configs"),
    _api(34, "AlterReplicaLogDirs", "1-2", "log_dirs", older="0"),
    _api(
        35, "DescribeLogDirs", "1-5", "log_dirs", older="0", answers_at_length=True, few_at_once=True, reads_only=True
    ),
    _api(36, "SaslAuthenticate", "0-2", "sasl"),
    _api(37, "CreatePartitions", "0-3", "create_topics", forwarded=True),
    _api(38, "CreateDelegationToken", "1-3", "delegation_tokens", older="0"),
    _api(39, "RenewDelegationToken", "1-2", "delegation_tokens", older="0"),
    _api(40, "ExpireDelegationToken", "1-2", "delegation_tokens", older="0"),
    _api(
        41,
        "DescribeDelegationToken",
        "1-3",
        "delegation_tokens",
        older="0",
        answers_at_length=True,
        few_at_once=True,
        reads_only=True,
    ),
    _api(42, "DeleteGroups", "0-3", "groups"),
    _api(43, "ElectLeaders", "0-2", "elect_leaders", answers_at_length=True, forwarded=True),
    _api(44, "IncrementalAlterConfigs", "0-1", "alter_configs"),
    _api(45, "AlterPartitionReassignments", "0-1", "partition_reassignments", answers_at_length=True, forwarded=True),
    _api(
        46,
        "ListPartitionReassignments",
        "0-0",
        "partition_reassignments",
        answers_at_length=True,
        forwarded=True,
        reads_only=True,
    ),
    _api(47, "OffsetDelete", "0-0", "offsets"),
    _api(48, "DescribeClientQuotas", "0-1", "client_quotas", answers_at_length=True, reads_only=True),
    _api(49, "AlterClientQuotas", "0-1", "client_quotas"),
    _api(50, "DescribeUserScramCredentials", "0-0", "scram_credentials", answers_at_length=True, reads_only=True),
    _api(51, "AlterUserScramCredentials", "0-0", "scram_credentials"),
    _api(55, "DescribeQuorum", "0-2", "quorum", alone_only=True),
    _api(56, "AlterPartition", "2-3", "controller_requests", between_brokers=True),
    _api(57, "UpdateFeatures", "0-2", "cluster", forwarded=True),
    _api(58, "Envelope", "0-0", "envelope", between_brokers=True, long_bytes=True, unadvertised=True),
    _api(60, "DescribeCluster", "0-2", "cluster"),
    _api(
        61,
        "DescribeProducers",
        "0-0",
        "describe_transactions",
        answers_at_length=True,
        few_at_once=True,
        reads_only=True,
    ),
    _api(64, "UnregisterBroker", "0-0", "quorum", alone_only=True),
    _api(
        65,
        "DescribeTransactions",
        "0-0",
        "describe_transactions",
        answers_at_length=True,
        few_at_once=True,
        reads_only=True,
    ),
    _api(
        66,
        "ListTransactions",
        "0-2",
        "describe_transactions",
        answers_at_length=True,
        few_at_once=True,
        reads_only=True,
    ),
    _api(67, "AllocateProducerIds", "0-0", "producer_ids", between_brokers=True),
    _api(68, "ConsumerGroupHeartbeat", "0-1", "consumer_group"),
    _api(
        69, "ConsumerGroupDescribe", "0-1", "consumer_group", answers_at_length=True, few_at_once=True, reads_only=True
    ),
    _api(71, "GetTelemetrySubscriptions", "0-0", "telemetry", with_receiver_only=True),
    _api(72, "PushTelemetry", "0-0", "telemetry", long_bytes=True, with_receiver_only=True),
    _api(
        74, "ListConfigResources", "0-1", "describe_configs", answers_at_length=True, few_at_once=True, reads_only=True
    ),
    _api(
        75,
        "DescribeTopicPartitions",
        "0-0",
        "describe_topic_partitions",
        alone_only=True,
        answers_at_length=True,
        few_at_once=True,
        reads_only=True,
    ),
    _api(76, "ShareGroupHeartbeat", "1-1", "share_group"),
    _api(77, "ShareGroupDescribe", "1-1", "share_group", answers_at_length=True, few_at_once=True, reads_only=True),
    _api(78, "ShareFetch", "1-2", "share_fetch", abandonable=True, answers_at_length=True),
    _api(79, "ShareAcknowledge", "1-2", "share_fetch"),
    _api(80, "AddRaftVoter", "0-1", "quorum", alone_only=True),
    _api(81, "RemoveRaftVoter", "0-0", "quorum", alone_only=True),
    _api(83, "InitializeShareGroupState", "0-0", "share_group_state", answers_at_length=True),
    _api(84, "ReadShareGroupState", "0-0", "share_group_state", answers_at_length=True),
    _api(85, "WriteShareGroupState", "0-1", "share_group_state", answers_at_length=True),
    _api(86, "DeleteShareGroupState", "0-0", "share_group_state", answers_at_length=True),
    _api(87, "ReadShareGroupStateSummary", "0-1", "share_group_state", answers_at_length=True),
    _api(88, "StreamsGroupHeartbeat", "0-1", "streams_group"),
    _api(89, "StreamsGroupDescribe", "0-1", "streams_group", answers_at_length=True, few_at_once=True, reads_only=True),
    _api(
        90, "DescribeShareGroupOffsets", "0-1", "share_group", answers_at_length=True, few_at_once=True, reads_only=True
    ),
    _api(91, "AlterShareGroupOffsets", "0-0", "share_group"),
    _api(92, "DeleteShareGroupOffsets", "0-0", "share_group"),
    _api(93, "StreamsGroupTopologyDescriptionUpdate", "0-0", "streams_group"),
    _api(94, "UnregisterController", "0-0", "quorum", alone_only=True),
)

NOT_SERVED = {
    52: "Vote",
    53: "BeginQuorumEpoch",
    54: "EndQuorumEpoch",
    59: "FetchSnapshot",
    62: "BrokerRegistration",
    63: "BrokerHeartbeat",
    70: "ControllerRegistration",
    73: "AssignReplicasToDirs",
    82: "UpdateRaftVoter",
}
"""Kafka's names of requests that are not served, for log lines."""
