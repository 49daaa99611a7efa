"""The settings that one group may have of its own (Kafka's GroupConfig), and how they relate to those of the broker.

A group's own settings are texts, kept in the coordination tree. What a group does not set is as the broker has it: each
setting names the broker-wide one as its synonym. The broker also bounds most of them. A value beyond the bounds is refused
when a client sets it. If the bounds have changed since, or another broker has other ones, the nearest allowed value is in
force.

Sans-IO: `BrokerValue` looks up a broker setting by its name, as it is in force now.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ottla.wire.settings import LONG, STRING, InvalidSetting, Setting, field_name, parse_value, setting, settings_of

logger = logging.getLogger("ottla.configs")

BrokerValue = Callable[[str], Any]
"""The value in force of a broker setting, by Kafka's name."""

REBALANCE_PROTOCOLS = "group.coordinator.rebalance.protocols"
ASSIGNORS_OF_BROKER = "group.streams.assignors"
ASSIGNOR_OF_GROUP = "streams.assignor.name"
RACK_AWARE_TAGS = "streams.rack.aware.assignment.tags"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"

# Java's Duration.parse: a sign for all, then days, hours, minutes and seconds, each with a sign of its own.
_DURATION = re.compile(
    r"([+-])?P(?:([+-]?\d{1,18})D)?(T(?:([+-]?\d{1,18})H)?(?:([+-]?\d{1,18})M)?(?:([+-]?\d{1,18})(?:[.,](\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
BY_DURATION = "by_duration:"
_SECONDS = (86_400, 3_600, 60, 1)
_SECONDS_MAX = 2**63 - 1


def duration_ms(text: str) -> int | None:
    """Return an ISO 8601 duration in ms; None if it is malformed, negative, or too large for Java's long."""
    match = _DURATION.fullmatch(text)
    if match is None or (match[2] is None and not match[3]) or (match[3] or "").upper() == "T":
        return None
    parts = [int(match[group] or 0) for group in (2, 4, 5, 6)]
    nanos = int((match[7] or "").ljust(9, "0"))
    if (match[6] or "").startswith("-"):
        nanos = -nanos  # the fraction has the sign of the seconds
    total = sum(count * unit for count, unit in zip(parts, _SECONDS, strict=True)) * 10**9 + nanos
    total = -total if match[1] == "-" else total
    return total // 10**6 if 0 <= total <= _SECONDS_MAX * 10**9 else None


def _reset_problem(text: str) -> str | None:
    if text in ("earliest", "latest"):
        return None
    if text.startswith(BY_DURATION) and duration_ms(text[len(BY_DURATION) :]) is not None:
        return None
    return (
        f"Invalid value `{text}` for configuration share.auto.offset.reset. The value must be either 'earliest',"
        " 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
    )


def _of_broker(name: str, default: Any, doc: str, **details: Any) -> Any:
    """Declare a group setting whose default is the broker setting `name`."""
    return setting(default, synonyms=(name,), doc=doc, **details)


def _own(default: Any, doc: str, **details: Any) -> Any:
    return setting(default, doc=doc, **details)


def _session_timeout(group_type: str) -> Any:
    doc = f"Silence after which a member of a {group_type} group is taken to be gone."
    on_change = "Holds for each member from its next heartbeat on."
    return _of_broker(f"group.{group_type}.session.timeout.ms", 45_000, doc, minimum=1, on_change=on_change)


def _heartbeat_interval(group_type: str) -> Any:
    doc = f"Time between two heartbeats of a member of a {group_type} group."
    on_change = "Each member hears of it with its next heartbeat."
    return _of_broker(f"group.{group_type}.heartbeat.interval.ms", 5000, doc, minimum=1, on_change=on_change)


def _assignment_interval(group_type: str) -> Any:
    doc = f"Shortest time between two assignments of a {group_type} group."
    on_change = "Holds for the group's next assignment."
    return _of_broker(f"group.{group_type}.assignment.interval.ms", 1000, doc, minimum=0, on_change=on_change)


def _assignor_offload(group_type: str) -> Any:
    doc = f"Whether assignments of a {group_type} group are computed beside its coordinator."
    return _of_broker(f"group.{group_type}.assignor.offload.enable", True, doc, internal=True, effective=False)


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """All settings in force for one group: its own ones, else the broker's defaults."""

    consumer_session_timeout_ms: int = _session_timeout("consumer")
    consumer_heartbeat_interval_ms: int = _heartbeat_interval("consumer")
    consumer_assignment_interval_ms: int = _assignment_interval("consumer")
    consumer_assignor_offload_enable: bool = _assignor_offload("consumer")
    share_session_timeout_ms: int = _session_timeout("share")
    share_heartbeat_interval_ms: int = _heartbeat_interval("share")
    share_record_lock_duration_ms: int = _of_broker(
        "group.share.record.lock.duration.ms",
        30_000,
        "How long a member may hold a record.",
        minimum=1000,
        on_change="Holds for records that are acquired or renewed from now on.",
    )
    share_delivery_count_limit: int = _of_broker(
        "group.share.delivery.count.limit",
        5,
        "How often a record is delivered at most.",
        minimum=2,
        on_change="Holds from the next time on that a record is delivered or given back.",
    )
    share_partition_max_record_locks: int = _of_broker(
        "group.share.partition.max.record.locks",
        2000,
        "Most records of a share partition that may be in flight.",
        minimum=100,
        on_change="Holds from the next fetch on; records that are in flight stay so.",
    )
    share_auto_offset_reset: str = _own(
        "latest",
        "Where the group begins in a partition: earliest, latest, or by_duration: and a duration of ISO 8601.",
        check=_reset_problem,
        on_change="Holds for partitions that the group begins to read.",
    )
    share_isolation_level: str = _own(
        "read_uncommitted",
        "Whether the group reads records of transactions before these are committed.",
        choices=("read_committed", "read_uncommitted"),
        on_change="Holds from the next fetch on.",
    )
    share_renew_acknowledge_enable: bool = _own(
        True, "Whether a member may hold a record for longer.", on_change="Holds from the next acknowledgement on."
    )
    share_assignment_interval_ms: int = _assignment_interval("share")
    share_assignor_offload_enable: bool = _assignor_offload("share")
    streams_session_timeout_ms: int = _session_timeout("streams")
    streams_heartbeat_interval_ms: int = _heartbeat_interval("streams")
    streams_num_standby_replicas: int = _of_broker(
        "group.streams.num.standby.replicas",
        0,
        "Standby tasks for each task that has state.",
        minimum=0,
        on_change="The next heartbeat of a member begins a new assignment with it.",
    )
    streams_initial_rebalance_delay_ms: int = _of_broker(
        "group.streams.initial.rebalance.delay.ms",
        3000,
        "How long the first assignment of an empty group waits for more members.",
        minimum=0,
        on_change="Holds when the group is empty the next time.",
    )
    streams_assignment_interval_ms: int = _assignment_interval("streams")
    streams_assignor_offload_enable: bool = _assignor_offload("streams")
    streams_task_offset_interval_ms: int = _of_broker(
        "group.streams.task.offset.interval.ms",
        60_000,
        "Time between two reports of where the states of tasks are.",
        minimum=1,
        internal=True,
        on_change="Each member hears of it with its next heartbeat.",
    )
    streams_num_warmup_replicas: int = _of_broker(
        "group.streams.num.warmup.replicas",
        2,
        "Most tasks that warm up at a time.",
        minimum=0,
        internal=True,
        effective=False,
    )
    streams_rack_aware_assignment_tags: tuple[str, ...] = _of_broker(
        "group.streams.rack.aware.assignment.tags",
        (),
        "Client tags that standby tasks are spread by.",
        on_change="The next heartbeat of a member begins a new assignment with it.",
    )
    streams_acceptable_recovery_lag: int = _of_broker(
        "group.streams.acceptable.recovery.lag",
        10_000,
        "Lag of a state that is as good as none.",
        kind=LONG,
        minimum=0,
        internal=True,
        on_change="Each member hears of it with its next heartbeat.",
    )
    streams_assignor_name: str | None = _of_broker(
        ASSIGNORS_OF_BROKER,
        None,
        "The assignor of the group, one of those of the broker; by default its first.",
        kind=STRING,
        effective=False,
    )
    errors_deadletterqueue_topic_name: str = _own(
        "",
        "The topic that records go to which nobody can process; empty: none.",
        on_change="Holds for the next record that goes to the dead-letter queue.",
    )
    errors_deadletterqueue_copy_record_enable: bool = _own(
        False,
        "Whether the record itself goes there too, or its whereabouts only.",
        on_change="Holds for the next record that goes to the dead-letter queue.",
    )


GroupSettingsSource = Callable[[str], GroupSettings]
"""The settings in force for a group, by its id. They may change at any time."""


def group_settings() -> Mapping[str, Setting]:
    """Return all settings of a group by Kafka's names."""
    return settings_of(GroupSettings)


def broker_synonym(declared: Setting) -> str | None:
    """Return the name of the broker setting that provides a group setting's default; None if none does."""
    return declared.synonyms[0].name if declared.synonyms else None


class Bounds(NamedTuple):
    """Names of the broker settings with the bounds of a group setting; None: no bound."""

    minimum: str | None
    maximum: str | None


def _between(kind: str, rest: str) -> tuple[str, Bounds]:
    return f"{kind}.{rest}", Bounds(f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}")


BOUNDS: Mapping[str, Bounds] = dict(
    [
        _between("consumer", "heartbeat.interval.ms"),
        _between("consumer", "session.timeout.ms"),
        _between("consumer", "assignment.interval.ms"),
        _between("share", "heartbeat.interval.ms"),
        _between("share", "session.timeout.ms"),
        _between("share", "record.lock.duration.ms"),
        _between("share", "delivery.count.limit"),
        _between("share", "partition.max.record.locks"),
        _between("share", "assignment.interval.ms"),
        _between("streams", "heartbeat.interval.ms"),
        _between("streams", "session.timeout.ms"),
        ("streams.num.standby.replicas", Bounds(None, "group.streams.max.standby.replicas")),
        _between("streams", "assignment.interval.ms"),
        ("streams.task.offset.interval.ms", Bounds("group.streams.min.task.offset.interval.ms", None)),
        ("streams.num.warmup.replicas", Bounds(None, "group.streams.max.warmup.replicas")),
    ]
)
"""Bounds by setting, in the order in which Kafka checks them."""

_OF_LEADERS = frozenset(
    ["share.record.lock.duration.ms", "share.delivery.count.limit", "share.partition.max.record.locks"]
)
KINDS_WITH_SESSIONS = ("consumer", "share", "streams")


# ---------------------------------------------------------------------- what a client may set


def check_group_settings(texts: Mapping[str, str], broker_value: BrokerValue) -> None:
    """Raise InvalidSetting if a group may not have these settings. Messages and order of checks are Kafka's."""
    known = group_settings()
    for name in texts:
        if name not in known:
            raise _invalid(name, texts[name], f"Unknown group config name: {name}")
    _check_tags(texts)
    values = {name: parse_value(known[name], texts[name]) for name in known if name in texts}
    for name, bounds in BOUNDS.items():
        if name in values:
            _check_bounds(name, values[name], bounds, broker_value)
    _check_assignor(values, broker_value)
    for kind in KINDS_WITH_SESSIONS:
        _check_session(kind, values, broker_value)
    if values.get(DEAD_LETTER_TOPIC, "").startswith("__"):
        message = f"{DEAD_LETTER_TOPIC}: DLQ topic name must not start with '__'"
        raise _invalid(DEAD_LETTER_TOPIC, values[DEAD_LETTER_TOPIC], message)


def _check_tags(texts: Mapping[str, str]) -> None:
    # As they were sent: a list that is read drops what comes again.
    tags = [each.strip() for each in texts.get(RACK_AWARE_TAGS, "").split(",")]
    if len(set(tags)) != len(tags):
        raise _invalid(RACK_AWARE_TAGS, tags, f"{RACK_AWARE_TAGS} must not contain duplicate tag keys.")


def _check_bounds(name: str, value: int, bounds: Bounds, broker_value: BrokerValue) -> None:
    low, high = _limits(bounds, broker_value)
    if (low is None or value >= low) and (high is None or value <= high):
        return
    if low is None:
        reason = f"less than or equal to {high}"
    elif high is None:
        reason = f"greater than or equal to {low}"
    else:
        reason = f"in the range {low} to {high} inclusive."
    raise _invalid(name, value, f"{name} must be {reason}")


def _check_assignor(values: Mapping[str, Any], broker_value: BrokerValue) -> None:
    known = broker_value(ASSIGNORS_OF_BROKER)
    if ASSIGNOR_OF_GROUP in values and values[ASSIGNOR_OF_GROUP] not in known:
        name = values[ASSIGNOR_OF_GROUP]
        message = (
            f"{ASSIGNOR_OF_GROUP} '{name}' is not a registered task assignor."
            f" Registered assignors are: [{', '.join(known)}]."
        )
        raise _invalid(ASSIGNOR_OF_GROUP, name, message)


def _check_session(kind: str, values: Mapping[str, Any], broker_value: BrokerValue) -> None:
    session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
    if session not in values and heartbeat not in values:
        return
    session_ms = values.get(session, broker_value(f"group.{session}"))
    if session_ms <= values.get(heartbeat, broker_value(f"group.{heartbeat}")):
        raise _invalid(session, session_ms, f"{session} must be greater than {heartbeat}")


def _limits(bounds: Bounds, broker_value: BrokerValue) -> tuple[int | None, int | None]:
    low = None if bounds.minimum is None else broker_value(bounds.minimum)
    high = None if bounds.maximum is None else broker_value(bounds.maximum)
    return low, high


def _invalid(name: str, value: object, message: str) -> InvalidSetting:
    return InvalidSetting(name, value, message, message=message)


# ---------------------------------------------------------------------- what an operator may set


def check_bounds_of_broker(broker_value: BrokerValue) -> None:
    """Raise InvalidSetting if the broker's settings for groups contradict each other. Messages are Kafka's."""
    if "classic" not in map(str.lower, served := broker_value(REBALANCE_PROTOCOLS)):
        raise _invalid(REBALANCE_PROTOCOLS, served, "Disabling the 'classic' protocol is not supported.")
    for name, bounds in BOUNDS.items():
        _check_bounds_of(name, bounds, broker_value)
    for kind in KINDS_WITH_SESSIONS:
        session, heartbeat = f"group.{kind}.session.timeout.ms", f"group.{kind}.heartbeat.interval.ms"
        if broker_value(heartbeat) >= broker_value(session):
            raise _invalid(heartbeat, broker_value(heartbeat), f"{heartbeat} must be less than {session}")


def _check_bounds_of(name: str, bounds: Bounds, broker_value: BrokerValue) -> None:
    own = broker_synonym(group_settings()[name])
    assert own is not None, "what the broker bounds has its default there"
    value, (least, most) = broker_value(own), bounds
    low, high = _limits(bounds, broker_value)
    if low is not None and high is not None and high < low:
        raise _invalid(own, high, f"{most} must be greater than or equal to {least}")
    if low is not None and value < low:
        raise _invalid(own, value, f"{own} must be greater than or equal to {least}")
    if high is not None and value > high:
        # Kafka says it the other way round where the leaders of share partitions go by it.
        first, relation, second = (most, "greater", own) if name in _OF_LEADERS else (own, "less", most)
        raise _invalid(own, value, f"{first} must be {relation} than or equal to {second}")


# ---------------------------------------------------------------------- what is in force


def broker_group_settings(broker_value: BrokerValue) -> GroupSettings:
    """Return the settings in force for a group without settings of its own."""
    values = {
        field_name(name): broker_value(synonym)
        for name, declared in group_settings().items()
        if (synonym := broker_synonym(declared)) is not None
    }
    assignors = values[field_name(ASSIGNOR_OF_GROUP)]
    values[field_name(ASSIGNOR_OF_GROUP)] = assignors[0] if assignors else None
    return GroupSettings(**values)


def own_values(group_id: str, texts: Mapping[str, str], broker_value: BrokerValue) -> dict[str, Any]:
    """Return a group's own settings by name, limited to the broker's bounds. Invalid ones cause a warning."""
    known, values = group_settings(), {}
    for name, text in texts.items():
        if name not in known:
            logger.warning("Left aside a setting of group %s that is not known: %s", group_id, name)
            continue
        try:
            value = parse_value(known[name], text)
        except InvalidSetting as error:
            logger.warning("Left aside a setting of group %s: %s", group_id, error)
            continue
        values[name] = _within_bounds(group_id, name, value, broker_value)
    return values


def settings_in_force(values: Mapping[str, Any], of_broker: GroupSettings) -> GroupSettings:
    """Return `of_broker`, with the group's own `values` in place of the defaults."""
    return replace(of_broker, **{field_name(name): value for name, value in values.items()})


def _within_bounds(group_id: str, name: str, value: Any, broker_value: BrokerValue) -> Any:
    if name not in BOUNDS:
        return value
    low, high = _limits(BOUNDS[name], broker_value)
    nearest: int = value if low is None else max(low, value)
    nearest = nearest if high is None else min(high, nearest)
    if nearest != value:
        logger.warning(
            "Setting %s=%s of group %s is beyond the broker's bounds: taken for %s", name, value, group_id, nearest
        )
    return nearest
