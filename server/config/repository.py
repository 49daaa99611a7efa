"""Settings in force: the broker's start settings, their run-time changes, and overrides of topics and groups.

Four layers, the first that has a value wins: changed for this broker, changed for all brokers, given at start, default.
A changed setting displaces its synonyms of the layers below (log.retention.hours changed at run time wins over
log.retention.ms given at start), as in Kafka's DynamicBrokerConfig. Topics and groups put their own settings over the defaults
that come out of it.

Sans-IO: the administration writes changes to the coordination tree and then puts them here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

from ottla.groupcoord.config import DeadLetterConfig
from ottla.groupcoord.group_settings import (
    BrokerValue,
    GroupSettings,
    broker_group_settings,
    check_bounds_of_broker,
    own_values,
    settings_in_force,
)
from ottla.replication.config import LogConfig, ReplicationConfig
from ottla.server.config.broker_config import (
    BrokerConfig,
    broker_settings,
    broker_value,
    check_together,
    log_config_from,
    setting_value,
    settings_of_member,
    texts_of_listener,
)
from ottla.server.config.server_config import ServerConfig
from ottla.wire.settings import InvalidSetting, Setting, format_value, read_settings, settings_of

Texts = Mapping[str, str]


class Overrides(NamedTuple):
    """Settings in one node of the coordination tree, with the node's version (None: there is no node)."""

    texts: Texts
    version: int | None


NO_OVERRIDES = Overrides({}, None)


class ConfigOperation(IntEnum):
    """Kind of change of a setting, numbered as in an IncrementalAlterConfigs request."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One change of an IncrementalAlterConfigs request."""

    name: str
    operation: int
    value: str | None


logger = logging.getLogger("ottla.configs")

DYNAMIC_TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5
DYNAMIC_BROKER_LOGGER_CONFIG = 6
CLIENT_METRICS_CONFIG = 7
GROUP_CONFIG = 8

MIN_INSYNC_REPLICAS = "min.insync.replicas"

_SYNONYMS: dict[str, tuple[str, ...]] = {
    synonym.name: tuple(each.name for each in declared.synonyms)
    for declared in settings_of(LogConfig).values()
    for synonym in declared.synonyms
    # Kafka has it as the default of log.flush.interval.ms only, and not the other way round.
    if synonym.name != "log.flush.scheduler.interval.ms"
}
_OF_ONE_LISTENER = re.compile(r"listener\.name\.[^.]*\.(.*)")
# Settings that are given for one mechanism of one listener: listener.name.external.plain.sasl.jaas.config
_OF_ONE_MECHANISM = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)


class ConfigRepository:
    """Settings in force. `current`: the broker's configuration with all changes made at run time."""

    def __init__(self, started_with: BrokerConfig) -> None:
        self.started_with = started_with
        self.known = broker_settings() if started_with.zookeeper is None else settings_of_member()
        self.current = started_with
        self._texts: Texts = started_with.static
        self.for_all_brokers = NO_OVERRIDES
        self.for_this_broker = NO_OVERRIDES
        self.topics: dict[str, Overrides] = {}
        self._log_configs: dict[str, LogConfig] = {}
        self._listeners: list[Callable[[BrokerConfig], None]] = []
        self._checkers: list[Callable[[Texts], None]] = []
        self.groups = GroupRepository(self.value_in_force)
        self.client_metrics: dict[str, Overrides] = {}
        self.client_metrics_changes = 0  # how many there were
        self.has_eligible_leaders: Callable[[], bool] = lambda: False
        """Whether min.insync.replicas is one setting of all brokers (KIP-966)."""

    # ------------------------------------------------------------------ topics

    def log_config(self, topic: str) -> LogConfig:
        """Return a topic's settings with all defaults filled in."""
        overrides = self.topics.get(topic)
        if overrides is None or not overrides.texts:
            return self.current.log
        config = self._log_configs.get(topic)
        if config is None:
            config = self._log_configs[topic] = self._with_overrides(topic, overrides.texts)
        return config

    def log_config_with(self, topic: str, texts: Texts) -> LogConfig:
        """Return the settings that a topic would have with the overrides `texts`."""
        return self._with_overrides(topic, texts) if texts else self.current.log

    def _with_overrides(self, topic: str, texts: Texts) -> LogConfig:
        """Return the topic defaults with a topic's overrides applied; log and skip overrides that are invalid here."""
        config = self.current.log
        try:
            return config.with_overrides(texts)
        except InvalidSetting:
            # One by one, so that a setting that cannot be taken does not take the good ones with it.
            for name, text in texts.items():
                try:
                    config = config.with_overrides({name: text})
                except InvalidSetting as error:
                    logger.warning("Left aside a setting of topic %s: %s", topic, error)
        return config

    def topic_overrides(self, topic: str) -> Overrides:
        return self.topics.get(topic, NO_OVERRIDES)

    def put_topic(self, topic: str, overrides: Overrides) -> None:
        self.topics[topic] = overrides
        self._log_configs.pop(topic, None)

    def remove_topic(self, topic: str) -> None:
        self.topics.pop(topic, None)
        self._log_configs.pop(topic, None)

    def put_client_metrics(self, name: str, overrides: Overrides) -> None:
        """Store a client metrics subscription; remove it if its node does not exist any more."""
        if overrides.texts != self.client_metrics.get(name, NO_OVERRIDES).texts:
            self.client_metrics_changes += 1
        if overrides.version is None:
            self.client_metrics.pop(name, None)
        else:
            self.client_metrics[name] = overrides

    # ------------------------------------------------------------------ this broker

    def broker_overrides(self, *, for_all: bool) -> Overrides:
        return self.for_all_brokers if for_all else self.for_this_broker

    def put_broker(self, overrides: Overrides, *, for_all: bool) -> None:
        """Apply settings of this broker or (`for_all`) of all; call the listeners if a value in force has changed."""
        before = self._texts
        if for_all:
            self.for_all_brokers = overrides
        else:
            self.for_this_broker = overrides
        self._texts = self._merged(self.for_all_brokers.texts, self.for_this_broker.texts)
        self.groups.on_broker_change()
        changed = self.configuration(self.for_all_brokers.texts, self.for_this_broker.texts)
        if changed != self.current:
            self.current = changed
            # The settings of every topic build on the defaults, which may have changed.
            self._log_configs.clear()
        if self._texts != before:
            self.announce()

    def announce(self) -> None:
        """Call the listeners, because a setting, or a file named by a setting, has changed."""
        for on_change in self._listeners:
            on_change(self.current)

    def on_change(self, listener: Callable[[BrokerConfig], None]) -> None:
        """Register a function to call after each change, when `texts_of_listener` and `value` have the new values.

        Also called when a client sets this broker's settings to their present values: Kafka then reloads certificates.
        """
        self._listeners.append(listener)

    def on_check(self, checker: Callable[[Texts], None]) -> None:
        """Register a checker of clients' changes: it gets the resulting settings, and raises InvalidSetting to reject.

        The checker may be called in a thread. Changes that other brokers have written are not checked.
        """
        self._checkers.append(checker)

    @property
    def has_checkers(self) -> bool:
        """True if a function is registered by `on_check`."""
        return bool(self._checkers)

    def check(self, for_all_brokers: Texts, for_this_broker: Texts) -> None:
        """Call the registered checkers for a change not in force yet, perhaps in a thread. Raises InvalidSetting."""
        texts = self._merged(for_all_brokers, for_this_broker)
        for checker in self._checkers:
            checker(texts)

    def takeable(self, texts: Texts, *, for_all: bool) -> Texts:
        """Return `texts` without the settings that would make this broker's configuration invalid; log these."""
        taken: Texts = {}
        for name, text in texts.items():
            tried = {**taken, name: text}
            try:
                if for_all:
                    self.configuration(tried, self.for_this_broker.texts)
                else:
                    self.configuration(self.for_all_brokers.texts, tried)
                taken = tried
            except InvalidSetting as error:
                logger.error("Left aside a setting of %s: %s", "all brokers" if for_all else "this broker", error)
        return taken

    def configuration(self, for_all_brokers: Texts, for_this_broker: Texts) -> BrokerConfig:
        """Return the broker's configuration with these run-time settings. Raises InvalidSetting."""
        texts = self._merged(for_all_brokers, for_this_broker)
        replication = read_settings(ReplicationConfig, texts)
        server = read_settings(ServerConfig, texts)
        check_together(server, replication)
        check_bounds_of_broker(partial(broker_value, texts))
        return replace(
            self.started_with,
            server=server,
            replication=replication,
            dead_letters=read_settings(DeadLetterConfig, texts),
            log=log_config_from(texts),
        )

    def _merged(self, for_all_brokers: Texts, for_this_broker: Texts) -> Texts:
        texts = dict(self.started_with.static)
        for layer in (for_all_brokers, for_this_broker):
            for name, text in layer.items():
                for synonym in broker_synonyms(name):
                    texts.pop(synonym, None)
                texts[name] = text
        return texts

    def value(self, name: str) -> str | None:
        """Return the text of a broker setting's value in force; None if there is neither a value nor a default."""
        declared = self.known.get(name)
        if declared is None:
            return self._texts.get(name)
        return format_value(declared.kind, setting_value(declared, self._texts))

    def value_in_force(self, name: str) -> Any:
        """Return the parsed value in force of a known broker setting."""
        return broker_value(self._texts, name)

    @property
    def texts(self) -> Texts:
        """Texts of all broker settings that are set, at the start or at run time, by name."""
        return self._texts

    def texts_of_listener(self, listener: str) -> Texts:
        """Return the texts in force for one listener; settings with its prefix take precedence."""
        return texts_of_listener(self._texts, listener)

    def is_given(self, name: str) -> bool:
        """Return True if a broker setting is set, at the start or at run time."""
        return name in self._texts

    def names(self) -> list[str]:
        """Return the names of the broker settings that clients may see: Kafka's public ones, and those that are set."""
        public = {name for name, declared in self.known.items() if not declared.internal}
        return sorted(public.union(*(texts for texts, _ in self.layers())))

    def described_for_all_brokers(self) -> Texts:
        """Return the settings of all brokers as clients see them.

        With KIP-966 they include min.insync.replicas, even if it is not set, as in Kafka.
        """
        texts = self.for_all_brokers.texts
        if MIN_INSYNC_REPLICAS in texts or not self.has_eligible_leaders():
            return texts
        given = self.started_with.static.get(MIN_INSYNC_REPLICAS)
        return {**texts, MIN_INSYNC_REPLICAS: given or default_text(self.known[MIN_INSYNC_REPLICAS]) or ""}

    def layers(self) -> tuple[tuple[Texts, int], ...]:
        """Return the broker settings of run time and start, highest precedence first, each with its ConfigSource."""
        return (
            (self.for_this_broker.texts, DYNAMIC_BROKER_CONFIG),
            (self.described_for_all_brokers(), DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.started_with.static, STATIC_BROKER_CONFIG),
        )


class SynonymValue(NamedTuple):
    """Value of a setting in one layer (such as run time or start), with the layer's ConfigSource."""

    name: str
    value: str | None
    source: int


def broker_synonyms(name: str) -> tuple[str, ...]:
    """Return the names that can set a broker setting, in order of precedence."""
    return _SYNONYMS.get(name, (name,))


def without_listener(name: str) -> str | None:
    """Strip a listener prefix, such as `listener.name.external.`, from a setting's name; None without a prefix."""
    found = _OF_ONE_LISTENER.fullmatch(name)
    return None if found is None else found[1]


def _base(name: str) -> str | None:
    """Strip the prefixes of a listener and its SASL mechanism from a setting's name; None without a prefix."""
    found = without_listener(name)
    return None if found is None else next((each for each in _OF_ONE_MECHANISM if found.endswith(each)), found)


def described_setting(known: Mapping[str, Setting], name: str) -> Setting | None:
    """Return the declaration of a broker setting; None if it is unknown. The name may have a listener prefix."""
    declared = known.get(name)
    if declared is None and (base := _base(name)) is not None:
        return known.get(base)
    return declared


def synonym_values(repository: ConfigRepository, name: str) -> list[SynonymValue]:
    """Return the values that a broker setting and its synonyms have in all layers, the value in force first.

    As in Kafka, the list begins with the first entry named `name`; entries of synonyms before it are left out.
    """
    base = _base(name)
    names = broker_synonyms(name) if base is None else (name, base)
    known = repository.known
    declared_here = described_setting(known, name)
    found = [
        SynonymValue(each, _shown(declared_here, texts[each]), source)
        for texts, source in repository.layers()
        for each in names
        if each in texts
    ]
    for each in names:
        if (declared := known.get(each)) is not None and (text := default_text(declared)) is not None:
            found.append(SynonymValue(each, _shown(declared, text), DEFAULT_CONFIG))
    while found and found[0].name != name:
        del found[0]
    return found


def effective_topic_value(repository: ConfigRepository, declared: Setting, overrides: Texts) -> SynonymValue:
    """Return a topic setting's value in force and its source, as in CreateTopics' response.

    The value is in the unit of the topic setting, even if a broker setting with another unit has set it.
    """
    if declared.name in overrides:
        return SynonymValue(declared.name, overrides[declared.name], DYNAMIC_TOPIC_CONFIG)
    for texts, source in repository.layers():
        for synonym in declared.synonyms:
            if (text := texts.get(synonym.name)) is not None:
                converted = text if synonym.factor == 1 else str(int(text) * synonym.factor)
                return SynonymValue(declared.name, converted, source)
    return SynonymValue(declared.name, default_text(declared), DEFAULT_CONFIG)


def topic_synonym(declared: Setting) -> str | None:
    """Return the broker setting that gives a topic setting its default; None if there is none.

    Of several such settings it is the one of the highest precedence.
    """
    return declared.synonyms[0].name if declared.synonyms else None


def default_text(declared: Setting) -> str | None:
    return format_value(declared.kind, declared.default)


def _shown(declared: Setting | None, text: str) -> str | None:
    return None if declared is None or declared.is_sensitive else text


def topic_settings() -> Mapping[str, Setting]:
    return settings_of(LogConfig)


# ---------------------------------------------------------------------- groups


class GroupRepository:
    """Settings of groups, and the values in force: the group's, else those of the broker, which `broker_value` returns.

    The values are read at every heartbeat, so that a change applies from the next heartbeat on.
    """

    def __init__(self, broker_value: BrokerValue) -> None:
        self._broker_value = broker_value
        self._overrides: dict[str, Overrides] = {}
        self._own: dict[str, Mapping[str, Any]] = {}
        self._in_force: dict[str, GroupSettings] = {}
        self._of_broker: GroupSettings | None = None
        self._listeners: list[Callable[[str | None], None]] = []

    # ------------------------------------------------------------------ lookups

    def in_force(self, group_id: str) -> GroupSettings:
        """Return all settings of a group: its own values, and the broker's values for the rest."""
        found = self._in_force.get(group_id)
        if found is not None:
            return found
        if group_id not in self._overrides:
            # Not kept by group: anybody may ask for any group.
            return self.of_broker
        found = settings_in_force(self.own_values(group_id), self.of_broker)
        self._in_force[group_id] = found
        return found

    def own_values(self, group_id: str) -> Mapping[str, Any]:
        """Return a group's own settings, as values in force, by Kafka's names; empty if it has none."""
        overrides = self._overrides.get(group_id)
        if overrides is None:
            return {}
        if group_id not in self._own:
            self._own[group_id] = own_values(group_id, overrides.texts, self._broker_value)
        return self._own[group_id]

    def overrides(self, group_id: str) -> Overrides:
        """Return a group's own settings as stored in the coordination tree."""
        return self._overrides.get(group_id, NO_OVERRIDES)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids of groups that have settings of their own."""
        return iter(self._overrides)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._overrides

    def __len__(self) -> int:
        return len(self._overrides)

    @property
    def of_broker(self) -> GroupSettings:
        """Settings in force for groups without settings of their own."""
        if self._of_broker is None:
            self._of_broker = broker_group_settings(self._broker_value)
        return self._of_broker

    # ------------------------------------------------------------------ changing

    def put(self, group_id: str, overrides: Overrides) -> None:
        """Apply a group's own settings; if `overrides` has no version, the group has none any more."""
        before = self.overrides(group_id).texts
        if overrides.version is None:
            self._overrides.pop(group_id, None)
        else:
            self._overrides[group_id] = overrides
        if before != overrides.texts:
            self._own.pop(group_id, None)
            self._in_force.pop(group_id, None)
            self._notify(group_id)

    def on_broker_change(self) -> None:
        """Drop cached values, because a broker setting has changed, and with it the groups' defaults and bounds."""
        self._of_broker = None
        self._own.clear()
        self._in_force.clear()
        self._notify(None)

    def on_change(self, listener: Callable[[str | None], None]) -> None:
        """Register a function to call with the id of a group whose settings have changed; None: all groups."""
        self._listeners.append(listener)

    def _notify(self, group_id: str | None) -> None:
        for listener in self._listeners:
            listener(group_id)
