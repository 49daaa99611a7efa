"""Changes of settings: IncrementalAlterConfigs and AlterConfigs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.replication.cluster.metadata_cache import topic_name_problem
from ottla.server.api.handlers.describe_configs import ResourceType, forbidden
from ottla.server.broker import Broker
from ottla.server.cluster.settings_administration import SettingsChange
from ottla.server.config.changes import changed_broker, changed_texts, changed_topic, check_changes, check_names
from ottla.server.config.loggers import change_loggers, check_logger_changes
from ottla.server.config.repository import MIN_INSYNC_REPLICAS, ConfigChange
from ottla.server.dispatch.access import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import computed
from ottla.wire.errors import ErrorCode, KafkaError, bare
from ottla.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.settings import parse_integer
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.server.imitation import TopicPolicy

SETTINGS_AT_ONCE = 1_000  # more changes of one resource are worked out in a thread


class Resource(Protocol):
    """Interface of resources in requests to alter settings."""

    resource_type: int
    resource_name: str


ResourceT = TypeVar("ResourceT", bound=Resource)


@handles(IncrementalAlterConfigsRequest)
async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext[Broker]
) -> IncrementalAlterConfigsResponse:
    """IncrementalAlterConfigs: change single settings of topics, groups and this broker.

    Behaviour
    * Each resource has one result: if one of its changes is invalid, none of them is made. Resources are independent.
    * A resource that is named twice is refused both times.
    * Changing settings of a topic or group needs AlterConfigs on it; other settings need AlterConfigs on the cluster.
      As in Kafka, the request itself and a broker's settings are checked before this right. But without the right files
      that settings name are not read, and passwords are not tried.
    * Appending to a list that is not set, or subtracting from it, begins with the setting's default.
    * A broker is named by its id; the empty name changes the settings of all brokers. Settings that Kafka cannot change
      at run time are refused.
    * A group need not exist to have settings.
    * When the response is sent, the change is stored and in force; with `validate_only` nothing is changed.
    * New levels of loggers take effect immediately, and last until this broker stops. Subscriptions to client metrics
      are stored by a broker without a cluster; a member of a cluster refuses them.
    """
    alter = partial(_alter, context, validate_only=request.validate_only)
    altered = await alter_each(request.resources, alter)
    return IncrementalAlterConfigsResponse(responses=[_response(resource, error) for resource, error in altered])


async def alter_each(
    resources: Sequence[ResourceT], alter: Callable[[ResourceT], Awaitable[None]]
) -> list[tuple[ResourceT, KafkaError | None]]:
    """Call `alter` for each resource; return each resource with its error, or None on success.

    If a resource is repeated, all its entries get INVALID_REQUEST.
    """
    named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    altered: list[tuple[ResourceT, KafkaError | None]] = []
    time_slice = TimeSlice()
    for resource in resources:
        await time_slice.yield_if_over()
        error = None
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            await alter(resource)
        except KafkaError as raised:
            error = bare(raised)
        altered.append((resource, error))
    return altered


async def _alter(context: RequestContext[Broker], resource: IncrementalConfigsResource, *, validate_only: bool) -> None:
    is_long = len(resource.configs) > SETTINGS_AT_ONCE
    changes = await computed(partial(_changes, resource.configs), in_thread=is_long)
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        _check_right(context, resource.resource_type, resource.resource_name)
        _alter_loggers(resource.resource_name, context.broker.node_id, changes, validate_only=validate_only)
        return
    await alter_resource(
        context,
        resource.resource_type,
        resource.resource_name,
        change_topic=lambda texts: changed_topic(texts, changes),
        change_broker=lambda texts: changed_broker(texts, changes),
        change_group=lambda texts: changed_texts(texts, changes),
        change_client_metrics=lambda texts: changed_texts(texts, changes),
        names_min_insync_replicas=any(each.name == MIN_INSYNC_REPLICAS for each in changes),
        validate_only=validate_only,
        in_thread=is_long,
    )


def _alter_loggers(name: str, node_id: int, changes: Sequence[ConfigChange], *, validate_only: bool) -> None:
    check_logger_changes(name, node_id, changes)
    if not validate_only:
        change_loggers(changes)


def _changes(configs: Sequence[IncrementalConfig]) -> list[ConfigChange]:
    changes = [ConfigChange(each.name, each.config_operation, each.value) for each in configs]
    check_changes(changes)
    return changes


def _check_right(context: RequestContext[Broker], resource_type: int, name: str) -> None:
    error = forbidden(context, AclOperation.ALTER_CONFIGS, resource_type, name)
    if error is not None:
        raise error


async def alter_resource(
    context: RequestContext[Broker],
    resource_type: int,
    name: str,
    *,
    change_topic: SettingsChange,
    change_broker: SettingsChange,
    change_group: SettingsChange,
    change_client_metrics: SettingsChange,
    names_min_insync_replicas: bool,
    validate_only: bool,
    in_thread: bool = False,
) -> None:
    """Change the settings of one topic, group, broker or metrics subscription.

    `in_thread`: compute the new settings in a thread, because that takes long. Raises KafkaError.
    """
    settings = context.broker.administration.settings
    if resource_type == ResourceType.BROKER:
        check_broker_name(name, context.broker.config.node_id)
        # Kafka's brokers look at the change before its controller asks for the right.
        error = forbidden(context, AclOperation.ALTER_CONFIGS, resource_type, name)
        await settings.alter_broker(
            change_broker,
            for_all=not name,
            validate_only=validate_only,
            in_thread=in_thread,
            refusal=error,
            names_min_insync_replicas=names_min_insync_replicas,
        )
        return
    if resource_type not in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLIENT_METRICS):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    _check_right(context, resource_type, name)
    if resource_type == ResourceType.TOPIC:
        change = _then_check_name(name, change_topic)
        if (policy := context.broker.environment.restrictions.topics) is not None:
            change = _then_check_policy(policy, change)
        await settings.alter_topic(name, change, validate_only=validate_only, in_thread=in_thread)
    elif resource_type == ResourceType.GROUP:
        await settings.alter_group(name, change_group, validate_only=validate_only, in_thread=in_thread)
    else:
        await settings.alter_client_metrics(
            name, change_client_metrics, validate_only=validate_only, in_thread=in_thread
        )


def _then_check_name(name: str, change_topic: SettingsChange) -> SettingsChange:
    """Return a change that runs `change_topic`, then checks the name; as in Kafka the values are checked after that."""

    def change(texts: Mapping[str, str]) -> Mapping[str, str]:
        changed = change_topic(texts)
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if (problem := topic_name_problem(name)) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        return changed

    return change


def _then_check_policy(policy: TopicPolicy, change_topic: SettingsChange) -> SettingsChange:
    def change(texts: Mapping[str, str]) -> Mapping[str, str]:
        changed = change_topic(texts)
        policy.check_change(texts, changed)
        return changed

    return change


def check_broker_name(name: str, own: int) -> None:
    """Raise KafkaError unless `name` is empty (all brokers) or the id of this broker, `own`."""
    if not name:
        return
    broker_id = parse_integer(name)
    if broker_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if broker_id != own:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {own}, but received {name}")


def _response(resource: Resource, error: KafkaError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


@handles(AlterConfigsRequest)
async def alter_configs(request: AlterConfigsRequest, context: RequestContext[Broker]) -> AlterConfigsResponse:
    """AlterConfigs: replace all settings of a topic, a group or this broker; unnamed settings return to their defaults.

    Behaviour
    * Rules, resources and errors are those of IncrementalAlterConfigs, which replaced this API in clients (KIP-339).
    * Levels of loggers cannot be replaced; IncrementalAlterConfigs changes them one by one.
    * A resource that is named twice is refused.
    """
    replace = partial(_replace, context, validate_only=request.validate_only)
    altered = await alter_each(request.resources, replace)
    return AlterConfigsResponse(responses=[_response(resource, error) for resource, error in altered])


async def _replace(context: RequestContext[Broker], resource: AlterConfigsResource, *, validate_only: bool) -> None:
    is_long = len(resource.configs) > SETTINGS_AT_ONCE
    texts = await computed(partial(_texts, resource.configs), in_thread=is_long)
    await alter_resource(
        context,
        resource.resource_type,
        resource.resource_name,
        change_topic=lambda _: texts,
        change_broker=lambda _: texts,
        change_group=lambda _: texts,
        change_client_metrics=lambda _: texts,
        # What is not among the settings of all brokers is taken away.
        names_min_insync_replicas=not resource.resource_name or MIN_INSYNC_REPLICAS in texts,
        validate_only=validate_only,
    )


def _texts(configs: Sequence[AlterableConfig]) -> dict[str, str]:
    texts = {each.name: each.value or "" for each in configs}
    check_names(len(configs), len(texts), [each.name for each in configs if each.value is None])
    return texts
