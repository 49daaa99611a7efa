"""Requests about topics and settings, with what they leave open filled in, and the order in which answers are compared."""

from collections.abc import Callable, Iterable
from typing import Any

from compat_tests.differential.conversation import Talk

from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.schema import ZERO_UUID

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
OWN_ID = "0"
# A broker of their own for scenarios that change brokers' settings; they leave it as it was.
CHANGED_BROKER = {"log.retention.hours": "100", "log.roll.ms": "3600000", "log.preallocate": "false"}
# A broker of their own for scenarios that ask for internal topics: no other one makes Kafka create them there.
WITHOUT_INTERNAL_TOPICS = {"offsets.topic.num.partitions": "3"}

Resource = tuple[int, str]
Changes = Iterable[tuple[str, int, str | None]]


# --- topics


def new_topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assignments: Iterable[tuple[int, list[int]]] = (),
    configs: Iterable[tuple[str, str | None]] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in assignments],
        configs=[CreatableTopicConfig(name=each, value=value) for each, value in configs],
    )


def assigned_topic(name: str, *assignments: tuple[int, list[int]]) -> CreatableTopic:
    return new_topic(name, -1, -1, assignments)


def create(*topics: CreatableTopic, validate_only: bool = False, timeout_ms: int = 30_000) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)


def metadata(*names: str) -> MetadataRequest:
    topics = [MetadataRequestTopic(topic_id=ZERO_UUID, name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


# --- settings


def describe(
    *resources: Resource, keys: list[str] | None = None, synonyms: bool = False, documentation: bool = False
) -> DescribeConfigsRequest:
    wanted = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name in resources
    ]
    return DescribeConfigsRequest(resources=wanted, include_synonyms=synonyms, include_documentation=documentation)


def changes_of(resource: Resource, changes: Changes) -> IncrementalConfigsResource:
    configs = [
        IncrementalConfig(name=name, config_operation=operation, value=value) for name, operation, value in changes
    ]
    return IncrementalConfigsResource(resource_type=resource[0], resource_name=resource[1], configs=configs)


def alter(*changed: tuple[Resource, Changes], validate_only: bool = False) -> IncrementalAlterConfigsRequest:
    resources = [changes_of(resource, changes) for resource, changes in changed]
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)


def told(talk: Talk, resource: Resource, *names: str) -> dict[str, tuple[str | None, int]]:
    """What a resource's settings are and where from, unrecorded."""
    answer = talk.do(describe(resource, keys=list(names) or None)).results[0]
    assert answer.error_code == 0, answer
    return {each.name: (each.value, each.config_source) for each in answer.configs}


def settle(talk: Talk, resource: Resource, **values: str | None) -> None:
    """Waits until a resource's settings have these values: Kafka answers a change before its brokers know of it."""
    wanted = {name.replace("_", "."): value for name, value in values.items()}
    request = describe(resource, keys=list(wanted))

    def is_known(answer: Any) -> bool:
        found = {each.name: each.value for each in answer.results[0].configs}
        return all(found.get(name) == value for name, value in wanted.items())

    talk.until(request, is_known)


# --- order: Kafka collects answers in hash maps


def by_name(attribute: str = "topics") -> Callable[[Any], None]:
    """Arranges the results of topics: by name, and those without by id, of which the made-up ones come first."""

    def place(result: Any) -> tuple[str, bool, bytes]:
        topic_id = bytes(getattr(result, "topic_id", b""))
        return result.name or "", len(set(topic_id)) > 1, topic_id

    def arrange(answer: Any) -> None:
        getattr(answer, attribute).sort(key=place)

    return arrange


def by_setting(answer: Any) -> None:
    """Arranges the settings in an answer of DescribeConfigs."""
    for result in answer.results:
        result.configs.sort(key=lambda each: each.name)
