"""New topics and partitions: CreateTopics and CreatePartitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import trio

from ottla.replication.cluster.metadata_cache import CLUSTER_METADATA_TOPIC, is_internal_topic
from ottla.replication.controller.topic_planner import NewTopic, TopicPlan
from ottla.server.broker import Broker
from ottla.server.cluster.administration import Administration
from ottla.server.config.changes import creation_texts
from ottla.server.config.repository import ConfigRepository, effective_topic_value, topic_settings
from ottla.server.dispatch.access import AclOperation, ResourceType, denied_of, may, may_on_cluster
from ottla.server.dispatch.context import RequestContext, mutations_of
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import each_in_slices
from ottla.wire.errors import ErrorCode, KafkaError, bare
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.server.cluster.administration import PlanOrError

TOPICS_CREATED_PER_SLICE = 50
CREATION_STRICT_SINCE = 6


@handles(CreateTopicsRequest)
async def create_topics(request: CreateTopicsRequest, context: RequestContext[Broker]) -> CreateTopicsResponse:
    """CreateTopics: create topics, or only validate the request.

    Behaviour
    * A name that comes twice is refused both times. Every other topic succeeds or fails separately.
    * A client needs the right to create in the cluster, or on each topic. Topics that it may not create get
      TOPIC_AUTHORIZATION_FAILED, whether they exist or not.
    * Checks in Kafka's order: rights, total number of partitions, name, existence, settings, assignments or counts.
    * -1 for partitions or replicas means the broker's default; with explicit assignments both must be -1.
    * Since v5 the response has the new topic's settings with their sources, and the numbers of partitions and replicas.
      Clients that may not describe the topic's settings get none of these.
    * The response is sent when the topic is stored and its partitions can be written. A timeout of 0 or less expires
      immediately. In a cluster REQUEST_TIMED_OUT means that not all partitions have leaders yet.
    * While the client exceeds its controller_mutation_rate, topics get THROTTLING_QUOTA_EXCEEDED. Before v6 topics are
      created, and the client is throttled afterwards.
    * If this broker is not the controller, and cannot reach it in time, every topic gets NOT_CONTROLLER.
    """
    administration = context.broker.administration
    if not administration.is_controller:
        elsewhere = KafkaError(ErrorCode.NOT_CONTROLLER)
        return await _all_failed(request, elsewhere)
    named = Counter(topic.name for topic in request.topics)
    denied = await _denied(context, (name for name, count in named.items() if count == 1))
    asked = [topic for topic in request.topics if named[topic.name] == 1 and topic.name not in denied]
    if request.timeout_ms <= 0 and any(topic.name != CLUSTER_METADATA_TOPIC for topic in asked):
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return await _all_failed(request, late)
    take = mutations_of(context, strict_since=CREATION_STRICT_SINCE)
    outcomes = await _outcomes(administration, asked, request, take, _checked(context.broker))
    results = []
    for number, topic in enumerate(asked, 1):
        results.append(_result(topic, outcomes[topic.name], context))
        if number % TOPICS_CREATED_PER_SLICE == 0:
            await trio.lowlevel.checkpoint()
    twice = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    repeated = [name for name, count in named.items() if count > 1]
    results += await each_in_slices(repeated, lambda name: _failure(name, twice))
    forbidden = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    results += await each_in_slices((name for name in named if name in denied), lambda name: _failure(name, forbidden))
    return CreateTopicsResponse(topics=results)


async def _denied(context: RequestContext[Broker], names: Iterable[str]) -> Collection[str]:
    """Return the names that the client may not create, except `__cluster_metadata`, which gets another error."""
    if may_on_cluster(context, AclOperation.CREATE, quietly=True):
        return ()
    possible = (name for name in names if name != CLUSTER_METADATA_TOPIC)
    return await denied_of(context, AclOperation.CREATE, ResourceType.TOPIC, possible)


async def _all_failed(request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=await each_in_slices(request.topics, lambda topic: _failure(topic.name, error)))


async def _outcomes(
    administration: Administration,
    asked: Sequence[CreatableTopic],
    request: CreateTopicsRequest,
    take: Callable[[int], None],
    check: Callable[[NewTopic], NewTopic],
) -> dict[str, PlanOrError]:
    outcomes: dict[str, PlanOrError] = {}
    new = []
    time_slice = TimeSlice()
    for topic in asked:
        await time_slice.yield_if_over()
        try:
            new.append(check(_new_topic(topic)))
        except KafkaError as error:
            outcomes[topic.name] = _earlier_error(administration, topic.name) or bare(error)
    try:
        made = await administration.create_topics(
            new, validate_only=request.validate_only, timeout_s=request.timeout_ms / 1000, take=take
        )
    except KafkaError as error:
        refused = bare(error)
        return {topic.name: refused for topic in asked}
    return outcomes | {topic.name: outcome for topic, outcome in zip(new, made, strict=True)}


def _checked(broker: Broker) -> Callable[[NewTopic], NewTopic]:
    """Return a function that holds the topics of one request to the broker's policy. It raises KafkaError."""
    policy = broker.environment.restrictions.topics
    if policy is None:
        return lambda topic: topic
    sizes = _sizes(broker)

    def check(topic: NewTopic) -> NewTopic:
        # A name that is taken gets its own error later. Internal topics are asked for by brokers that are not the controller.
        if topic.name not in sizes and not is_internal_topic(topic.name):
            topic, sizes[topic.name] = policy.check_creation(topic, sizes, broker.config.replication.num_partitions)
        return topic

    return check


def _sizes(broker: Broker) -> dict[str, int]:
    """Return the number of partitions of each topic that clients have made."""
    topics = broker.cluster.topics.items()
    return {name: len(topic.partitions) for name, topic in topics if not is_internal_topic(name)}


def _earlier_error(administration: Administration, name: str) -> KafkaError | None:
    """Return the error of an invalid topic name, which Kafka checks before the settings; None if it is valid."""
    try:
        administration.planner.check_name(name)
    except KafkaError as error:
        return bare(error)
    return None


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(each.partition_index, each.broker_ids) for each in topic.assignments],
        configs=creation_texts((each.name, each.value) for each in topic.configs),
    )


def _result(topic: CreatableTopic, outcome: PlanOrError, context: RequestContext[Broker]) -> CreatableTopicResult:
    if isinstance(outcome, KafkaError):
        return _failure(topic.name, outcome)
    made = outcome.after
    assert made is not None
    result = CreatableTopicResult(name=made.name, topic_id=made.topic_id, error_code=ErrorCode.NONE, error_message=None)
    if may(context, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, quietly=True):
        result.num_partitions = len(made.partitions)
        result.replication_factor = len(made.partitions[0].replicas)
        result.configs = _told_configs(outcome, context.broker.administration.configs)
    else:
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return result


def _told_configs(plan: TopicPlan, configs: ConfigRepository) -> list[CreatableTopicConfigs]:
    told = []
    given = plan.configs or {}
    for name, declared in sorted(topic_settings().items()):
        if declared.internal and name not in given:
            continue
        _, value, source = effective_topic_value(configs, declared, given)
        told.append(
            CreatableTopicConfigs(name=name, value=value, read_only=False, config_source=source, is_sensitive=False)
        )
    return told


def _failure(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)


TOPICS_EXTENDED_PER_SLICE = 100
EXTENSION_STRICT_SINCE = 3


@handles(CreatePartitionsRequest)
async def create_partitions(
    request: CreatePartitionsRequest, context: RequestContext[Broker]
) -> CreatePartitionsResponse:
    """CreatePartitions: raise the number of partitions of topics, or only validate the request.

    Behaviour
    * A topic that comes twice is refused. A topic that the client may not alter gets TOPIC_AUTHORIZATION_FAILED. Every
      other topic succeeds or fails separately.
    * If these other topics would get more than 10,000 new partitions together, the whole request gets POLICY_VIOLATION.
    * The count is the new total; it must exceed the present one. Assignments, if given, are for the new partitions only
      and must have the topic's replication factor.
    * A timeout of 0 or less expires immediately. In a cluster REQUEST_TIMED_OUT means that not all partitions have
      leaders yet.
    * While the client exceeds its controller_mutation_rate, topics get THROTTLING_QUOTA_EXCEEDED. Before v3 topics are
      extended, and the client is throttled afterwards.
    * If this broker is not the controller, and cannot reach it in time, every topic gets NOT_CONTROLLER. A topic that
      is being reassigned gets REASSIGNMENT_IN_PROGRESS.
    """
    administration = context.broker.administration
    named = Counter(topic.name for topic in request.topics)
    if not administration.is_controller:
        elsewhere = KafkaError(ErrorCode.NOT_CONTROLLER)
        return await _none_extended(named, elsewhere)
    once = [topic for topic in request.topics if named[topic.name] == 1]
    denied = await denied_of(context, AclOperation.ALTER, ResourceType.TOPIC, (topic.name for topic in once))
    asked = [topic for topic in once if topic.name not in denied]
    if request.timeout_ms <= 0 and asked:
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return await _none_extended([topic.name for topic in request.topics], late)
    twice = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results = (await _none_extended([name for name, count in named.items() if count > 1], twice)).results
    forbidden = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    results += (await _none_extended([topic.name for topic in once if topic.name in denied], forbidden)).results
    try:
        administration.planner.check_extension_total((topic.name, topic.count) for topic in asked)
    except KafkaError as error:
        return await _none_extended([topic.name for topic in request.topics], error)
    take = mutations_of(context, strict_since=EXTENSION_STRICT_SINCE)
    created: dict[str, CreatePartitionsTopicResult] = {}
    for start in range(0, len(asked), TOPICS_EXTENDED_PER_SLICE):
        async with trio.open_nursery() as nursery:
            for topic in asked[start : start + TOPICS_EXTENDED_PER_SLICE]:
                nursery.start_soon(_extend, context.broker, topic, request, take, created)
    return CreatePartitionsResponse(results=results + [created[topic.name] for topic in asked])


async def _none_extended(names: Iterable[str], error: KafkaError) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=await each_in_slices(names, lambda name: _extension_result(name, error)))


async def _extend(
    broker: Broker,
    topic: CreatePartitionsTopic,
    request: CreatePartitionsRequest,
    take: Callable[[int], None],
    results: dict[str, CreatePartitionsTopicResult],
) -> None:
    assignments: Sequence[Sequence[int]] | None = None
    if topic.assignments is not None:
        assignments = [each.broker_ids for each in topic.assignments]
    error: KafkaError | None = None
    try:
        if (policy := broker.environment.restrictions.topics) is not None:
            policy.check_growth(topic.name, topic.count, _sizes(broker))
        await broker.administration.create_partitions(
            topic.name,
            topic.count,
            assignments,
            validate_only=request.validate_only,
            timeout_s=request.timeout_ms / 1000,
            take=take,
        )
    except KafkaError as raised:
        error = bare(raised)
    results[topic.name] = _extension_result(topic.name, error)


def _extension_result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=name,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )
