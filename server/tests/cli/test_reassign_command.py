"""`ottla reassign` and `elect` beside one broker, which has nowhere to move anything; compat_tests has them beside three."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.cli.client.output import UsageError
from ottla.server.cli.replicas.elect import _preferred, _unclean
from ottla.server.cli.replicas.moves import settings_for
from ottla.server.cli.replicas.plans import Placed, parse_plan, with_number
from ottla.server.tests.cli.commanded import Shell

TOPIC = "orders"


@pytest.fixture
def ottla(ottla: Shell) -> Shell:
    assert ottla("topics", "create", TOPIC, "-p", "2", "--if-not-exists").code == 0
    return ottla


def plan_of(**replicas: object) -> str:
    entries = [{"topic": TOPIC, "partition": int(name[1:]), "replicas": each} for name, each in replicas.items()]
    return json.dumps({"version": 1, "partitions": entries})


def test_replicas_that_are_in_place_are_not_moved(ottla: Shell, tmp_path: Path) -> None:
    assert ottla("reassign").out == "nothing is being moved\n"
    assert ottla("reassign", "plan", TOPIC).out.startswith("nothing to move: ")
    assert ottla("reassign", "plan", TOPIC, "--json").json == {"version": 1, "partitions": []}
    file = tmp_path / "plan.json"
    file.write_text(plan_of(p0=[1], p1=[1]))
    for words in (
        (f"{TOPIC}:0=1",),
        ("--plan", str(file)),
        ("--plan", str(file), "--dry-run"),
        (f"{TOPIC}:1=1", "--wait"),
    ):
        assert ottla("reassign", "execute", *words).lines[0] == "nothing to move: the replicas are there already"
    verified = ottla("reassign", "verify", "--plan", "-", "--json", stdin=plan_of(p0=[1])).json
    assert verified == [{"topic": TOPIC, "partition": 0, "replicas": [1], "wanted": [1], "state": "done"}]


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("plan", "nowhere"), 1, "topic nowhere does not exist"),
        (("plan", TOPIC, "--brokers", "1,9"), 1, "broker 9 is not there; the cluster has 1"),
        (("plan", TOPIC, "--replicas", "2"), 1, "1 brokers cannot hold 2 replicas"),
        (("execute",), 2, "which partitions?"),
        (("execute", f"{TOPIC}:0=1", "--plan", "-"), 2, "which partitions?"),
        (("execute", f"{TOPIC}:0=2"), 1, "broker 2 is not there; the cluster has 1"),
        (("execute", f"{TOPIC}:7=1"), 1, "has no partition 7"),
        (("execute", f"{TOPIC}:0=1", f"{TOPIC}:0=1"), 2, "is named twice"),
        (("execute", f"{TOPIC}:0=1,1"), 2, "two replicas on one broker"),
        (("execute", f"{TOPIC}:0="), 2, "must be TOPIC:N=ID,ID"),
        (("execute", f"{TOPIC}=1"), 2, "must be TOPIC:N=ID,ID"),
        (("execute", "--plan", "/nowhere"), 2, "cannot read /nowhere"),
        (("execute", "--plan", "a\0b"), 2, "cannot be read"),
        (("execute", f"{TOPIC}:0=1", "--throttle", "5MiB"), 2, "--throttle goes with --wait"),
        (("verify", f"{TOPIC}:x=1"), 2, "must be TOPIC:N=ID,ID"),
        (("cancel",), 2, "which partitions?"),
        (("cancel", "--all", TOPIC), 2, "which partitions?"),
        (("cancel", "--all"), 1, "nothing is being moved: nothing is changed"),
        (("cancel", f"{TOPIC}:0"), 1, f"{TOPIC}-0 is not being moved"),
        (("cancel", TOPIC), 1, "nothing is being moved: nothing is changed"),
    ],
)
def test_a_wrong_command_line_is_refused_with_its_reason(
    ottla: Shell, words: tuple[str, ...], code: int, reason: str
) -> None:
    assert reason in ottla("reassign", *words).refusal(code)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "partitions": []}',
        '{"version": 1, "partitions": 5}',
        '{"version": 1, "partitions": [5]}',
        '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": []}]}',
        '{"version": 1, "partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}',
        '{"version": 1, "partitions": [{"topic": "t", "partition": true, "replicas": [1]}]}',
        '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}',
        '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/x"]}]}',
        '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": 5}]}',
        '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": null}]}',
        "[" * 100_000,
    ],
)
def test_a_file_that_is_no_plan_is_refused(ottla: Shell, text: str) -> None:
    assert "--plan -" in ottla("reassign", "execute", "--plan", "-", stdin=text).refusal(2)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["version", "partitions", "topic", "partition", "replicas", "log_dirs"]), inner)))  # fmt: skip
def test_any_json_is_a_plan_or_refused(value: object) -> None:
    for plan in (value, {"version": 1, "partitions": [value]}):
        try:
            for (topic, number), replicas in parse_plan(json.dumps(plan), "p"):
                assert isinstance(topic, str) and number >= 0 and replicas
        except UsageError as refused:
            assert "\n" not in str(refused)


def test_replicas_are_added_where_fewest_are_and_taken_from_the_end() -> None:
    placed = [Placed("t", 0, (1, 2, 3)), Placed("t", 1, (2, 3, 1))]
    assert [each.replicas for each in with_number(placed, [1, 2, 3], 2)] == [(1, 2), (2, 3)]
    assert [each.replicas for each in with_number(placed, [1, 3], 2)] == [(1, 3), (3, 1)]
    more = with_number([Placed("t", n, (1,)) for n in range(4)], [1, 2, 3], 2)
    assert [each.replicas for each in more] == [(1, 2), (1, 3), (1, 2), (1, 3)]
    assert with_number(placed, [1], None) == placed


def test_a_throttle_holds_for_what_is_moved() -> None:
    before = {("a", 0): (1, 2), ("a", 1): (2, 3), ("b", 0): (1,)}
    after = {("a", 0): (2, 4), ("b", 0): (1, 2)}
    assert {str(of): list(each.values()) for of, each in settings_for(9, before, after).items()} == {
        "topic a": ["0:1,0:2", "0:4"],
        "topic b": ["0:1", "0:2"],
        "broker 1": ["9", "9"],
        "broker 2": ["9", "9"],
        "broker 4": ["9", "9"],
    }


# --- elections


def test_partitions_that_are_led_by_their_first_replicas_need_no_election(ottla: Shell) -> None:
    for words in (
        ("preferred", TOPIC),
        ("preferred", "--all-topics"),
        ("unclean", f"{TOPIC}:0"),
        ("unclean", "--all-topics"),
    ):
        told = ottla("elect", *words)
        assert told.code == 0 and told.out.startswith("nothing to elect: "), told
    assert ottla("elect", "preferred", TOPIC, "--json", "--dry-run").json == {
        "elected": [], "not_possible": [], "dry_run": True, "undo": []
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        ((), 2, "which partitions?"),
        (("preferred",), 2, "which partitions?"),
        (("preferred", "--all-topics", TOPIC), 2, "which partitions?"),
        (("preferred", "nowhere"), 1, "topic nowhere does not exist"),
        (("unclean", f"{TOPIC}:9"), 1, "has no partition 9"),
        (("unclean", f"{TOPIC}:"), 2, "must be TOPIC or TOPIC:N,N"),
    ],
)
def test_a_wrong_election_is_refused_with_its_reason(
    ottla: Shell, words: tuple[str, ...], code: int, reason: str
) -> None:
    assert reason in ottla("elect", *words).refusal(code)


def test_who_is_to_lead() -> None:
    place = ("t", 0)
    assert _preferred(place, 2, [1, 2], [1, 2], [1, 2]).candidate == 1
    assert _preferred(place, 2, [1, 2], [1, 2], [2]).obstacle == "its first replica, on broker 1, is not in sync"
    assert _preferred(place, 2, [1, 2], [2], [2]).obstacle == "its first replica, on broker 1, does not live"
    assert _unclean(place, 2, [1, 2], [2], [2])[1:] == (2, 2, "")
    assert _unclean(place, None, [1, 2, 3], [2, 3], [3]).candidate == 3
    assert _unclean(place, None, [1, 2, 3], [2, 3], []).candidate == 2
    assert _unclean(place, None, [1, 2], [], []).obstacle == "none of its replicas lives, on brokers 1,2"
