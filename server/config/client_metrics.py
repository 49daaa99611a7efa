"""Client metrics subscriptions (KIP-714): the settings of CLIENT_METRICS resources.

Kafka stores and describes subscriptions even without a plug-in that receives the pushed metrics. Ottla does the same when
its HTTP endpoint, which exposes the metrics, is off (`server/admin/telemetry/`). In ZooKeeper mode Kafka 3.9 rejects
subscriptions although it creates the node /config/client-metrics; Ottla stores them in that node (`znodes.OWN_PATHS`).

Patterns have RE2's syntax, which bounds the time of a match. Kafka uses Java's regular expressions. Ottla rejects features
that RE2 lacks: look-ahead, back references and possessive quantifiers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.server.config.repository import Overrides, Texts
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.settings import InvalidSetting, Setting, field_name, parse_value, setting, settings_of

if TYPE_CHECKING:
    from ottla.groupcoord.patterns import Pattern

# Subscriptions are kept without end, so these are limited.
SUBSCRIPTIONS_MAX = 1_000
NAME_LENGTH_MAX = 1_000
PATTERNS_LENGTH_MAX = 4_000  # of one subscription: compiling them takes some microseconds a character
INTERVAL_MIN_MS, INTERVAL_MAX_MS = 100, 3_600_000

_MATCHED = frozenset(
    [
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    ]
)

_NEXT_REQUEST = "A client hears of it with its next request about metrics."

Subscriptions = dict[str, Overrides]


@dataclass(frozen=True, kw_only=True)
class ClientMetricsConfig:
    """Settings of a client metrics subscription: the requested metrics, and the clients that it matches."""

    metrics: tuple[str, ...] = setting(
        (), doc="Metrics that clients are to push, by how their names begin; * means all.", on_change=_NEXT_REQUEST
    )
    interval_ms: int = setting(300_000, doc="Time between two pushes of a client.", on_change=_NEXT_REQUEST)
    match: tuple[str, ...] = setting(
        (), doc="Clients that are asked, as name=pattern; by default all clients.", on_change=_NEXT_REQUEST
    )


def client_metrics_settings() -> Mapping[str, Setting]:
    return settings_of(ClientMetricsConfig)


def check_client_metrics(name: str, texts: Texts, present: Subscriptions) -> None:
    """Raise KafkaError for a subscription that Kafka would reject, or that exceeds this broker's limits."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    if len(name) > NAME_LENGTH_MAX:
        message = f"A subscription's name has no more than {NAME_LENGTH_MAX} characters."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if texts and name not in present and len(present) >= SUBSCRIPTIONS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"There can be no more than {SUBSCRIPTIONS_MAX} subscriptions.")
    patterns_of(named_patterns(subscription_of(texts).match))


def subscription_of(texts: Texts) -> ClientMetricsConfig:
    """Parse the settings of a subscription, without compiling its patterns. Raises KafkaError."""
    known = client_metrics_settings()
    for key in texts:
        if key not in known:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
    try:
        values = {field_name(key): parse_value(known[key], text) for key, text in texts.items()}
    except InvalidSetting as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    config = ClientMetricsConfig(**values)
    if not INTERVAL_MIN_MS <= config.interval_ms <= INTERVAL_MAX_MS:
        message = (
            f"Invalid value {config.interval_ms} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    return config


def named_patterns(match: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Split `match` entries at `=` into attribute and pattern, as Java's String.split does.

    A malformed entry has an empty attribute, and the whole entry as its pattern.
    """
    found = []
    for each in match:
        name, _, rest = each.partition("=")
        pattern = rest.rstrip("=")
        is_whole = name.strip() in _MATCHED and pattern and "=" not in pattern
        found.append((name.strip() if is_whole else "", pattern.strip() if is_whole else each))
    return tuple(found)


def patterns_of(named: Iterable[tuple[str, str]]) -> dict[str, Pattern]:
    """Compile pairs of attribute and pattern; return the patterns by attribute. Raises KafkaError for an invalid one.

    If an attribute occurs several times, its last pattern counts.
    """
    from ottla.groupcoord.patterns import Pattern  # here, because few brokers have any

    listed = list(named)
    if sum([len(text) for _, text in listed]) > PATTERNS_LENGTH_MAX:
        message = f"The client matching patterns of a subscription have no more than {PATTERNS_LENGTH_MAX} characters."
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    compiled = {}
    for name, text in listed:
        if not name:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {text}")
        try:
            compiled[name] = Pattern(text)
        except KafkaError:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {name}={text}") from None
    return compiled
