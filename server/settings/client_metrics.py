"""Subscriptions to metrics of clients (KIP-714), as resource CLIENT_METRICS names them.

Kafka keeps them, and tells of them, also if it has no plug-in that takes what clients push. Ottla takes none: no client is
ever asked for metrics, and the subscriptions are kept for whoever reads them back. They are settings of a broker that is
alone; in ZooKeeper mode Kafka refuses them.
"""

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.server.settings.overrides import Overrides, Texts
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.settings import InvalidSetting, Setting, parse_value, setting, settings_of

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

Subscriptions = dict[str, Overrides]


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientMetricsConfig:
    """What a subscription asks of which clients."""

    metrics: tuple[str, ...] = setting(
        (), effective=False, doc="Metrics that clients are to push, by how their names begin; * means all."
    )
    interval_ms: int = setting(300_000, effective=False, doc="Time between two pushes of a client.")
    match: tuple[str, ...] = setting(
        (), effective=False, doc="Clients that are asked, as name=pattern; by default all clients."
    )


def client_metrics_settings() -> Mapping[str, Setting]:
    return settings_of(ClientMetricsConfig)


def check_client_metrics(name: str, texts: Texts, present: Subscriptions) -> None:
    """Refuse a subscription that Kafka would refuse, or that is beyond the limits."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    if len(name) > NAME_LENGTH_MAX:
        message = f"A subscription's name has no more than {NAME_LENGTH_MAX} characters."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if texts and name not in present and len(present) >= SUBSCRIPTIONS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"There can be no more than {SUBSCRIPTIONS_MAX} subscriptions.")
    known = client_metrics_settings()
    for key in texts:
        if key not in known:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
    try:
        values = {key: parse_value(known[key], text) for key, text in texts.items()}
    except InvalidSetting as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    interval_ms = values.get("interval.ms", INTERVAL_MIN_MS)
    if not INTERVAL_MIN_MS <= interval_ms <= INTERVAL_MAX_MS:
        message = f"Invalid value {interval_ms} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    _check_patterns(values.get("match", ()))


def _check_patterns(patterns: tuple[str, ...]) -> None:
    if sum(map(len, patterns)) > PATTERNS_LENGTH_MAX:
        message = f"The client matching patterns of a subscription have no more than {PATTERNS_LENGTH_MAX} characters."
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    for each in patterns:
        name, _, rest = each.partition("=")
        pattern = rest.rstrip("=")  # as Java splits
        if name.strip() not in _MATCHED or not pattern or "=" in pattern or not _is_pattern(pattern):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {each}")


def _is_pattern(text: str) -> bool:
    try:
        with warnings.catch_warnings():  # of what Python will read otherwise some day
            warnings.simplefilter("ignore")
            re.compile(text.strip())
    except (re.error, RecursionError, OverflowError):
        return False
    return True
