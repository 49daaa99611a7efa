"""Every setting that Ottla knows, as people and programs ask about it: made of the declarations, and of nothing else.

The settings are those of brokers, topics, groups, and subscriptions to metrics of clients. `ottla settings` and the reference
in `docs/settings.md` show them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import NamedTuple

from ottla.groupcoord.group_settings import GroupSettings
from ottla.replication.config import LogConfig
from ottla.server.settings.authorizer_config import authorizer_settings
from ottla.server.settings.broker_config import (
    OF_SINGLE_LISTENERS,
    broker_settings,
    known_names,
    settings_of_member,
)
from ottla.server.settings.client_metrics import ClientMetricsConfig
from ottla.server.settings.kerberos_config import KerberosConfig
from ottla.server.settings.oauth_login_config import OAuthLoginConfig
from ottla.server.settings.purposes import purposes
from ottla.server.settings.run_time import OF_SUBSCRIPTION, effect_on_broker, effect_on_group, effect_on_topic
from ottla.server.settings.sasl_config import SaslConfig
from ottla.server.settings.tls_config import TlsConfig
from ottla.wire.settings import BOOLEAN, LIST, STRING, Setting, SettingType, format_value, settings_of

_OF_OLDER_RELEASES = "A setting of older releases, which files may still have."

BROKER, TOPIC, GROUP, CLIENT_METRICS = SCOPES = ("broker", "topic", "group", "client-metrics")


class Reference(NamedTuple):
    """One setting. Texts that do not apply are empty; `default` is None where there is no value by default."""

    name: str
    scope: str
    """What has it: one of SCOPES."""
    type: str
    default: str | None
    allowed: str
    change: str
    """Where it can be changed: "read-only", "per-broker", "cluster-wide", or the scope itself."""
    per_listener: bool
    """Whether a listener may have a value of its own, as listener.name.<listener>.<name>."""
    cluster_only: bool
    """Whether only members of a cluster with ZooKeeper describe it."""
    internal: bool
    """Whether Kafka does not document it."""
    has_effect: bool
    what: str
    on_change: str
    """What a change at run time does; empty for what cannot be changed then."""
    defaults_from: tuple[str, ...]
    """The settings of the broker that the default comes from, the first that is given."""


@cache
def all_references() -> tuple[Reference, ...]:
    """Every setting, those of brokers first, each kind in the order of the names."""
    found = [*_of_brokers()]
    found += _references(TOPIC, settings_of(LogConfig), effect_on_topic)
    found += _references(GROUP, settings_of(GroupSettings), effect_on_group)
    found += _references(CLIENT_METRICS, settings_of(ClientMetricsConfig), lambda _: OF_SUBSCRIPTION)
    return tuple(found)


def matching(text: str) -> list[Reference]:
    """The settings of this name, or, if there is none, those with this text in their names."""
    wanted = text.strip().lower()
    exact = [each for each in all_references() if each.name.lower() == wanted]
    return exact or [each for each in all_references() if wanted in each.name.lower()]


def _of_brokers() -> Iterator[Reference]:
    known = {**settings_of_member(), **authorizer_settings()}
    for name in sorted(known_names()):
        if name in known:
            yield _reference(BROKER, known[name], effect_on_broker)
        else:
            yield _former(name)


def _former(name: str) -> Reference:
    """A setting of older releases of which nothing is declared but that a file may hold it."""
    declared = Setting(name=name, kind=STRING, default=None, effective=False, internal=True, doc=_OF_OLDER_RELEASES)
    return _reference(BROKER, declared, effect_on_broker)


def _references(scope: str, declared: Mapping[str, Setting], effect: Callable[[Setting], str]) -> Iterator[Reference]:
    return map(partial(_reference, scope, effect=effect), (declared[name] for name in sorted(declared)))


def _reference(scope: str, declared: Setting, effect: Callable[[Setting], str]) -> Reference:
    change = declared.dynamic if scope == BROKER else scope
    return Reference(
        name=declared.name,
        scope=scope,
        type=declared.kind.name.lower(),
        default=format_value(declared.kind, declared.default),
        allowed=_allowed(declared),
        change=change,
        per_listener=scope == BROKER and declared.name in _of_listeners(),
        cluster_only=scope == BROKER
        and declared.name in settings_of_member()
        and declared.name not in broker_settings(),
        internal=declared.internal,
        has_effect=declared.effective,
        what=declared.doc or purposes().get(declared.name, ""),
        on_change="" if change == "read-only" else effect(declared),
        defaults_from=tuple(each.name for each in declared.synonyms),
    )


@cache
def _of_listeners() -> frozenset[str]:
    of_classes = (settings_of(each) for each in (TlsConfig, SaslConfig, OAuthLoginConfig, KerberosConfig))
    return frozenset().union(*of_classes, OF_SINGLE_LISTENERS)


_LARGEST = {SettingType.SHORT: 2**15 - 1, SettingType.INT: 2**31 - 1, SettingType.LONG: 2**63 - 1}


def _allowed(declared: Setting) -> str:
    """The values that are allowed; empty if the type says it all."""
    if declared.choices:
        chosen = ", ".join(declared.choices)
        return f"any of {chosen}" if declared.kind is LIST else f"one of {chosen}"
    if declared.kind is BOOLEAN:
        return "true, false"
    low, high = declared.minimum, declared.maximum
    if high == _LARGEST.get(declared.kind):
        high = None
    if low is not None and high is not None:
        return f"{low} to {high}"
    if low is not None:
        return f"at least {low}"
    return "" if high is None else f"at most {high}"
