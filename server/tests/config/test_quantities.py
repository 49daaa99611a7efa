"""Durations and sizes of people: which number each is, and which cannot be told."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.config import LogConfig
from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.config.quantities import DURATIONS_MS, SIZES, InvalidQuantity, as_number, shown, unit_of
from ottla.server.config.reference import all_references
from ottla.wire.settings import InvalidSetting, parse_value, settings_of


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "1.5h", "5400000"),
        ("retention.ms", "1w", "604800000"),
        ("retention.ms", "30 min", "1800000"),
        ("retention.ms", "0s", "0"),
        ("log.retention.hours", "7d", "168"),
        ("log.retention.minutes", "7d", "10080"),
        ("quota.window.size.seconds", "2m", "120"),
        ("segment.bytes", "10MiB", "10485760"),
        ("segment.bytes", "0.5KiB", "512"),
        ("log.cleaner.dedupe.buffer.size", "128MiB", "134217728"),
        ("log.cleaner.io.max.bytes.per.second", "1MiB", "1048576"),
        ("producer_byte_rate", "1MiB", "1048576"),
        ("leader.replication.throttled.rate", "1MiB", "1048576"),
        # What it is in Kafka it stays.
        ("log.cleaner.io.max.bytes.per.second", "5d", "5d"),
        ("retention.ms", "604800000", "604800000"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "", ""),
        ("broker.rack", "1a", "1a"),
        ("num.partitions", "3d", "3d"),
        ("group.id", "7d", "7d"),
    ],
)
def test_a_quantity_is_a_number_in_the_unit_of_its_setting(name: str, text: str, number: str) -> None:
    assert as_number(name, text) == number


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("retention.ms", "10MiB", "it is a size; the setting takes a duration such as 7d, 12h or 30min"),
        ("retention.ms", "10MB", "it is a size"),
        ("retention.ms", "7days", "it must be a duration"),
        ("retention.bytes", "7d", "it is a duration; the setting takes a size such as 10MiB, or a number of bytes"),
        ("retention.bytes", "10MB", "MB may mean 1000s or 1024s: write MiB"),
        ("retention.bytes", "10k", "k may mean 1000s or 1024s: write KiB"),
        ("retention.bytes", "10mib", "it must be a size"),
        ("log.retention.hours", "90min", "it is no whole number of hours"),
        ("segment.ms", "0.5ms", "it is no whole number of ms"),
    ],
)
def test_what_cannot_be_told_is_refused(name: str, text: str, words: str) -> None:
    with pytest.raises(InvalidQuantity) as refused:
        as_number(name, text)
    assert words in str(refused.value)


def test_a_file_of_settings_takes_quantities_and_clients_are_told_numbers() -> None:
    texts = {"log.retention.hours": "14d", "log.segment.bytes": "64MiB", "log.roll.ms": "12h"}
    config = load_config(texts)
    assert (config.log.retention_ms, config.log.segment_bytes, config.log.segment_ms) == (
        14 * 86_400_000, 64 << 20, 12 * 3_600_000,
    )  # fmt: skip
    assert {name: config.static[name] for name in texts} == {
        "log.retention.hours": "336", "log.segment.bytes": "67108864", "log.roll.ms": "43200000",
    }  # fmt: skip


def test_clients_have_to_send_numbers_as_to_kafka() -> None:
    with pytest.raises(InvalidSetting, match="Not a number of type LONG"):
        parse_value(settings_of(LogConfig)["retention.ms"], "7d")


@pytest.mark.parametrize(
    ("name", "text"),
    [("log.retention.ms", "10MiB"), ("log.retention.hours", "90min"), ("log.retention.ms", "7 d!"), ("x.ms", "7d")],
)
def test_a_file_with_another_quantity_is_refused_in_one_line(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config({name: text})
    assert name in str(refused.value) and "\n" not in str(refused.value)


@given(st.sampled_from([*DURATIONS_MS, *SIZES]), st.integers(0, 10**12))
def test_every_suffix_is_its_factor(suffix: str, count: int) -> None:
    name, factor = ("a.ms", DURATIONS_MS[suffix]) if suffix in DURATIONS_MS else ("a.bytes", SIZES[suffix])
    assert as_number(name, f"{count}{suffix}") == str(count * factor)


NAMES = st.sampled_from(["retention.ms", "log.retention.hours", "retention.bytes", "producer_byte_rate", "broker.rack"])


@given(NAMES, st.text(max_size=20) | st.from_regex(r"\A[0-9]{1,20}(\.[0-9]{1,10})? ?[A-Za-z]{1,3}\Z"))
def test_any_text_is_a_number_then_or_what_it_was(name: str, text: str) -> None:
    with contextlib.suppress(InvalidQuantity):
        found = as_number(name, text)
        assert found == text or (found.isdecimal() and as_number(name, found) == found)
    assert shown(name, text).startswith(text)


def test_only_settings_with_numbers_have_a_unit() -> None:
    wrong = [
        each.name
        for each in all_references()
        if unit_of(each.name) and each.type not in ("short", "int", "long", "double")
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("retention.ms", "604800000", "604800000 (7 days)"),
        ("retention.ms", "86400000", "86400000 (1 day)"),
        ("segment.ms", "90000", "90000 (90 seconds)"),
        ("segment.ms", "61500", "61500"),
        ("segment.ms", "30000", "30000"),
        ("segment.bytes", "4096", "4096"),
        ("log.retention.hours", "168", "168 (7 days)"),
        ("log.retention.hours", "5", "5"),
        ("segment.bytes", "1073741824", "1073741824 (1 GiB)"),
        ("max.message.bytes", "1048588", "1048588"),
        ("retention.bytes", "-1", "-1"),
        ("retention.ms", "0", "0"),
        ("flush.ms", "9223372036854775807", "9223372036854775807"),
        ("num.partitions", "3600000", "3600000"),
    ],
)
def test_a_number_is_shown_with_a_larger_unit(name: str, value: str, words: str) -> None:
    assert shown(name, value) == words
