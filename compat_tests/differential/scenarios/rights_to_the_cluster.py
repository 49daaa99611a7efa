"""Who may administer topics, settings, rules, users, quotas and the cluster: each request with and without each right."""

from typing import Any

from compat_tests.differential.asking_administration import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    OWN_ID,
    SET,
    Resource,
    alter,
    create,
    describe,
    new_topic,
)
from compat_tests.differential.asking_administration import GROUP as GROUP_SETTINGS
from compat_tests.differential.asking_administration import TOPIC as TOPIC_SETTINGS
from compat_tests.differential.asking_rights import Right, everybody_asks, only_ours
from compat_tests.differential.conversation import Talk, Topic, scenario
from compat_tests.differential.logins import SECURED
from compat_tests.differential.scenarios import acls, client_quotas, scram_users
from compat_tests.differential.scenarios.describe_configs import arranged
from compat_tests.differential.scenarios.rights_to_records import (
    CLUSTER,
    CREATE,
    DELETE,
    DESCRIBE,
    TOPIC,
    two_topics,
)

from ottla.server.dispatch.access import AclOperation, ResourceType
from ottla.wire.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from ottla.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from ottla.wire.messages.cluster import DescribeClusterRequest, FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.messages.create_topics import CreatePartitionsRequest, CreatePartitionsTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, ListConfigResourcesRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from ottla.wire.messages.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.scram_credentials import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest
from ottla.wire.schema import ZERO_UUID

ALTER, ALTER_CONFIGS, DESCRIBE_CONFIGS = (
    AclOperation.ALTER,
    AclOperation.ALTER_CONFIGS,
    AclOperation.DESCRIBE_CONFIGS,
)

# ------------------------------------------------------------------ topics


@scenario(CreateTopicsRequest, "5+", settings=SECURED)
def creating_topics(talk: Talk) -> None:
    name, hidden = talk.name("new"), talk.name("hidden")
    rights = Right(CREATE, TOPIC, name), Right(DESCRIBE_CONFIGS, TOPIC, name)
    everybody_asks(talk, create(new_topic(name), new_topic(hidden), validate_only=True), *rights, arrange=few_configs)
    every = Right(CREATE, CLUSTER), Right(DESCRIBE_CONFIGS, TOPIC, name)
    everybody_asks(talk, create(new_topic(name), new_topic(hidden), validate_only=True), *every, arrange=few_configs)


def few_configs(answer: Any) -> None:
    """Whether settings are told; `topic_configs` has which ones."""
    for each in answer.topics:
        each.configs = each.configs and []


@scenario(DeleteTopicsRequest, "5+", settings=SECURED)
def deleting_topics(talk: Talk) -> None:
    """By name, with what is not there; then by id."""
    topics = two_topics(talk)
    names = [*(each.name for each in topics), talk.name("nowhere")]
    by_name = [DeleteTopicState(name=each, topic_id=ZERO_UUID) for each in names]
    request = DeleteTopicsRequest(topics=by_name, topic_names=names, timeout_ms=30_000)
    everybody_asks(talk, request, Right(DESCRIBE, TOPIC, topics[0].name), Right(DELETE, TOPIC, topics[0].name))
    if talk.version >= 6:
        topics = talk.topic("by-id"), talk.topic("hidden-by-id")
        by_id = [DeleteTopicState(name=None, topic_id=each) for each in (*(one.id for one in topics), b"n" * 16)]
        request = DeleteTopicsRequest(topics=by_id, timeout_ms=30_000)
        everybody_asks(talk, request, Right(DESCRIBE, TOPIC, topics[0].name), Right(DELETE, TOPIC, topics[0].name))


@scenario(CreatePartitionsRequest, "3", settings=SECURED)
def creating_partitions(talk: Talk) -> None:
    topics = two_topics(talk)
    names = (*(each.name for each in topics), talk.name("nowhere"))
    wanted = [CreatePartitionsTopic(name=each, count=2, assignments=None) for each in names]
    request = CreatePartitionsRequest(topics=wanted, timeout_ms=30_000, validate_only=True)
    everybody_asks(talk, request, Right(ALTER, TOPIC, topics[0].name))


@scenario(ElectLeadersRequest, "2", settings=SECURED)
def electing_leaders(talk: Talk) -> None:
    topic = talk.topic()
    named = [TopicPartitions(topic=each, partitions=[0]) for each in (topic.name, talk.name("nowhere"))]
    everybody_asks(talk, ElectLeadersRequest(topic_partitions=named, timeout_ms=30_000), Right(ALTER, CLUSTER))
    everybody_asks(talk, ElectLeadersRequest(topic_partitions=[], timeout_ms=30_000), Right(ALTER, CLUSTER))


@scenario(AlterPartitionReassignmentsRequest, settings=SECURED)
def reassigning_partitions(talk: Talk) -> None:
    topic = talk.topic()
    partitions = [ReassignablePartition(partition_index=0, replicas=[0])]
    named = [ReassignableTopic(name=each, partitions=partitions) for each in (topic.name, talk.name("nowhere"))]
    everybody_asks(talk, AlterPartitionReassignmentsRequest(topics=named, timeout_ms=30_000), Right(ALTER, CLUSTER))


@scenario(ListPartitionReassignmentsRequest, settings=SECURED)
def listing_reassignments(talk: Talk) -> None:
    named = [ListPartitionReassignmentsTopics(name=talk.topic().name, partition_indexes=[0])]
    for topics in (named, None):
        request = ListPartitionReassignmentsRequest(topics=topics, timeout_ms=30_000)
        everybody_asks(talk, request, Right(DESCRIBE, CLUSTER))


@scenario(AlterReplicaLogDirsRequest, "2", settings=SECURED)
def moving_replicas(talk: Talk) -> None:
    topics = [AlterReplicaLogDirTopic(name=talk.topic().name, partitions=[0])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/nowhere", topics=topics)])
    everybody_asks(talk, request, Right(ALTER, CLUSTER))


@scenario(DescribeLogDirsRequest, "2+", settings=SECURED)
def describing_log_dirs(talk: Talk) -> None:
    topics = [DescribableLogDirTopic(topic=talk.topic().name, partitions=[0])]
    everybody_asks(talk, DescribeLogDirsRequest(topics=topics), Right(DESCRIBE, CLUSTER))


# ------------------------------------------------------------------ settings


def resources(talk: Talk) -> tuple[Topic, str, list[tuple[Resource, str]]]:
    """A topic and a group, which some of the resources are about, each with the name of a setting of it."""
    topic, hidden = two_topics(talk)
    group = talk.name("group")
    return (
        topic,
        group,
        [
            ((TOPIC_SETTINGS, topic.name), "segment.ms"),
            ((TOPIC_SETTINGS, hidden.name), "segment.ms"),
            ((TOPIC_SETTINGS, talk.name("nowhere")), "segment.ms"),
            ((GROUP_SETTINGS, group), "consumer.session.timeout.ms"),
            ((GROUP_SETTINGS, talk.name("hidden-group")), "consumer.session.timeout.ms"),
            ((BROKER, OWN_ID), "log.retention.ms"),
            ((BROKER, ""), "log.retention.ms"),
            ((BROKER_LOGGER, OWN_ID), "kafka.server.KafkaConfig"),
            ((CLIENT_METRICS, talk.name("metrics")), "interval.ms"),
        ],
    )


@scenario(DescribeConfigsRequest, "4", settings=SECURED)
def describing_settings(talk: Talk) -> None:
    topic, group, found = resources(talk)
    rights = (
        Right(DESCRIBE_CONFIGS, TOPIC, topic.name),
        Right(DESCRIBE_CONFIGS, ResourceType.GROUP, group),
        Right(DESCRIBE_CONFIGS, CLUSTER),
    )
    request = describe()
    for each, key in found:
        request.resources += describe(each, keys=[key]).resources
    everybody_asks(talk, request, *rights, arrange=arranged)


def rights_to_change(topic: Topic, group: str) -> tuple[Right, ...]:
    return (
        Right(ALTER_CONFIGS, TOPIC, topic.name),
        Right(ALTER_CONFIGS, ResourceType.GROUP, group),
        Right(ALTER_CONFIGS, CLUSTER),
    )


VALUES = {"kafka.server.KafkaConfig": "INFO", "consumer.session.timeout.ms": "46000", "interval.ms": "100"}


@scenario(IncrementalAlterConfigsRequest, "1", settings=SECURED)
def changing_settings(talk: Talk) -> None:
    topic, group, found = resources(talk)
    changes = [(each, [(key, SET, VALUES.get(key, "3600000"))]) for each, key in found]
    everybody_asks(talk, alter(*changes, validate_only=True), *rights_to_change(topic, group))


@scenario(AlterConfigsRequest, "2", settings=SECURED)
def replacing_settings(talk: Talk) -> None:
    topic, group, found = resources(talk)
    wanted = [
        AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[AlterableConfig(name=key, value=VALUES.get(key, "3600000"))],
        )
        for (kind, name), key in found
        # Kafka keeps min.insync.replicas among the defaults of all brokers, and does not let it go (KIP-966).
        if kind != BROKER_LOGGER and (kind, name) != (BROKER, "")
    ]
    request = AlterConfigsRequest(resources=wanted, validate_only=True)
    everybody_asks(talk, request, *rights_to_change(topic, group))


@scenario(ListConfigResourcesRequest, settings=SECURED)
def listing_resources(talk: Talk) -> None:
    talk.topic()
    right = Right(DESCRIBE_CONFIGS, CLUSTER)
    everybody_asks(talk, ListConfigResourcesRequest(), right, arrange=only_ours(talk))


# ------------------------------------------------------------------ rules, users, quotas


@scenario(DescribeAclsRequest, "3", settings=SECURED)
def describing_rules(talk: Talk) -> None:
    everybody_asks(talk, acls.find(talk.name("rules")), Right(DESCRIBE, CLUSTER))


@scenario(CreateAclsRequest, "3", settings=SECURED)
def creating_rules(talk: Talk) -> None:
    request = CreateAclsRequest(creations=[acls.rule(talk.name("rules")), acls.rule("")])
    everybody_asks(talk, request, Right(ALTER, CLUSTER))
    acls.delete(talk, "the rule", acls.find(talk.name("rules")))


@scenario(DeleteAclsRequest, "3", settings=SECURED)
def deleting_rules(talk: Talk) -> None:
    talk.do(CreateAclsRequest(creations=[acls.rule(talk.name("rules"))]))
    acls.settle(talk, talk.name("rules"), 1)
    wanted = (acls.find(talk.name("rules")), acls.find(talk.name("others")))
    everybody_asks(talk, DeleteAclsRequest(filters=[acls.gone(each) for each in wanted]), Right(ALTER, CLUSTER))


@scenario(DescribeUserScramCredentialsRequest, settings=SECURED)
def describing_users(talk: Talk) -> None:
    """By name: whoever asks for all users without the right is never answered by Kafka (a null pointer in its refusal)."""
    everybody_asks(talk, scram_users.describe(["nobody", "nobody else"]), Right(DESCRIBE, CLUSTER))


@scenario(AlterUserScramCredentialsRequest, settings=SECURED)
def changing_users(talk: Talk) -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[scram_users.taken("nobody")], upsertions=[scram_users.given(talk.name("user"), 77)]
    )
    everybody_asks(talk, request, Right(ALTER, CLUSTER))


@scenario(DescribeClientQuotasRequest, "1", settings=SECURED)
def describing_quotas(talk: Talk) -> None:
    request = client_quotas.describe(("user", client_quotas.EXACT, talk.name("user")))
    everybody_asks(talk, request, Right(DESCRIBE_CONFIGS, CLUSTER))


@scenario(AlterClientQuotasRequest, "1", settings=SECURED)
def changing_quotas(talk: Talk) -> None:
    wanted = [client_quotas.entry([("user", talk.name(each))], (client_quotas.PRODUCE, 1e6)) for each in ("a", "b")]
    everybody_asks(talk, client_quotas.alter(*wanted, validate_only=True), Right(ALTER_CONFIGS, CLUSTER))


# ------------------------------------------------------------------ the cluster


@scenario(DescribeClusterRequest, settings=SECURED)
def describing_the_cluster(talk: Talk) -> None:
    for operations in (False, True):
        request = DescribeClusterRequest(include_cluster_authorized_operations=operations)
        everybody_asks(talk, request, Right(DESCRIBE, CLUSTER), Right(ALTER, CLUSTER))


@scenario(UpdateFeaturesRequest, "1+", settings=SECURED)
def changing_features(talk: Talk) -> None:
    change = FeatureUpdateKey(feature="no.such", max_version_level=1)
    request = UpdateFeaturesRequest(feature_updates=[change], validate_only=True)
    everybody_asks(talk, request, Right(ALTER, CLUSTER))
