"""Reference of all settings of brokers, topics, groups and subscriptions to client metrics, made from their declarations.

`ottla settings` shows it; `docs/settings.md` is `reference_page`, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from ottla.groupcoord.group_settings import GroupSettings
from ottla.replication.config import LogConfig
from ottla.server.config.broker_config import OF_SINGLE_LISTENERS, broker_settings, known_names, settings_of_member
from ottla.server.config.client_metrics import ClientMetricsConfig
from ottla.server.config.sasl_config import KerberosConfig, OAuthLoginConfig, SaslConfig
from ottla.server.config.security_config import TlsConfig, authorizer_settings
from ottla.wire.settings import BOOLEAN, LIST, STRING, Setting, SettingType, format_value, settings_of

_CHANGES_NOTHING = "Nothing: the setting has no effect here."
_OF_OLDER_RELEASES = "A setting of older releases, which files may still have."

BROKER, TOPIC, GROUP, CLIENT_METRICS = SCOPES = ("broker", "topic", "group", "client-metrics")


class Reference(NamedTuple):
    """Documentation of one setting. Texts that do not apply are empty; `default` None: there is no default."""

    name: str
    scope: str
    """Owner of the setting: one of SCOPES."""
    type: str
    default: str | None
    allowed: str
    change: str
    """Scope in which the setting can be changed: "read-only", "per-broker", "cluster-wide", or the scope itself."""
    per_listener: bool
    """Whether a listener may have a value of its own, as listener.name.<listener>.<name>."""
    cluster_only: bool
    """Whether only members of a cluster with ZooKeeper describe it."""
    internal: bool
    """Whether Kafka does not document it."""
    has_effect: bool
    what: str
    on_change: str
    """Effect of a change at run time; empty if the setting cannot be changed then."""
    defaults_from: tuple[str, ...]
    """The settings of the broker that the default comes from, the first that is given."""


@cache
def all_references() -> tuple[Reference, ...]:
    """Return the documentation of all settings: by scope, brokers first, and by name within a scope."""
    found = [*_of_brokers()]
    for scope, config_class in ((TOPIC, LogConfig), (GROUP, GroupSettings), (CLIENT_METRICS, ClientMetricsConfig)):
        found += [_reference(scope, declared) for _, declared in sorted(settings_of(config_class).items())]
    return tuple(found)


def matching(text: str) -> list[Reference]:
    """Return the settings with exactly this name; if there are none, those whose names contain the text."""
    wanted = text.strip().lower()
    exact = [each for each in all_references() if each.name.lower() == wanted]
    return exact or [each for each in all_references() if wanted in each.name.lower()]


def _of_brokers() -> Iterator[Reference]:
    known = {**settings_of_member(), **authorizer_settings()}
    for name in sorted(known_names()):
        if name in known:
            yield _reference(BROKER, known[name])
        else:
            yield _former(name)


def _former(name: str) -> Reference:
    """Return the documentation of an older release's setting, which is accepted without effect."""
    declared = Setting(name=name, kind=STRING, default=None, effective=False, internal=True, doc=_OF_OLDER_RELEASES)
    return _reference(BROKER, declared)


def _reference(scope: str, declared: Setting) -> Reference:
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
        what=declared.doc,
        on_change="" if change == "read-only" else declared.on_change if declared.effective else _CHANGES_NOTHING,
        defaults_from=tuple(each.name for each in declared.synonyms),
    )


@cache
def _of_listeners() -> frozenset[str]:
    of_classes = (settings_of(each) for each in (TlsConfig, SaslConfig, OAuthLoginConfig, KerberosConfig))
    return frozenset().union(*of_classes, OF_SINGLE_LISTENERS)


_LARGEST = {SettingType.SHORT: 2**15 - 1, SettingType.INT: 2**31 - 1, SettingType.LONG: 2**63 - 1}


def _allowed(declared: Setting) -> str:
    """Describe the allowed values of a setting; empty if every value of its type is allowed."""
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


_HEAD = """\
# Settings

Ottla has Apache Kafka's settings, under Kafka's names. This page is made by `ottla settings --markdown`; `ottla settings NAME`
tells the same of one setting, and `ottla settings PART` lists those with this part in their names.

The last line of a setting has its type, its default, and where it can be changed while a broker runs: nowhere (*read-only*: it is
given at the start, in server.properties or with `--override`), for one broker (*per-broker*), for all brokers of the cluster
(*cluster-wide*), or for one topic, group or subscription. Where a name has a unit, files of settings and commands take durations and sizes,
too: `log.retention.hours=7d`, `log.segment.bytes=64MiB` (ms, s, m or min, h, d, w; B, KiB, MiB, GiB, TiB). A setting in brackets behind a default is the broker's, and the default comes from it.
"""

_AS_BROKER = "does not set is as the broker has it,"
_WITHOUT_EFFECT = "These are accepted, checked and described to clients, so that a file for Apache Kafka works as it is. They do nothing."
_SUBSCRIPTIONS = "A broker with the HTTP endpoint asks clients for metrics. Others keep the subscriptions."
_SECTIONS = (
    ("Brokers", BROKER, True, "What a broker is started with."),
    ("Topics", TOPIC, True, f"What a topic {_AS_BROKER} by the first of the settings in brackets that is given."),
    (
        "Groups",
        GROUP,
        True,
        f"Consumer, share and streams groups. What a group {_AS_BROKER} by the setting in brackets.",
    ),
    ("Brokers: without effect", BROKER, False, _WITHOUT_EFFECT),
    ("Topics: without effect", TOPIC, False, "The same of settings of topics."),
    ("Groups: without effect", GROUP, False, "The same of settings of groups."),
    ("Subscriptions to metrics of clients", CLIENT_METRICS, True, _SUBSCRIPTIONS),
)


def reference_page(settings: Sequence[Reference]) -> str:
    """Return a Markdown page with a block for each of these settings, without empty sections."""
    parts = [_HEAD]
    for title, scope, has_effect, about in _SECTIONS:
        of_section = [each for each in settings if (each.scope, each.has_effect) == (scope, has_effect)]
        if of_section:
            parts += [f"## {title}\n\n{about}\n", *map(_block, of_section)]
    return "\n".join(parts)


def _block(setting: Reference) -> str:
    """Return a heading, so that it can be linked to and searched for, the description, and a line of properties."""
    paragraphs = [f"### `{setting.name}`", _escaped(setting.what)]
    if setting.has_effect and setting.on_change:
        paragraphs.append(f"*A change at run time:* {_escaped(setting.on_change)}")
    properties = [_type(setting), f"default {_default(setting)}", setting.change]
    if setting.per_listener:
        properties.append(f"for one listener `listener.name.<listener>.{setting.name}`")
    if setting.cluster_only:
        properties.append("described by members of a cluster with ZooKeeper only")
    return "\n\n".join([*paragraphs, "; ".join(properties) + "."]) + "\n"


def _type(setting: Reference) -> str:
    return (
        f"{setting.type}, {_escaped(setting.allowed)}"
        if setting.allowed and setting.type != "boolean"
        else setting.type
    )


def _default(setting: Reference) -> str:
    value = "none" if setting.default is None else f"`{setting.default}`" if setting.default else "empty"
    return value + (f" ({', '.join(f'`{each}`' for each in setting.defaults_from)})" if setting.defaults_from else "")


def _escaped(text: str) -> str:
    for special in "\\|*<>_":
        text = text.replace(special, f"\\{special}")
    return text
