"""Lines and history of removed records, both bounded."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.log.removal import Removal
from ottla.replication.log.tests.logs import NOW_MS, append, batch, new_log
from ottla.replication.partition import removals as removals_module
from ottla.replication.partition.removals import HOUR_MS, LINES_PER_RUN, Removals, utc

NOON_MS = 1_764_331_200_000  # 2025-11-28T12:00:00Z


def removal_of(count: int = 50, cause: str = "retention.ms=604800000", **changes: Any) -> Removal:
    removal = Removal()
    removal.causes, removal.records, removal.segments = [cause], count, 1
    removal.first_offset, removal.end_offset = 100, 100 + count
    removal.oldest_ms, removal.newest_ms = NOON_MS - HOUR_MS, NOON_MS
    for name, value in changes.items():
        setattr(removal, name, value)
    return removal


@pytest.fixture
def removals() -> Removals:
    return Removals()


def delete(removal: Removal, count: int) -> None:
    log = new_log()
    if count:
        append(log, batch(*[NOW_MS] * count))
    removal.add("deletion of the topic", log, 0, count, is_compacted=False)
    removal.logs += count > 0


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.INFO]


def test_a_line_says_what_went_and_why(caplog: pytest.LogCaptureFixture, removals: Removals) -> None:
    caplog.set_level(logging.INFO)
    with removals.run(NOON_MS) as run:
        run.note_log("old", 0, removal_of())
        run.note_log("old", 1, removal_of(1, has_gaps=True))
        run.note_log("old", 2, removal_of(2, newest_ms=-1))
        run.note_log("old", 3, removal_of(3, oldest_ms=-1))
        run.note_log("old", 4, removal_of(4, "DeleteRecords", newest_ms=-1), "User:ann", "10.0.0.1")
        run.note_log("old", 5, removal_of(0, segments=3))
        run.note_log("old", 6, removal_of(0, segments=0))
        for topic, counts in {"gone": (3, 0, 4), "empty": (0,), "single": (1,)}.items():
            for count in counts:
                delete(run.of_topic(topic), count)
    assert messages(caplog) == [
        "old-0: retention.ms=604800000 removed 50 records, offsets 100 to 149, of 2025-11-28T11:00:00Z to 2025-11-28T12:00:00Z",
        "old-1: retention.ms=604800000 removed at most 1 record, offsets 100 to 100, of 2025-11-28T11:00:00Z to 2025-11-28T12:00:00Z",
        "old-2: retention.ms=604800000 removed 2 records, offsets 100 to 101, of unknown time",
        "old-3: retention.ms=604800000 removed 3 records, offsets 100 to 102, the newest of 2025-11-28T12:00:00Z",
        "old-4: DeleteRecords removed 4 records, offsets 100 to 103, of unknown time, for User:ann at 10.0.0.1",
        "old-5: 3 segments below the log start offset are deleted",
        "gone: deletion of the topic removed 7 records, 2 logs, of 1970-01-01T00:16:40Z to 1970-01-01T00:16:40Z",
        "single: deletion of the topic removed 1 record, 1 log, of 1970-01-01T00:16:40Z to 1970-01-01T00:16:40Z",
    ]


def test_one_run_over_very_many_logs_has_a_bounded_number_of_lines(
    caplog: pytest.LogCaptureFixture, removals: Removals
) -> None:
    caplog.set_level(logging.INFO)
    with removals.run(NOON_MS) as run:
        for number in range(10_000):
            assert run.removal().reads_times == (number < LINES_PER_RUN)
            run.note_log(f"t{number}", 0, removal_of(5))
    assert len(messages(caplog)) == LINES_PER_RUN + 1
    assert messages(caplog)[-1] == (
        f"{5 * (10_000 - LINES_PER_RUN)} records of {10_000 - LINES_PER_RUN} further logs were removed in the same run,"
        f" after the first {LINES_PER_RUN} logs"
    )
    assert len(removals.of_topic("t9999")) == 1


def test_the_deletion_of_very_many_topics_reads_few_logs(caplog: pytest.LogCaptureFixture, removals: Removals) -> None:
    caplog.set_level(logging.INFO)
    read = 0
    with removals.run(NOON_MS) as run:
        for number in range(3_000):
            removal = run.of_topic(f"t{number // 2}")
            read += removal.reads_times
            removal.causes, removal.records = ["deletion of the topic"], removal.records + 1
    assert read == LINES_PER_RUN == len(messages(caplog)) - 1
    assert messages(caplog)[-1].startswith("2800 records of 1400 further logs were removed")


def test_a_run_that_ends_with_an_error_is_told(caplog: pytest.LogCaptureFixture, removals: Removals) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(ZeroDivisionError), removals.run(NOON_MS) as run:
        run.note_log("old", 0, removal_of())
        raise ZeroDivisionError
    assert len(messages(caplog)) == 1
    assert [each.records for each in removals.of_topic("old")] == [50]


def test_frequent_runs_make_one_line_a_minute_for_each_log(
    caplog: pytest.LogCaptureFixture, removals: Removals
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(500):
        with removals.run(NOON_MS + number, is_frequent=True) as run:
            run.note_log("repartition", number % 2, removal_of(3, "DeleteRecords"))
    assert len(messages(caplog)) == 2
    (event,) = removals.of_topic("repartition")
    assert (event.records, event.runs, event.logs) == (1500, 500, 1)


def test_frequent_runs_over_very_many_logs_are_bounded_too(
    caplog: pytest.LogCaptureFixture, removals: Removals
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(20):
        with removals.run(NOON_MS, is_frequent=True) as run:
            for number in range(1000):
                run.note_log("t", number, removal_of(3, "DeleteRecords"))
    assert len(messages(caplog)) <= LINES_PER_RUN + 2


def test_partitions_of_a_run_and_runs_of_an_hour_are_one_event(removals: Removals) -> None:
    for minute in (0, 5, 10, 61):
        with removals.run(NOON_MS + minute * 60_000) as run:
            run.note_log("old", 0, removal_of(2, oldest_ms=7))
            run.note_log("old", 1, removal_of(3, oldest_ms=5))
            run.note_log("other", 0, removal_of(1))
    later, first = removals.of_topic("old")
    assert (first.cause, first.records, first.logs, first.runs) == ("retention.ms=604800000", 15, 2, 3)
    assert (first.first_ms, first.last_ms) == (NOON_MS, NOON_MS + 600_000)
    assert (first.oldest_ms, first.newest_ms) == (5, NOON_MS)
    assert (later.first_ms, later.records, later.runs) == (NOON_MS + 61 * 60_000, 5, 1)
    assert [each.records for each in removals.of_topic("other")] == [1, 3]
    assert removals.of_topic("nobody's") == []


def test_another_cause_is_another_event(removals: Removals) -> None:
    for cause in ("retention.ms=1000", "retention.ms=2000", "retention.ms=2000"):
        with removals.run(NOON_MS) as run:
            run.note_log("old", 0, removal_of(2, cause))
    assert [(each.cause, each.runs) for each in removals.of_topic("old")] == [
        ("retention.ms=2000", 2),
        ("retention.ms=1000", 1),
    ]


def test_the_newest_events_of_all_topics(removals: Removals) -> None:
    for number, topic in enumerate(["a", "b", "a", "c"]):
        with removals.run(NOON_MS + number * HOUR_MS) as run:
            run.note_log(topic, 0, removal_of(number + 1))
    assert [(topic, event.records) for topic, event in removals.latest(3)] == [("c", 4), ("a", 3), ("b", 2)]


@given(topics=st.lists(st.integers(0, 12), max_size=200))
def test_the_history_is_bounded_by_topic_and_in_all(topics: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(removals_module, "EVENTS_PER_TOPIC", 4)
        patch.setattr(removals_module, "EVENTS_MAX", 10)
        removals = Removals()
        for number, topic in enumerate(topics):
            with removals.run(number) as run:
                run.note_log(str(topic), 0, removal_of(1, f"cause {number}"))
        kept = {topic: removals.of_topic(str(topic)) for topic in range(13)}
        assert all(len(each) <= 4 for each in kept.values())
        assert sum(len(each) for each in kept.values()) <= 10
        if topics:
            assert kept[topics[-1]][0].cause == f"cause {len(topics) - 1}"


def test_times_that_no_calendar_has() -> None:
    assert utc(NOON_MS) == "2025-11-28T12:00:00Z"
    assert utc(2**63 - 1) == f"{2**63 - 1} ms"
    assert utc(0) == "1970-01-01T00:00:00Z"


def test_the_account_of_a_real_log_is_told(caplog: pytest.LogCaptureFixture, removals: Removals) -> None:
    caplog.set_level(logging.INFO)
    log = new_log(retention_ms=1)
    append(log, batch(NOW_MS, NOW_MS + 5000))
    with removals.run(NOW_MS) as run:
        removal = run.removal()
        log.delete_old_segments(NOW_MS + 10**6, log.log_end_offset, removal=removal)
        run.note_log("topic", 0, removal)
    assert messages(caplog) == [
        "topic-0: retention.ms=1 removed 2 records, offsets 0 to 1, of 1970-01-01T00:16:40Z to 1970-01-01T00:16:45Z"
    ]
