"""Settings of topics, brokers, groups and others, as a cluster has them in force, and their changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.server.cli.client.cluster import Cluster, only
from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.server.cli.command_line import is_number
from ottla.server.config.quantities import InvalidQuantity, as_number, shown
from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

if TYPE_CHECKING:
    from ottla.server.cli.client.connection import BrokerConnection
    from ottla.wire.messages.describe_configs import DescribeConfigsResourceResult

TOPIC, BROKER, LOGGERS, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Kafka's numbers of the types of resources. A broker without a name stands for the defaults of all brokers."""

SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster default",
    4: "start",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}
"""Places that a value can come from, by Kafka's number of the source. "start": a file, options or variables of the start."""

OWN_SOURCES = {TOPIC: "topic", BROKER: "broker", LOGGERS: "logger", CLIENT_METRICS: "client metrics", GROUP: "group"}
_KIND_NAMES = {
    TOPIC: "topic",
    BROKER: "broker",
    LOGGERS: "the loggers of broker",
    CLIENT_METRICS: "client metrics",
    GROUP: "group",
}
_SET, _DELETE = 0, 1

T = TypeVar("T")


class Resource(NamedTuple):
    """Owner of settings: its type, and its name or broker id."""

    kind: int
    name: str

    @property
    def own_source(self) -> str:
        """Source of values that were set for this very resource, as a text."""
        return "cluster default" if self == CLUSTER else OWN_SOURCES[self.kind]

    def __str__(self) -> str:
        if self == CLUSTER:
            return "all brokers"
        return f"{_KIND_NAMES[self.kind]} {self.name}"


CLUSTER = Resource(BROKER, "")


class Origin(NamedTuple):
    """Value of a setting with its source. `name` may be another setting's, such as log.retention.hours."""

    name: str
    value: str | None
    source: str


class Setting(NamedTuple):
    """Setting in force. A sensitive `value` is None. `origins`: the possible values, first the one in force."""

    name: str
    value: str | None
    source: str
    is_sensitive: bool
    is_read_only: bool
    origins: tuple[Origin, ...]


Change = tuple[str, str | None]
"""Name of a setting and its new value; None: the setting is deleted, so that the next source decides."""


def assignment(text: str, option: str) -> tuple[str, str]:
    """Parse NAME=VALUE. A duration or size such as 7d becomes Kafka's number. Raises UsageError."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"{option} {text}: must be NAME=VALUE")
    try:
        return name, as_number(name, value)
    except InvalidQuantity as error:
        raise UsageError(f"{option} {text}: {error}") from None


def changes_of(sets: Iterable[tuple[str, str]], deletes: Iterable[str]) -> dict[str, str | None]:
    """Return the settings' new values; None for those in `deletes`. Raises UsageError if a setting is named twice."""
    found: dict[str, str | None] = {}
    for name, value in [*sets, *((each, None) for each in deletes)]:
        if name in found:
            raise UsageError(f"setting {name} is named twice")
        found[name] = value
    return found


def settings_of(
    cluster: Cluster, resource: Resource, names: Sequence[str] | None = None, *, with_origins: bool = True
) -> list[Setting]:
    """Return the settings of a resource, sorted. `names` None: all settings. Raises RequestFailed."""
    wanted = DescribeConfigsResource(
        resource_type=resource.kind,
        resource_name=resource.name,
        configuration_keys=None if names is None else list(names),
    )
    request = DescribeConfigsRequest(resources=[wanted], include_synonyms=with_origins)

    def ask(broker: BrokerConnection) -> list[Setting]:
        found = only(broker.ask(request).results, f"the settings of {resource}")
        cluster.check(f"the settings of {resource}", found.error_code, found.error_message)
        return sorted(map(_setting, found.configs), key=lambda each: each.name)

    return cluster.patiently(lambda: _of(cluster, resource, ask))


def check_names(known: Iterable[Setting], resource: Resource, names: Iterable[str]) -> None:
    """Raise RequestFailed if `names` has a name that is not in `known`. The text suggests the nearest name."""
    possible = [each.name for each in known]
    for name in names:
        if name not in possible:
            from ottla.server.config.broker_config import nearest_name  # only for a message that ends the process

            near = nearest_name(name, possible)
            hint = f"; did you mean {near}?" if near else ""
            raise RequestFailed(f"{resource} has no setting {name}{hint}")


class Altered(NamedTuple):
    """Setting before and after a change. `own_before`: former value of the resource itself; None if it had none."""

    name: str
    before: str | None
    after: str | None
    own_before: str | None
    had_own: bool
    """True if the resource itself had a value, also if nobody tells it."""
    is_sensitive: bool
    is_idle: bool
    """True if a value is deleted that the resource itself does not have."""

    @property
    def before_text(self) -> str | None:
        """Value before the change, for people."""
        return None if self.before is None else shown(self.name, self.before)

    @property
    def after_text(self) -> str:
        """Value after the change, for people. A cluster does not tell the default that follows a deletion."""
        return "(default)" if self.after is None else shown(self.name, self.after)

    @property
    def undo(self) -> Change | None:
        """Change that undoes this one; None if nothing is to be undone, or the former value is a secret."""
        was_set = self.had_own and (self.is_sensitive or self.own_before == self.after)
        return None if was_set or self.is_idle else (self.name, self.own_before)


def planned(known: Sequence[Setting], resource: Resource, changes: Mapping[str, str | None]) -> list[Altered]:
    """Return what `changes` would do to the settings `known`. Raises RequestFailed if a setting does not exist."""
    check_names(known, resource, changes)
    return [_altered(each, resource.own_source, changes[each.name]) for each in known if each.name in changes]


def _altered(setting: Setting, own_source: str, value: str | None) -> Altered:
    is_own = [each.source == own_source and each.name == setting.name for each in setting.origins]
    own = [origin.value for origin, mine in zip(setting.origins, is_own, strict=True) if mine]
    others = [origin.value for origin, mine in zip(setting.origins, is_own, strict=True) if not mine]
    if not setting.origins and setting.source == own_source:
        own = [setting.value]
    is_idle = value is None and not own
    after = setting.value if is_idle else next(iter(others), None) if value is None else value
    return Altered(setting.name, setting.value, after, next(iter(own), None), bool(own), setting.is_sensitive, is_idle)


def alter_settings(
    cluster: Cluster, resource: Resource, changes: Mapping[str, str | None], *, only_checks: bool
) -> None:
    """Change settings of one resource: all or none. `only_checks`: only validate them. Raises RequestFailed."""
    configs = [
        IncrementalConfig(name=name, config_operation=_DELETE if value is None else _SET, value=value)
        for name, value in changes.items()
    ]
    wanted = IncrementalConfigsResource(resource_type=resource.kind, resource_name=resource.name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[wanted], validate_only=only_checks)

    def ask(broker: BrokerConnection) -> None:
        found = only(broker.ask(request).responses, f"the settings of {resource}")
        cluster.check(f"the settings of {resource}", found.error_code, found.error_message)

    cluster.patiently(lambda: _of(cluster, resource, ask))


def _of(cluster: Cluster, resource: Resource, ask: Callable[[BrokerConnection], T]) -> T:
    """Call `ask` with the broker that has these settings or loggers; for other resources with any broker."""
    if resource.kind in (BROKER, LOGGERS) and resource.name:
        if not is_number(resource.name):
            raise UsageError(f"{resource.name} is not the id of a broker")
        cluster.check_broker(int(resource.name))
        return ask(cluster.broker(int(resource.name)))
    return cluster.ask_any(ask)


def _setting(found: DescribeConfigsResourceResult) -> Setting:
    origins = tuple(Origin(each.name, each.value, _source(each.source)) for each in found.synonyms)
    return Setting(found.name, found.value, _source(found.config_source), found.is_sensitive, found.read_only, origins)


def _source(number: int) -> str:
    return SOURCES.get(number, "unknown")
