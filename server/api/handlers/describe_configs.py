"""Settings and what has some: DescribeConfigs and ListConfigResources."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from ottla.groupcoord.group_settings import broker_synonym, group_settings
from ottla.replication.cluster.metadata_cache import topic_name_problem
from ottla.replication.reminders import Reminder
from ottla.server.broker import Broker
from ottla.server.config.client_metrics import client_metrics_settings
from ottla.server.config.loggers import logger_levels
from ottla.server.config.repository import (
    CLIENT_METRICS_CONFIG,
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_LOGGER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    GROUP_CONFIG,
    NO_OVERRIDES,
    ConfigRepository,
    SynonymValue,
    default_text,
    described_setting,
    synonym_values,
    topic_settings,
    topic_synonym,
)
from ottla.server.dispatch.access import CLUSTER_NAME, REFUSALS, AclOperation, may, require_on_cluster
from ottla.server.dispatch.access import ResourceType as Guarded
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import answer_each, each_in_slices
from ottla.wire.answers import Answer, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_configs import (
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.wire.settings import InvalidSetting, field_name, format_value, parse_integer, parse_value
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.server.config.repository import Texts
    from ottla.wire.settings import Setting

logger = logging.getLogger("ottla.configs")
_reminder = Reminder()

UNKNOWN_TYPE = 0
RESOURCES_PER_TURN = 2  # a broker has hundreds of settings
GROUPS_WITHOUT_SETTINGS_MAX = 1_000
RESOURCES_REPEATED_MAX = 20  # a request that names more has each of them described once


class ResourceType(IntEnum):
    """Types of resources with settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_OF_BROKERS = (ResourceType.BROKER, ResourceType.BROKER_LOGGER)


def forbidden(
    context: RequestContext[Broker], operation: AclOperation, resource_type: int, name: str
) -> KafkaError | None:
    """Return the error for a client that may not do this operation on a resource's settings; None if it may."""
    if resource_type == ResourceType.TOPIC:
        guarded = Guarded.TOPIC
    elif resource_type == ResourceType.GROUP:
        guarded = Guarded.GROUP
    else:
        guarded, name = Guarded.CLUSTER, CLUSTER_NAME
    if may(context, operation, guarded, name):
        return None
    code = REFUSALS[guarded]
    is_bare = operation is AclOperation.ALTER_CONFIGS and resource_type in _OF_BROKERS
    return KafkaError(code, None if is_bare else code.message)


@handles(DescribeConfigsRequest)
def describe_configs(
    request: DescribeConfigsRequest, context: RequestContext[Broker]
) -> Answer[DescribeConfigsResponse]:
    """DescribeConfigs: describe the settings of topics, groups and this broker, with the source of each value.

    Behaviour
    * Settings of brokers, loggers and client metrics subscriptions need the right to describe the cluster's configs.
      Topics and groups have rights of their own. Refused resources come last, with the error of their type.
    * A topic's setting lists its synonyms: the topic's own value, then the values of the broker-wide setting of the
      highest precedence (`log.retention.ms` for `retention.ms`, even if `log.retention.hours` decides).
    * A broker is named by its id; the empty name stands for the settings changed for all brokers at run time.
    * A group need not exist to be described; a setting that it does not override has the broker's value. Kafka's
      internal group settings are listed only if they are set, and so are topic settings that Kafka does not have. A
      request may name up to a thousand groups without overrides: each costs this broker two kilobytes, and the sender
      almost nothing.
    * A resource that is named twice is described twice. But in a request with more than 20 resources each is described
      once, however its name is spelled, because a few bytes that repeat a broker would cost fifty kilobytes each time.
    * Configuration keys restrict the response; null and an empty list mean all settings.
    * A member of a cluster reads the settings from ZooKeeper, because it may not know the latest changes yet.
    * The values of sensitive settings stay secret. A setting that Kafka does not know counts as sensitive.
    * The loggers of this broker are described under its id, with their present levels. Client metrics subscriptions
      need not exist; a member of a cluster refuses them, as Kafka does in ZooKeeper mode.
    """
    known = ResourceType._value2member_map_
    if any(resource.resource_type not in known for resource in request.resources):
        error = KafkaError(ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST.message)
        return answer_each(
            request.resources,
            lambda each: _refused(each, error),
            lambda results: DescribeConfigsResponse(results=results),
        )
    resources = request.resources
    if len(resources) > RESOURCES_REPEATED_MAX:
        resources = list({_identity(each): each for each in resources}.values())
    describer = _Describer(context.broker, request)
    if context.broker.authorizer is not None:
        return _describe_allowed(describer, resources, context)
    if context.broker.is_in_cluster:
        return _read_and_describe(describer, resources, context.broker)
    if len(resources) > RESOURCES_PER_TURN:
        return _describe_in_slices(describer, resources)
    return DescribeConfigsResponse(results=[describer.describe(each) for each in resources])


async def _describe_allowed(
    describer: _Describer, resources: Sequence[DescribeConfigsResource], context: RequestContext[Broker]
) -> DescribeConfigsResponse:
    """Return the response: the resources that the client may see, then errors for the others."""
    allowed: list[DescribeConfigsResource] = []
    refused: list[DescribeConfigsResult] = []
    time_slice = TimeSlice()
    for each in resources:
        await time_slice.yield_if_over()
        error = forbidden(context, AclOperation.DESCRIBE_CONFIGS, each.resource_type, each.resource_name)
        if error is None:
            allowed.append(each)
        else:
            refused.append(_refused(each, error))
    if context.broker.is_in_cluster:
        response = await _read_and_describe(describer, allowed, context.broker)
    else:
        response = await _describe_in_slices(describer, allowed)
    response.results += refused
    return response


def _identity(resource: DescribeConfigsResource) -> tuple[int, str | int]:
    """Return the type and normalized name of a resource: 1, 01 and +1 are the same broker."""
    kind, name = resource.resource_type, resource.resource_name
    number = parse_integer(name) if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) else None
    return kind, name if number is None else number


async def _read_and_describe(
    describer: _Describer, resources: Sequence[DescribeConfigsResource], broker: Broker
) -> DescribeConfigsResponse:
    """Read settings from ZooKeeper and return their description.

    If ZooKeeper does not answer, the settings that this broker knows are described.
    """
    topics = [each.resource_name for each in resources if each.resource_type == ResourceType.TOPIC]
    groups = [each.resource_name for each in resources if each.resource_type == ResourceType.GROUP]
    try:
        await broker.administration.settings.refresh(
            [name for name in topics if name in broker.cluster.topics], groups[:GROUPS_WITHOUT_SETTINGS_MAX]
        )
    except KafkaError as error:
        _reminder.tell(logger.warning, "Describing settings as they were known last: %s", error)
    return await _describe_in_slices(describer, resources)


async def _describe_in_slices(
    describer: _Describer, resources: Sequence[DescribeConfigsResource]
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=await each_in_slices(resources, describer.describe))


class _Describer:
    """Describer of settings for one request, by the request's options."""

    def __init__(self, broker: Broker, request: DescribeConfigsRequest) -> None:
        self._broker = broker
        self._configs: ConfigRepository = broker.configs
        self._unchanged: dict[frozenset[str], list[DescribeConfigsResourceResult]] = {}
        """The entries of a topic without settings of its own, by the names asked for. Thousands of topics share them."""
        self._unchanged_groups: dict[frozenset[str], list[DescribeConfigsResourceResult]] = {}
        """The entries of a group without settings of its own, by the names asked for."""
        self._groups_left = GROUPS_WITHOUT_SETTINGS_MAX
        self._with_synonyms = request.include_synonyms
        self._with_documentation = request.include_documentation

    def describe(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        try:
            entries = self._entries(resource)
        except KafkaError as error:
            return _refused(resource, error)
        return DescribeConfigsResult(
            error_code=ErrorCode.NONE,
            error_message="",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=entries,
        )

    def _entries(self, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
        name, wanted = resource.resource_name, set(resource.configuration_keys or ())
        if resource.resource_type == ResourceType.TOPIC:
            return self._topic(name, wanted)
        if resource.resource_type == ResourceType.BROKER:
            if not name:
                return self._all_brokers(wanted)
            self._check_broker(name)
            return [self._broker_entry(each) for each in self._configs.names() if not wanted or each in wanted]
        if resource.resource_type == ResourceType.GROUP:
            return self._group(name, wanted)
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            return self._loggers(name, wanted)
        if resource.resource_type == ResourceType.CLIENT_METRICS:
            return self._client_metrics(name, wanted)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {ResourceType(resource.resource_type).name}"
        )

    def _check_broker(self, name: str, instead: str = " or empty string,") -> None:
        own = self._configs.started_with.node_id
        broker_id = parse_integer(name)
        if broker_id is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
        if broker_id != own:
            message = f"Unexpected broker id, expected {own}{instead} but received {name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)

    # ------------------------------------------------------------------ topics

    def _topic(self, topic: str, wanted: set[str]) -> list[DescribeConfigsResourceResult]:
        if (problem := topic_name_problem(topic)) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if topic not in self._broker.cluster.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        if self._configs.topic_overrides(topic).texts:
            return self._topic_entries(topic, wanted)
        key = frozenset(wanted)
        if key not in self._unchanged:
            self._unchanged[key] = self._topic_entries(topic, wanted)
        return self._unchanged[key]

    def _topic_entries(self, topic: str, wanted: set[str]) -> list[DescribeConfigsResourceResult]:
        texts = self._configs.topic_overrides(topic).texts
        return [
            self._topic_entry(topic, declared)
            for name, declared in topic_settings().items()
            if (not wanted or name in wanted) and (not declared.internal or name in texts)
        ]

    def _topic_entry(self, topic: str, declared: Setting) -> DescribeConfigsResourceResult:
        value = format_value(declared.kind, getattr(self._configs.log_config(topic), field_name(declared.name)))
        synonym = topic_synonym(declared)
        chain = [] if synonym is None else synonym_values(self._configs, synonym)
        if declared.name in self._configs.topic_overrides(topic).texts:
            chain.insert(0, SynonymValue(declared.name, value, DYNAMIC_TOPIC_CONFIG))
        return self._entry(declared.name, value, declared, chain, is_read_only=False)

    # ------------------------------------------------------------------ groups

    def _group(self, group_id: str, wanted: set[str]) -> list[DescribeConfigsResourceResult]:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        if group_id not in self._configs.groups:
            self._groups_left -= 1
            if self._groups_left < 0:
                message = f"No more than {GROUPS_WITHOUT_SETTINGS_MAX} groups without settings are described at a time"
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if texts := self._configs.groups.overrides(group_id).texts:
            return self._group_entries(texts, wanted)
        key = frozenset(wanted)
        if key not in self._unchanged_groups:
            self._unchanged_groups[key] = self._group_entries({}, wanted)
        return self._unchanged_groups[key]

    def _group_entries(self, texts: Texts, wanted: set[str]) -> list[DescribeConfigsResourceResult]:
        entries = (
            self._group_entry(each, texts) for each in group_settings().values() if not wanted or each.name in wanted
        )
        return [each for each in entries if each is not None]

    def _group_entry(self, declared: Setting, texts: Texts) -> DescribeConfigsResourceResult | None:
        name, synonym = declared.name, broker_synonym(declared)
        if declared.internal and name not in texts and (synonym is None or not self._configs.is_given(synonym)):
            return None
        value = self._group_value(declared, texts)
        if synonym is not None:
            chain = synonym_values(self._configs, synonym)
        else:
            chain = [SynonymValue(name, default_text(declared), DEFAULT_CONFIG)]
        if name in texts:
            chain.insert(0, SynonymValue(name, value, GROUP_CONFIG))
        return self._entry(name, value, declared, chain, is_read_only=False)

    def _group_value(self, declared: Setting, texts: Texts) -> str | None:
        """Return the text of a group's own value, or else of the broker's default; None: the value is null.

        A group's own value is returned even if it is beyond the broker's bounds.
        """
        if declared.name not in texts:
            return format_value(declared.kind, getattr(self._configs.groups.of_broker, field_name(declared.name)))
        return _as_kept(declared, texts)

    # ------------------------------------------------------------------ brokers

    def _broker_entry(self, name: str) -> DescribeConfigsResourceResult:
        chain = synonym_values(self._configs, name)
        return self._entry(
            name,
            self._configs.value(name),
            described_setting(self._configs.known, name),
            chain,
            is_read_only=self._is_fixed(name),
        )

    def _all_brokers(self, wanted: set[str]) -> list[DescribeConfigsResourceResult]:
        entries = []
        for name, text in sorted(self._configs.described_for_all_brokers().items()):
            if wanted and name not in wanted:
                continue
            chain = [
                each for each in synonym_values(self._configs, name) if each.source == DYNAMIC_DEFAULT_BROKER_CONFIG
            ]
            entries.append(
                self._entry(
                    name, text, described_setting(self._configs.known, name), chain, is_read_only=self._is_fixed(name)
                )
            )
        return entries

    def _is_fixed(self, name: str) -> bool:
        """True if the setting is shown as read-only. Unknown names are, too, such as settings of a single listener."""
        declared = self._configs.known.get(name)
        return declared is None or declared.is_read_only

    # ------------------------------------------------------------------ loggers, client metrics

    def _loggers(self, name: str, wanted: set[str]) -> list[DescribeConfigsResourceResult]:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        self._check_broker(name, instead="")
        return [
            DescribeConfigsResourceResult(
                name=each,
                value=level,
                read_only=False,
                config_source=DYNAMIC_BROKER_LOGGER_CONFIG,
                is_sensitive=False,
                synonyms=[],
                config_type=UNKNOWN_TYPE,
                documentation="",
            )
            for each, level in logger_levels().items()
            if not wanted or each in wanted
        ]

    def _client_metrics(self, name: str, wanted: set[str]) -> list[DescribeConfigsResourceResult]:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        texts = self._configs.client_metrics.get(name, NO_OVERRIDES).texts
        entries = []
        for declared in client_metrics_settings().values():
            if wanted and declared.name not in wanted:
                continue
            value = _as_kept(declared, texts) if declared.name in texts else default_text(declared)
            chain = [SynonymValue(declared.name, value, CLIENT_METRICS_CONFIG)] if declared.name in texts else []
            entries.append(self._entry(declared.name, value, declared, chain, is_read_only=False))
        return entries

    # ------------------------------------------------------------------ entries

    def _entry(
        self,
        name: str,
        value: str | None,
        declared: Setting | None,
        chain: Iterable[SynonymValue],
        *,
        is_read_only: bool,
    ) -> DescribeConfigsResourceResult:
        listed = list(chain)
        is_sensitive = declared is None or declared.is_sensitive
        synonyms = [DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source) for each in listed]
        return DescribeConfigsResourceResult(
            name=name,
            value=None if is_sensitive else value,
            read_only=is_read_only,
            config_source=listed[0].source if listed else DEFAULT_CONFIG,
            is_sensitive=is_sensitive,
            synonyms=synonyms if self._with_synonyms else [],
            config_type=UNKNOWN_TYPE if declared is None else declared.kind,
            documentation=declared.documentation if declared is not None and self._with_documentation else None,
        )


def _as_kept(declared: Setting, texts: Texts) -> str | None:
    """Return the stored value of a setting in Kafka's spelling; an invalid value is returned unchanged."""
    try:
        return format_value(declared.kind, parse_value(declared, texts[declared.name]))
    except InvalidSetting:
        return texts[declared.name]


def _refused(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


_TYPES = frozenset(ResourceType)
_TYPES_OF_V0 = frozenset([ResourceType.CLIENT_METRICS])


@handles(ListConfigResourcesRequest)
def list_config_resources(
    request: ListConfigResourcesRequest, context: RequestContext[Broker]
) -> Worked[ListConfigResourcesResponse]:
    """ListConfigResources: list resources that have settings, or may have settings.

    Behaviour
    * The client needs the right to describe the cluster's configs: else CLUSTER_AUTHORIZATION_FAILED.
    * Requests of v0 ask for client metrics subscriptions (16) only. Since v1 requests name types; none named means all.
    * A type that the version does not support gets UNSUPPORTED_VERSION.
    * All topics and brokers are listed, but only those groups that have settings of their own. Each broker is listed
      for its loggers (8), too.
    * Client metrics subscriptions are listed if they have settings.
    """
    require_on_cluster(context, AclOperation.DESCRIBE_CONFIGS)
    known = _TYPES if context.api_version > 0 else _TYPES_OF_V0
    wanted = frozenset(request.resource_types) or known
    if not wanted <= known:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    resources = [
        (kind, name)
        for kind in sorted(wanted, reverse=True)
        for name in _names(kind, context.broker, context.listener_name)
    ]
    return answer_each(
        resources,
        lambda each: ConfigResource(resource_name=each[1], resource_type=each[0]),
        lambda listed: ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=listed),
    )


def _names(kind: int, broker: Broker, listener: str) -> Iterable[str]:
    if kind == ResourceType.GROUP:
        return broker.configs.groups
    if kind in (ResourceType.BROKER_LOGGER, ResourceType.BROKER):
        return [str(each.node_id) for each in broker.cluster.endpoints(listener)]
    return broker.cluster.topics if kind == ResourceType.TOPIC else broker.configs.client_metrics
