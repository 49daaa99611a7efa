"""`ottla topics alter` and `trim` beside a broker: what they say is compared with what the broker has then."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from ottla.server.broker import Broker
from ottla.server.cli.client import cluster as cluster_module
from ottla.server.cli.client.cluster import EARLIEST, offsets_at
from ottla.server.cli.client.output import ConnectionLost
from ottla.server.tests.cli.commanded import Shell, local_zone
from ottla.server.tests.console_client import write
from ottla.wire.records import Record

numbers = itertools.count()


@pytest.fixture
def topic(ottla: Shell) -> Callable[..., str]:
    """Creates a topic of the test's own."""

    def create(*options: str) -> str:
        name = f"topic-{next(numbers)}"
        assert ottla("topics", "create", name, *options).code == 0
        return name

    return create


def own_texts(broker: Broker, name: str) -> dict[str, str]:
    return dict(broker.configs.topic_overrides(name).texts)


def test_settings_are_set_and_deleted_and_set_back(ottla: Shell, broker: Broker, topic: Callable[..., str]) -> None:
    name = topic("-c", "retention.ms=1000", "-c", "cleanup.policy=compact,delete")
    before = own_texts(broker, name)
    told = ottla(
        "topics", "alter", name, "-c", "retention.ms=2000", "-c", "max.message.bytes=99", "-d", "cleanup.policy"
    )
    assert told.code == 0
    assert [line.split() for line in told.lines[:4]] == [
        ["TOPIC", "CHANGED", "FROM", "TO"],
        [name, "cleanup.policy", "compact,delete", "delete"],
        [name, "max.message.bytes", "1048588", "99"],
        [name, "retention.ms", "1000", "2000"],
    ]
    assert own_texts(broker, name) == {"retention.ms": "2000", "max.message.bytes": "99"}
    ottla.undo(told)
    assert own_texts(broker, name) == before


def test_what_is_not_set_is_deleted_without_a_change(ottla: Shell, broker: Broker, topic: Callable[..., str]) -> None:
    name = topic("-c", "retention.ms=5")
    told = ottla("topics", "alter", name, "-d", "cleanup.policy")
    assert [line.split() for line in told.lines[1:]] == [[name, "cleanup.policy", "delete", "delete"]]
    assert own_texts(broker, name) == {"retention.ms": "5"}


def test_a_dry_run_changes_nothing(ottla: Shell, broker: Broker, topic: Callable[..., str]) -> None:
    name = topic("-p", "2")
    told = ottla("topics", "alter", name, "-c", "retention.ms=2000", "-p", "4", "--dry-run")
    assert told.code == 0 and told.lines[-1] == "Nothing is changed: this is a dry run."
    assert own_texts(broker, name) == {} and len(broker.cluster.topics[name].partitions) == 2
    assert ottla("topics", "alter", name, "-p", "4", "--dry-run", "--json").json == {
        "topics": [{"topic": name, "partitions": {"from": 2, "to": 4}, "configs": {}}],
        "dry_run": True,
        "undo": [],
    }


def test_partitions_are_added_with_leaders(ottla: Shell, broker: Broker, topic: Callable[..., str]) -> None:
    names = [topic(), topic("-p", "2")]
    told = ottla("topics", "alter", *names, "-p", "3", "-c", "retention.ms=5000")
    assert told.code == 0
    assert [line.split() for line in told.lines[1:3]] == [
        [names[0], "partitions", "1", "3"],
        [names[0], "retention.ms", "604800000", "(7", "days)", "5000"],
    ]
    assert told.lines[-1] == f"To undo: ottla topics alter {names[0]} {names[1]} -d retention.ms"
    for name in names:
        assert len(broker.cluster.topics[name].partitions) == 3
        assert own_texts(broker, name) == {"retention.ms": "5000"}
    last = ottla("topics", "alter", names[0], "-p", "4")
    assert last.lines[-1] == "This cannot be undone: partitions cannot be taken away again."


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        ((), 2, "what is to be changed?"),
        (("-c", "retention.ms"), 2, "--config retention.ms: must be NAME=VALUE"),
        (("-c", "=1"), 2, "--config =1: must be NAME=VALUE"),
        (("-c", "retention.ms=1", "-d", "retention.ms"), 2, "setting retention.ms is named twice"),
        (("-c", "retention.m=1"), 1, "has no setting retention.m; did you mean retention.ms?"),
        (("-d", "no-such-name-at-all"), 1, "has no setting no-such-name-at-all"),
        (("-c", "retention.ms=soon"), 1, "(INVALID_CONFIG)"),
        (("-p", "2"), 1, "has 2 partitions already, and can only get more"),
        (("-p", "99999999"), 1, "("),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_changed(
    ottla: Shell, broker: Broker, topic: Callable[..., str], words: tuple[str, ...], code: int, reason: str
) -> None:
    """The part that could be changed is not changed either."""
    name = topic("-p", "2")
    possible = ("-c", "max.message.bytes=77") if words else ()
    assert reason in ottla("topics", "alter", name, *possible, *words).refusal(code)
    assert own_texts(broker, name) == {} and len(broker.cluster.topics[name].partitions) == 2


def test_a_topic_that_is_missing_keeps_the_others_as_they_are(
    ottla: Shell, broker: Broker, topic: Callable[..., str]
) -> None:
    name = topic()
    assert "topic nowhere does not exist" in ottla("topics", "alter", name, "nowhere", "-c", "retention.ms=1").refusal()
    assert own_texts(broker, name) == {}


def test_a_change_that_fails_half_way_says_what_was_changed(
    ottla: Shell, broker: Broker, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = topic(), topic()
    real = cluster_module.Cluster.ask_any
    altered = []

    def ask_any(self: cluster_module.Cluster, question: Callable[..., object]) -> object:
        answer = real(self, question)  # type: ignore[arg-type,var-annotated]
        # The last change is made, and its answer is lost.
        if own_texts(broker, second) and not altered:
            altered.append(second)
            raise ConnectionLost("the broker hung up")
        return answer

    monkeypatch.setattr(cluster_module.Cluster, "ask_any", ask_any)
    refusal = ottla("topics", "alter", first, second, "-c", "retention.ms=1").refusal()
    assert refusal == (
        f"the broker hung up; it is not known whether the settings of {second} are changed;"
        f" done before that: the settings of {first} are changed"
    )


@pytest.fixture
def filled(ottla: Shell, broker: Broker, topic: Callable[..., str]) -> str:
    """A topic with five records in partition 0, and two in partition 1."""
    name = topic("-p", "2", "-c", "retention.ms=-1")
    for partition, count in ((0, 5), (1, 2)):
        for index in range(count):
            write(broker, name, [Record(0, 1_700_000_000_000 + index * 60_000, None, b"x", ())], partition)
    return name


def starts(ottla: Shell, name: str) -> list[int]:
    with ottla.cluster() as cluster:
        return list(offsets_at(cluster, {name: [0, 1]}, EARLIEST).values())


@pytest.mark.parametrize(
    ("where", "words", "expected"),
    [
        ("", ("--to-latest",), [5, 2]),
        (":0", ("--to-latest",), [5, 0]),
        (":0", ("--to-offset", "3"), [3, 0]),
        ("", ("--to-offset", "1"), [1, 1]),
        ("", ("--to-datetime", "2023-11-14T22:15:00"), [2, 2]),
        ("", ("--to-datetime", "2001-01-01"), [0, 0]),
    ],
)
def test_records_before_an_offset_are_deleted(
    ottla: Shell, filled: str, where: str, words: tuple[str, ...], expected: list[int]
) -> None:
    dry = ottla("topics", "trim", filled + where, *words, "--dry-run", "--json").json
    assert starts(ottla, filled) == [0, 0]
    told = ottla("topics", "trim", filled + where, *words, "--yes", "--json").json
    assert starts(ottla, filled) == expected
    assert dry == told | {"dry_run": True}
    for each in told["partitions"]:
        assert (each["start_before"], each["start"]) == (0, expected[each["partition"]])


def test_to_datetime_is_utc_in_any_zone(ottla: Shell, filled: str) -> None:
    with local_zone("America/New_York"):
        for text in ("2023-11-14T22:15:00", "2023-11-14T17:15:00-05:00"):
            trim = ottla("topics", "trim", filled, "--to-datetime", text, "--dry-run", "--json").json
            assert [each["start"] for each in trim["partitions"]] == [2, 2]
            reset = ottla("groups", "reset", "billing", "--topic", filled, "--to-datetime", text, "--json").json
            assert [each["new"] for each in reset["offsets"]] == [2, 2]


def test_trim_asks_first(ottla: Shell, filled: str) -> None:
    refusal = ottla("topics", "trim", filled, "--to-latest").refusal(2)
    question = f"Delete the oldest records of {filled} (7 offsets in 2 partitions)?"
    assert refusal == f"{question} There is nobody to ask: give --yes"
    for answer, end in (("", "\n"), ("n\n", ""), ("x\n", "")):
        told = ottla("topics", "trim", filled, "--to-latest", answer=answer)
        assert (told.code, told.out) == (1, "") and told.err == f"{question} [y/N] {end}ottla: nothing is changed\n"
    assert starts(ottla, filled) == [0, 0]
    told = ottla("topics", "trim", filled, "--to-latest", answer="y\n")
    assert told.lines[-1] == "This cannot be undone: the records are deleted."
    assert starts(ottla, filled) == [5, 2]
    # There is nothing left to ask for.
    assert ottla("topics", "trim", filled, "--to-latest").code == 0


def test_a_topic_may_be_named_again(ottla: Shell, filled: str) -> None:
    told = ottla("topics", "trim", f"{filled}:0", f"{filled}:1", "--to-latest", "--dry-run", "--json").json
    assert [each["start"] for each in told["partitions"]] == [5, 2]
    told = ottla("topics", "trim", f"{filled}:0", filled, "--to-latest", "--dry-run", "--json").json
    assert [each["start"] for each in told["partitions"]] == [5, 2]


@pytest.mark.parametrize(
    ("where", "words", "code", "reason"),
    [
        ("", ("--to-offset", "3"), 1, "-1 ends at 2, before 3"),
        (":0", ("--to-offset", "6"), 1, "-0 ends at 5, before 6"),
        (":7", ("--to-latest",), 1, "has no partition 7"),
        (":x", ("--to-latest",), 2, "must be TOPIC or TOPIC:N,N"),
        ("", ("--to-offset", "-1"), 2, "must be a number from 0 on"),
        ("", ("--to-offset", "9" * 30), 2, "must be a number from 0 on"),
        ("", ("--to-datetime", "yesterday"), 2, "must be a time such as"),
    ],
)
def test_trims_that_are_refused_delete_nothing(
    ottla: Shell, filled: str, where: str, words: tuple[str, ...], code: int, reason: str
) -> None:
    assert reason in ottla("topics", "trim", filled + where, *words, "--yes").refusal(code)
    assert starts(ottla, filled) == [0, 0]


def test_a_compacted_topic_is_not_trimmed_and_neither_are_others(
    ottla: Shell, filled: str, topic: Callable[..., str]
) -> None:
    compacted = topic("-c", "cleanup.policy=compact")
    refusal = ottla("topics", "trim", filled, compacted, "--to-latest", "--yes").refusal()
    assert refusal == f"topic {compacted} has cleanup.policy=compact: only topics with delete can be trimmed"
    assert starts(ottla, filled) == [0, 0]


# --- create and delete


def test_of_several_topics_all_are_created_or_none(ottla: Shell, broker: Broker, topic: Callable[..., str]) -> None:
    there, new = topic(), f"new-{next(numbers)}"
    assert ottla("topics", "create", new, there).refusal() == f"topic {there} is there already"
    assert ottla("topics", "create", new, "a/b").refusal().endswith("(INVALID_TOPIC_EXCEPTION)")
    assert new not in broker.cluster.topics
    assert ottla("topics", "create", new, there, "--if-not-exists").lines == [
        f"{new} is created",
        f"{there} is there already",
    ]
    assert new in broker.cluster.topics


def test_a_dry_run_of_a_deletion(ottla: Shell, broker: Broker, topic: Callable[..., str]) -> None:
    names = [topic(), topic()]
    assert ottla("topics", "delete", *names, "--dry-run").lines == [f"{each} would be deleted" for each in names]
    assert ottla("topics", "delete", *names, "--dry-run", "--json").json == [
        {"name": each, "deleted": False} for each in names
    ]
    assert set(names) <= set(broker.cluster.topics)
    assert ottla("topics", "delete", *names, "--yes").code == 0
    assert not set(names) & set(broker.cluster.topics)


def test_a_topic_takes_durations_and_shows_them(ottla: Shell, broker: Broker, topic: Callable[..., str]) -> None:
    name = topic("-c", "retention.ms=7d", "-c", "segment.bytes=16MiB")
    assert own_texts(broker, name) == {"retention.ms": "604800000", "segment.bytes": "16777216"}
    shown = ottla("topics", "describe", name)
    assert "604800000 (7 days)" in shown.out and "16777216 (16 MiB)" in shown.out
    [told] = ottla("topics", "describe", name, "--json").json
    assert told["configs"] == {"retention.ms": "604800000", "segment.bytes": "16777216"}
    assert ottla("topics", "alter", name, "-c", "retention.ms=1.5h").code == 0
    assert own_texts(broker, name)["retention.ms"] == "5400000"
    assert "it is a duration" in ottla("topics", "alter", name, "-c", "segment.bytes=1h").refusal(2)
    assert own_texts(broker, name)["segment.bytes"] == "16777216"
