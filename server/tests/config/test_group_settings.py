from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ottla.groupcoord.group_settings import (
    BOUNDS,
    GroupSettings,
    broker_group_settings,
    check_bounds_of_broker,
    check_group_settings,
    duration_ms,
    group_settings,
    own_values,
    settings_in_force,
)
from ottla.server.config.broker_config import broker_settings
from ottla.wire.settings import InvalidSetting

BAD_RESET = (
    "Invalid value none for configuration share.auto.offset.reset: Invalid value `none` for configuration"
    " share.auto.offset.reset. The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
)


def broker(changed: Mapping[str, Any] | None = None) -> Callable[[str], Any]:
    values = {**{name: declared.default for name, declared in broker_settings().items()}, **(changed or {})}
    return values.__getitem__


def refusal(texts: dict[str, str], **changed: Any) -> str | None:
    try:
        check_group_settings(texts, broker({name.replace("_", "."): value for name, value in changed.items()}))
    except InvalidSetting as error:
        return str(error)
    return None


def in_force(texts: dict[str, str], **changed: Any) -> GroupSettings:
    of = broker({name.replace("_", "."): value for name, value in changed.items()})
    return settings_in_force(own_values("g", texts, of), broker_group_settings(of))


def test_what_a_group_does_not_set_is_as_the_broker_has_it() -> None:
    defaults = in_force({})
    assert defaults == GroupSettings(streams_assignor_name="sticky")
    settings = in_force(
        {"consumer.session.timeout.ms": "50000"},
        group_consumer_session_timeout_ms=48_000,
        group_share_record_lock_duration_ms=20_000,
        group_streams_assignors=("fast", "sticky"),
    )
    assert settings.consumer_session_timeout_ms == 50_000
    assert settings.share_record_lock_duration_ms == 20_000
    assert settings.streams_assignor_name == "fast"


def test_the_nearest_allowed_value_is_in_force_for_one_beyond_the_bounds() -> None:
    assert in_force({"consumer.session.timeout.ms": "1"}).consumer_session_timeout_ms == 45_000
    assert in_force({"consumer.session.timeout.ms": "99999999"}).consumer_session_timeout_ms == 60_000
    assert in_force({"streams.num.standby.replicas": "9"}).streams_num_standby_replicas == 2
    assert in_force({"streams.task.offset.interval.ms": "1"}).streams_task_offset_interval_ms == 15_000


def test_what_cannot_be_taken_is_left_aside_and_the_rest_is_not() -> None:
    texts = {"no.such": "1", "share.isolation.level": "READ_COMMITTED", "share.auto.offset.reset": "earliest"}
    assert in_force(texts) == GroupSettings(streams_assignor_name="sticky", share_auto_offset_reset="earliest")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"consumer.session.timeout.ms": "45000"}, None),
        ({"no.such": "1"}, "Unknown group config name: no.such"),
        (
            {"consumer.session.timeout.ms": "0"},
            "Invalid value 0 for configuration consumer.session.timeout.ms: Value must be at least 1",
        ),
        (
            {"consumer.session.timeout.ms": "44999"},
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        ({"streams.num.standby.replicas": "3"}, "streams.num.standby.replicas must be less than or equal to 2"),
        (
            {"streams.task.offset.interval.ms": "14999"},
            "streams.task.offset.interval.ms must be greater than or equal to 15000",
        ),
        (
            {"streams.rack.aware.assignment.tags": "a,b , a"},
            "streams.rack.aware.assignment.tags must not contain duplicate tag keys.",
        ),
        ({"streams.rack.aware.assignment.tags": ""}, None),
        (
            {"streams.assignor.name": "fast"},
            "streams.assignor.name 'fast' is not a registered task assignor. Registered assignors are: [sticky].",
        ),
        (
            {"errors.deadletterqueue.topic.name": "__dead"},
            "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
        ),
        ({"errors.deadletterqueue.topic.name": ""}, None),
        ({"share.auto.offset.reset": "none"}, BAD_RESET),
        ({"share.auto.offset.reset": "by_duration:PT1H"}, None),
    ],
)
def test_what_a_client_may_set(texts: dict[str, str], message: str | None) -> None:
    assert refusal(texts) == message


def test_a_session_is_longer_than_the_time_between_heartbeats() -> None:
    wide = {"group_share_max_heartbeat_interval_ms": 60_000}
    message = "share.session.timeout.ms must be greater than share.heartbeat.interval.ms"
    assert refusal({"share.heartbeat.interval.ms": "45000"}, **wide) == message
    assert refusal({"share.heartbeat.interval.ms": "44999"}, **wide) is None
    assert refusal({"share.heartbeat.interval.ms": "45000", "share.session.timeout.ms": "45001"}, **wide) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT1H", 3_600_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt0.0009s", 0),
        ("P1D", 86_400_000),
        ("P2DT3H4M5.678S", 2 * 86_400_000 + 3 * 3_600_000 + 4 * 60_000 + 5_678),
        ("PT10M-30S", 570_000),
        ("P0D", 0),
        ("PT-1S", None),
        ("-PT1S", None),
        ("-PT-1S", 1000),
        ("PT1S-1", None),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("P1Y", None),
        ("1H", None),
        ("", None),
        ("P999999999999999999D", None),
    ],
)
def test_durations_are_read_as_java_reads_them(text: str, expected: int | None) -> None:
    assert duration_ms(text) == expected


def test_bounds_and_synonyms_are_settings_of_the_broker() -> None:
    named = {each for bounds in BOUNDS.values() for each in bounds if each is not None}
    synonyms = {synonym.name for declared in group_settings().values() for synonym in declared.synonyms}
    assert named | synonyms <= set(broker_settings())
    assert set(BOUNDS) <= set(group_settings())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "group.consumer.session.timeout.ms",
            1,
            "group.consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            "group.share.max.heartbeat.interval.ms",
            4999,
            "group.share.max.heartbeat.interval.ms must be greater than or equal to group.share.min.heartbeat.interval.ms",
        ),
        (
            "group.share.delivery.count.limit",
            11,
            "group.share.max.delivery.count.limit must be greater than or equal to group.share.delivery.count.limit",
        ),
        (
            "group.streams.heartbeat.interval.ms",
            45_000,
            "group.streams.heartbeat.interval.ms must be less than or equal to group.streams.max.heartbeat.interval.ms",
        ),
        (
            "group.streams.num.standby.replicas",
            3,
            "group.streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
    ],
)
def test_settings_of_the_broker_do_not_contradict_each_other(name: str, value: int, message: str) -> None:
    check_bounds_of_broker(broker())
    with pytest.raises(InvalidSetting) as caught:
        check_bounds_of_broker(broker({name: value}))
    assert str(caught.value) == message
