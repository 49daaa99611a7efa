"""What random requests are made of: the values of their fields, by name, and the requests that are not drawn.

What stands in angle brackets is a symbol, which `random_world.py` looks up in the world of one telling. What is there comes
first and often, so that the steps of a sequence meet.
"""

from typing import Any

LEFT_OUT = {
    "ApiVersions": "what is served differs by design",
    "DescribeLogDirs": "sizes on a disk are everybody's own",
    "AlterUserScramCredentials": "nothing is only validated, so users of one telling would show in others",
    **dict.fromkeys(
        ("DescribeQuorum", "UnregisterBroker", "AddRaftVoter", "RemoveRaftVoter", "UnregisterController"),
        "they change Apache Kafka's quorum, which Ottla has not; scenarios/quorum.py asks what both can answer",
    ),
}
INT16_MAX, INT32_MAX, INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1

topic_names = ("<one>", "<one>", "<one>", "<two>", "<compacted>", "nothing", "", "not a name")
topic_ids = ("<id of one>", "<id of one>", "<id of two>", "00" * 16, "07" * 16)
group_ids = ("<group>", "<group>", "<other group>", "")
transactional_ids = ("<first id>", "<first id>", "<second id>", "")
indexes = (0, 0, 0, 1, 2, -1, INT32_MAX)
offsets = (0, 1, 2, 3, 4, 5, 6, -1, -2, INT64_MAX)
epochs = (-1, 0, 1, INT32_MAX)
producer_ids = ("<producer>", "<producer>", -1, 5, "<producer + 1>", "<producer - 1>", -2)
producer_epochs = (
    "<producer epoch>",
    "<producer epoch>",
    "<producer epoch + 1>",
    "<producer epoch - 1>",
    -1,
    0,
    -2,
    INT16_MAX,
)
config_names = ("retention.ms", "cleanup.policy", "max.message.bytes", "nothing", "")
config_values = ("1000", "-1", "-2", "compact", "", None)
feature_names = ("group.version", "share.version", "streams.version", "transaction.version", "nothing", "")
subscriptions: tuple[Any, ...] = (None, ["<one>"], ["<two>"], ["<one>", "<two>"], ["<two>", "nothing"], [], [""])
members = ("a", "a", "b")
member_epochs = ("<epoch>", "<epoch>", 0, 1, -1, -2, -3, "<epoch - 1>", "<epoch + 1>", INT32_MAX)
one_partition = ({"topic_id": "<id of one>", "partitions": [0]}, {"topic_id": "<id of two>", "partitions": [0, 1]})


def _subtopology(name: str, *sources: str, **details: Any) -> dict[str, Any]:
    empty = ("source_topic_regex", "state_changelog_topics", "repartition_sink_topics", "repartition_source_topics")
    fields: dict[str, Any] = {each: [] for each in (*empty, "copartition_groups")}
    return {"subtopology_id": name, "source_topics": list(sources)} | fields | details


def _internal(name: str, partitions: int = 0) -> dict[str, Any]:
    return {"name": name, "partitions": partitions, "replication_factor": 0, "topic_configs": []}


def topology(*parts: dict[str, Any], epoch: int = 0) -> dict[str, Any]:
    return {"epoch": epoch, "subtopologies": list(parts)}


PLAIN = topology(_subtopology("0", "<two>"))
TWO_PARTS = topology(_subtopology("0", "<two>"), _subtopology("1", "<one>"))
STATEFUL = topology(_subtopology("0", "<one>", state_changelog_topics=[_internal("<compacted>")]))
topologies = (
    None,
    PLAIN,
    PLAIN,
    PLAIN | {"epoch": 1},
    PLAIN | {"epoch": -1},
    TWO_PARTS,
    STATEFUL,
    topology(_subtopology("0", "nothing")),
    topology(_subtopology("0")),
    topology(),
    topology(_subtopology("0", "<one>", state_changelog_topics=[_internal("<two>")])),
    topology(_subtopology("0", "<one>", source_topic_regex=["["])),
    topology(_subtopology("0", "<one>"), _subtopology("0", "<two>")),
)
tasks: tuple[Any, ...] = (
    None,
    [],
    [{"subtopology_id": "0", "partitions": [0]}],
    [{"subtopology_id": "0", "partitions": [0, 1]}],
    [{"subtopology_id": "1", "partitions": [0]}],
    [{"subtopology_id": "0", "partitions": [7]}],
    [{"subtopology_id": "0", "partitions": []}],
)

# The values of a field, by its struct's and its own name or by its own alone.
VALUES: dict[str, tuple[Any, ...]] = {
    "topic": topic_names,
    "name": topic_names,
    "topic_id": topic_ids,
    "topic_names": ("nothing", "", "not a name"),
    # Not the id of zeros: two of its partitions are a null pointer in Kafka's FetchResponse, and the whole request fails.
    "FetchTopic.topic_id": (*topic_ids[:3], topic_ids[4]),
    "DeleteTopicState.name": ("nothing", "", None),
    "DeleteTopicState.topic_id": topic_ids[3:],
    "group_id": group_ids,
    "groups_names": group_ids,
    "DescribeGroupsRequest.groups": group_ids,
    "group_ids": group_ids,
    "include_topology_description": (False, True),
    "coordinator_keys": group_ids,
    "FindCoordinatorRequest.key": group_ids,
    "states_filter": ("Stable", "Empty", "empty", "Dead", "nothing", ""),
    "types_filter": ("classic", "Classic", "consumer", "share", "streams", "nothing", ""),
    "index": indexes,
    "partition": indexes,
    "partition_index": indexes,
    "AlterShareGroupOffsetsRequestPartition.partition_index": (
        0,
        0,
        1,
        2,
    ),  # of a negative one the text has a topic's id
    "Cursor.partition_index": (0, 1, 2, -1),  # near 2^31 Kafka's sum of it and the limit turns negative
    "partition_indexes": indexes,
    "partitions": indexes,
    "offset": offsets,
    "start_offset": offsets,
    "first_offset": offsets,
    "last_offset": offsets,
    # Kafka takes batches that end before they begin, and what it makes of them has no meaning.
    "StateBatch.first_offset": (0, 1, 2),
    "StateBatch.last_offset": (2, 3, 6),
    "fetch_offset": offsets,
    "committed_offset": offsets,
    "committed_metadata": ("", "words", None),
    "committed_leader_epoch": epochs,
    "timestamp": (-1, -2, -3, -4, -5, -6, -7, 0, 1000, 1001, 1004, 1005, INT64_MAX),
    "current_leader_epoch": epochs,
    "leader_epoch": epochs,
    "state_epoch": (0, 0, 1, 2, -1, INT32_MAX),
    "delivery_complete_count": (0, 1, -1, INT32_MAX),
    "delivery_state": (0, 2, 4, 1, 3, -1),
    "delivery_count": (0, 1, 2, 5, -1, INT16_MAX),
    "last_fetched_epoch": epochs,
    "isolation_level": (0, 1),
    "ListOffsetsRequest.replica_id": (-1, -2),
    "OffsetForLeaderEpochRequest.replica_id": (-1, -2),
    "FetchRequest.replica_id": (-1,),
    "FetchPartition.log_start_offset": (-1, 0),
    "timeout_ms": (10_000, 0),
    "acks": (-1, 1, 2),
    "max_wait_ms": (0,),
    "min_bytes": (0, 1),
    "max_bytes": (0, 1, 100, 1 << 20),
    "partition_max_bytes": (0, 1, 100, 1 << 20),
    "max_records": (500, 500, 1, 2, 0, -1),
    "batch_size": (500, 500, 1, 2, 0, -1),
    "share_acquire_mode": (0, 0, 1, 2),
    "is_renew_ack": (False, False, True),
    "share_session_epoch": ("<share epoch>", "<share epoch>", "<share epoch>", 0, -1, 1, 5, -2, INT32_MAX),
    "acknowledge_types": (1, 2, 3, 0, 4, 5, -1),
    "session_id": (0, "<session>", 7),
    "session_epoch": (-1, 0, 1, 2),
    "rack_id": ("",),
    "ConsumerGroupHeartbeatRequest.rack_id": (None, "rack", ""),
    "ShareGroupHeartbeatRequest.rack_id": (None, "rack", ""),
    "StreamsGroupHeartbeatRequest.rack_id": (None, "rack", ""),
    "generation_id": ("<generation>", "<generation>", -1, 0, 1, 2),
    "generation_id_or_member_epoch": ("<generation>", "<generation>", "<epoch>", -1, 0, 1),
    "member_epoch": member_epochs,
    "member_id": ("<member>", "<member>", "", "stranger"),
    "ConsumerGroupHeartbeatRequest.member_id": (*members, ""),
    "ShareGroupHeartbeatRequest.member_id": (*members, ""),
    "StreamsGroupHeartbeatRequest.member_id": (*members, ""),
    "StreamsGroupTopologyDescriptionUpdateRequest.member_id": (*members, ""),
    "ShareFetchRequest.member_id": (*members, "", None),
    "ShareAcknowledgeRequest.member_id": (*members, "", None),
    "ShareFetchRequest.group_id": (*group_ids, None),
    "ShareAcknowledgeRequest.group_id": (*group_ids, None),
    "TxnOffsetCommitRequest.member_id": (*members, "", "<member>"),
    "instance_id": (None, "instance", ""),
    "group_instance_id": (None, "instance"),
    "rebalance_timeout_ms": (30_000,),
    "ConsumerGroupHeartbeatRequest.rebalance_timeout_ms": (30_000, 40_000, -1, 0, -2),
    "StreamsGroupHeartbeatRequest.rebalance_timeout_ms": (30_000, 40_000, -1, 0, -2),
    "subscribed_topic_regex": (None, "", "["),
    "server_assignor": (None, "uniform", "range", "nothing", ""),
    "endpoint_information_epoch": (-1, 0, 1),
    "StreamsGroupHeartbeatRequest.topology": topologies,
    "process_id": (None, "process", "another", ""),
    "user_endpoint": (None, {"host": "host", "port": 1}),
    "shutdown_application": (False, False, True),
    "topology_epoch": (0, 1, -1),
    "topology_description": ({"subtopologies": [], "global_stores": []},),
    "session_timeout_ms": (30_000, 1, INT32_MAX),
    "protocol_type": ("consumer", "other", "", None),
    "JoinGroupRequest.protocol_type": ("consumer", "other", ""),
    "protocol_name": ("range", "other", None),
    "JoinGroupRequestProtocol.name": ("range", "other"),
    "metadata": ("", "6d"),
    "assignment": ("", "61"),
    "reason": (None, "tired"),
    "require_stable": (False, True),
    "include_synonyms": (False, True),
    "include_authorized_operations": (False, True),
    "include_topic_authorized_operations": (False, True),
    "include_cluster_authorized_operations": (False, True),
    "include_fenced_brokers": (False, True),
    "endpoint_type": (1, 0, 2, 3),
    "allow_auto_topic_creation": (False,),
    "validate_only": (True,),
    "num_partitions": (-1, 0, 1, 3),
    "replication_factor": (-1, 0, 1, 2),
    "CreatableTopic.name": ("<new>", *topic_names),
    "broker_ids": (0, 1, -1),
    "count": (-1, 0, 1, 2, 3, 5),
    "resource_type": (2, 0, 3),
    "resource_types": (2, 4, 8, 16, 32, 0, 1, -1, 64),
    "resource_name": topic_names,
    "configuration_keys": config_names,
    "CreatableTopicConfig.name": config_names,
    "AlterableConfig.name": config_names,
    "value": config_values,
    "config_operation": (0, 1, 2, 3),  # to others Kafka answers UNKNOWN_SERVER_ERROR, which allowed.py has a line for
    "transactional_id": transactional_ids,
    "transactional_ids": transactional_ids,
    "v3_and_below_transactional_id": transactional_ids,
    "ProduceRequest.transactional_id": (None, None, "<first id>"),
    "InitProducerIdRequest.transactional_id": (None, "", "<first id>", "<second id>"),
    "transaction_timeout_ms": (60_000, 60_000, 0, -1, INT32_MAX),
    "producer_id": producer_ids,
    "v3_and_below_producer_id": producer_ids,
    # Brokers write markers of producers that there are. To one of a negative epoch Kafka never answers.
    "WritableTxnMarker.producer_id": ("<producer>", "<producer>", 5),
    "WritableTxnMarker.producer_epoch": ("<producer epoch>", "<producer epoch>", "<producer epoch + 1>", 0),
    "coordinator_epoch": (0, 0, 1),
    "producer_epoch": producer_epochs,
    "v3_and_below_producer_epoch": producer_epochs,
    "producer_id_filters": ("<producer>", 5, -1),
    "state_filters": ("Ongoing", "Empty", "CompleteAbort", "CompleteCommit", "nothing", ""),
    "duration_filter": (-1, 0, -2, 3_600_000),
    "transactional_id_pattern": (None, "", ".*", "first.*", "["),
    "committed": (True, False),
    "verify_only": (False, True),
    "transaction_result": (True, False),
    "transaction_version": (0, 1, 2, 3, -1),
    "topic_name": topic_names,
    # Of two topics, one with a partition that is not there, Kafka never answers.
    "DescribeShareGroupOffsetsRequestTopic.topic_name": topic_names[:4],
    "DescribeShareGroupOffsetsRequestTopic.partitions": (0,),
    "response_partition_limit": (2000, 1, 0, -1),
    "AlterReplicaLogDir.path": ("/nowhere", ""),
    "election_type": (0, 1, 2, -1),
    "replicas": (0, 1, -1),
    "allow_replication_factor_change": (False, True),
    "feature": feature_names,
    "max_version_level": (0, 1, 2, 3, -1),
    "upgrade_type": (1, 2, 3, 0, 4),
    "allow_downgrade": (False, True),
    # Without an authorizer.
    "resource_type_filter": (2, 3, 1, 0),
    "resource_name_filter": (*topic_names, None),
    "pattern_type_filter": (3, 4, 2, 1, 0),
    "resource_pattern_type": (3, 4, 2, 0),
    "principal_filter": (None, "User:somebody", "somebody", ""),
    "principal": ("User:somebody", "somebody", ""),
    "host_filter": (None, "*", "127.0.0.1", ""),
    "AclCreation.host": ("*", "127.0.0.1", ""),
    "operation": (2, 3, 1, 0),
    "permission_type": (2, 3, 1, 0),
    # Where nobody logs in.
    "mechanism": ("PLAIN", "SCRAM-SHA-256", ""),
    "auth_bytes": ("", "00610062"),
    "UserName.name": ("nobody", "nobody", "another", ""),
    # To somebody who is not known tokens are refused.
    "principal_type": ("User", "User", "Group", ""),
    "principal_name": ("somebody", ""),
    "owner_principal_type": ("User", "Group", ""),
    "owner_principal_name": (None, "somebody", ""),
    "hmac": ("", "6d" * 64),
    "max_lifetime_ms": (-1, 0, 1, INT64_MAX),
    "renew_period_ms": (-1, 0, 1, INT64_MAX),
    "expiry_time_period_ms": (-1, 0, 1, INT64_MAX),
    # Others' quotas must not show.
    "strict": (True,),
    "entity_type": ("user", "client-id", "ip", "nothing", ""),
    "entity_name": ("somebody", "somebody", "127.0.0.1", "", None),
    "match_type": (0, 0, 3, -1),
    "match": ("somebody", "127.0.0.1", "", None),
    "OpData.key": ("producer_byte_rate", "consumer_byte_rate", "connection_creation_rate", "nothing", ""),
    "OpData.value": (1000.0, 1000.0, 0.5, 0.0, -1.0, 1e300),
    "remove": (False, False, True),
}
# The same of arrays as a whole.
WHOLE: dict[str, tuple[Any, ...]] = {
    "ConsumerGroupHeartbeatRequest.subscribed_topic_names": subscriptions,
    "ShareGroupHeartbeatRequest.subscribed_topic_names": subscriptions,
    "ConsumerGroupHeartbeatRequest.topic_partitions": (
        None,
        [],
        "<assigned>",
        "<assigned>",
        *([each] for each in one_partition),
    ),
    "active_tasks": (*tasks, "<active_tasks>", "<active_tasks>"),
    "standby_tasks": (*tasks[:3], "<standby_tasks>", "<standby_tasks>"),
    "warmup_tasks": (*tasks[:3], "<warmup_tasks>", "<warmup_tasks>"),
    "client_tags": (None, [], [{"key": "zone", "value": "z"}]),
    "task_offsets": (None, [], [{"subtopology_id": "0", "partition": 0, "offset": 5}]),
    "task_end_offsets": (None, [], [{"subtopology_id": "0", "partition": 0, "offset": 7}]),
    "acknowledge_types": ([1], [1], [1], [2], [3], [0], [4], [1, 2], [1, 0, 2], [], [5], [-1]),
}
# Arrays that mean everything there is when they are empty or null, which other tellings would show in.
NEVER_ALL = (
    "MetadataRequest.topics",
    "ElectLeadersRequest.topic_partitions",
    "DescribeTopicPartitionsRequest.topics",
    "DescribeConfigsResource.configuration_keys",
    "DescribeClientQuotasRequest.components",
    "DescribeUserScramCredentialsRequest.users",
)
# To one that names no transaction Kafka never answers.
NEVER_EMPTY = ("AddPartitionsToTxnRequest.transactions",)
# What structs in arrays are about.
RANKED_BY = (
    *(
        "topic_id",
        "name",
        "topic",
        "topic_name",
        "group_id",
        "key",
        "resource_name",
        "transactional_id",
        "member_id",
        "user",
    ),
    *("subtopology_id", "partition_index", "index", "entity", "entity_type"),
)
# Fields that keep their default in every request.
DEFAULTED = ("replica_state", "retention_time_ms", "include_documentation", "key_type")
