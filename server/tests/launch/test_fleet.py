"""The decisions of a supervisor, as conversations. Times are seconds."""

import math
import signal

from ottla.server.launch.fleet import (
    DELAYS_S,
    FLUSH_S,
    KILL_S,
    REST_S,
    RESTARTS_MAX,
    RESTARTS_S,
    Announce,
    AnnounceAgain,
    Fleet,
    Say,
    Send,
    Start,
)
from ottla.server.launch.signals import ALL_STOP

KEEPER, WORKERS = "the tree", ["worker 0", "worker 1"]


def serving(keeper=KEEPER):
    fleet = Fleet(WORKERS, keeper, hand_over_s=10)
    fleet.begin()
    for name in [*([keeper] if keeper else []), *WORKERS]:
        fleet.on_ready(name)
    assert fleet.is_serving
    return fleet


def names(actions, kind=Start):
    return [each.name for each in actions if isinstance(each, kind)]


def started_again(fleet, name, now):
    """What is started, be it later, because this one has ended."""
    actions = fleet.on_ended(name, "signal 9, SIGKILL", now, is_failure=True)
    return names(actions) or names(fleet.on_time(fleet.deadline))


def lines(actions):
    return [each.line for each in actions if isinstance(each, Say)]


def test_workers_start_side_by_side_when_the_tree_is_there():
    fleet = Fleet(WORKERS, KEEPER, 10)
    assert fleet.begin() == [Start(KEEPER)]
    assert fleet.on_ready(KEEPER) == [Start("worker 0"), Start("worker 1")]
    assert fleet.on_ready("worker 1") == []
    assert fleet.on_ready("worker 0") == [Announce()]


def test_without_a_keeper_workers_start_at_once():
    assert Fleet(WORKERS, None, 10).begin() == [Start("worker 0"), Start("worker 1")]


def test_a_worker_that_cannot_start_ends_the_start_with_its_reason():
    fleet = Fleet(WORKERS, KEEPER, 10)
    fleet.begin()
    fleet.on_ready(KEEPER)
    fleet.on_problem("worker 1", "cannot listen on PLAINTEXT://h:1: taken")
    actions = fleet.on_ended("worker 1", "exit status 1", 0, is_failure=True)
    assert actions == [Send("worker 0", ALL_STOP)]
    assert fleet.on_ended("worker 0", "exit status 0", 1, is_failure=False) == [Send(KEEPER, signal.SIGTERM)]
    assert not fleet.is_over
    fleet.on_ended(KEEPER, "exit status 0", 2, is_failure=False)
    assert fleet.is_over
    assert fleet.failure == "worker 1: cannot listen on PLAINTEXT://h:1: taken"


def test_a_worker_that_ends_is_started_again_and_told_of():
    fleet = serving()
    actions = fleet.on_ended("worker 1", "signal 9, SIGKILL", 5, is_failure=True)
    assert names(actions) == ["worker 1"]
    assert lines(actions) == ["worker 1 has ended (signal 9, SIGKILL) and is started again"]
    assert fleet.on_ready("worker 1") == [
        Say("worker 1 serves again", is_bad=False),
        AnnounceAgain("worker 1"),
    ]


def test_so_is_one_that_was_asked_to_stop_or_says_why():
    fleet = serving()
    assert names(fleet.on_ended("worker 0", "exit status 0", 5, is_failure=False)) == ["worker 0"]
    fleet.on_problem("worker 1", "every log directory is offline")
    actions = fleet.on_ended("worker 1", "exit status 1", 6, is_failure=True)
    assert lines(actions) == ["worker 1 has ended (every log directory is offline) and is started again"]


def test_a_worker_that_ends_too_often_stays_down_and_others_go_on():
    fleet = serving()
    for time in range(RESTARTS_MAX):
        assert started_again(fleet, "worker 1", time) == ["worker 1"]
    actions = fleet.on_ended("worker 1", "exit status 1", RESTARTS_MAX, is_failure=True)
    assert names(actions) == []
    assert "6 times within 60 s; it stays down" in lines(actions)[0]
    assert fleet.is_serving
    assert names(fleet.on_ended("worker 0", "exit status 1", 7, is_failure=True)) == ["worker 0"]
    # A keeper that is started again later does not bring it back.
    fleet.on_ended(KEEPER, "signal 9, SIGKILL", 8, is_failure=True)
    assert fleet.on_ready(KEEPER) == []


def test_a_worker_that_says_why_it_cannot_serve_is_tried_again_later():
    fleet = serving()

    def end(name, now):
        fleet.on_problem(name, "every log directory is offline")
        return fleet.on_ended(name, "exit status 1", now, is_failure=True)

    now = 0.0
    for _ in range(2):
        for _ in range(RESTARTS_MAX):
            assert names(end("worker 1", now)) or names(fleet.on_time(fleet.deadline)) == ["worker 1"]
        actions = end("worker 1", now)
        assert names(actions) == []
        assert lines(actions) == [
            "worker 1 has ended (every log directory is offline), 6 times within 60 s; what it led is away until it is tried again in 61 s"
        ]
        assert fleet.deadline == now + REST_S
        now = fleet.deadline
        assert names(fleet.on_time(now)) == ["worker 1"]
    assert fleet.on_ready("worker 1") == [Say("worker 1 serves again", is_bad=False), AnnounceAgain("worker 1")]
    assert names(fleet.on_ended("worker 1", "signal 9, SIGKILL", now + REST_S, is_failure=True)) == ["worker 1"]
    # When the others are down, too, there is nobody to go on.
    for name in WORKERS:
        for _ in range(RESTARTS_MAX + 1):
            actions = end(name, now + 3 * REST_S)
    assert actions == [Send(KEEPER, signal.SIGTERM)]
    assert fleet.failure == "worker 1 has ended (every log directory is offline) too often"


def test_a_worker_that_is_just_tried_again_is_one_that_is_left():
    fleet = serving()

    def end(name, problem, now):
        for _ in range(RESTARTS_MAX + 1):
            fleet.on_problem(name, problem)
            actions = fleet.on_ended(name, "exit status 1", now, is_failure=True)
        return actions

    for name in WORKERS[1:]:
        end(name, "every log directory is offline", 0.0)
    assert names(fleet.on_time(REST_S)) == WORKERS[1:]
    assert "it stays down" in lines(end(WORKERS[0], "", REST_S))[0]
    assert not fleet.is_stopping
    assert AnnounceAgain(WORKERS[1]) in fleet.on_ready(WORKERS[1])


def test_ends_that_are_long_ago_do_not_count():
    fleet = serving()
    for time in range(30):
        assert started_again(fleet, "worker 1", time * (RESTARTS_S / RESTARTS_MAX + 1)) == ["worker 1"]


def test_each_start_waits_longer_than_the_one_before():
    fleet = serving()
    now = 0.0
    for delay_s in DELAYS_S:
        actions = fleet.on_ended("worker 1", "exit status 1", now, is_failure=True)
        if delay_s:
            assert lines(actions) == [f"worker 1 has ended (exit status 1) and is started again in {delay_s:g} s"]
            assert names(actions) == []
            assert fleet.on_ready(KEEPER) == []  # a keeper that comes back does not hurry it
            assert fleet.deadline == now + delay_s
            assert fleet.on_time(fleet.deadline - 0.1) == []
            now = fleet.deadline
            actions = fleet.on_time(now)
        assert names(actions) == ["worker 1"]
        assert fleet.deadline == math.inf
    # A minute later it is as if nothing had been.
    assert names(fleet.on_ended("worker 1", "exit status 1", now + RESTARTS_S + 1, is_failure=True)) == ["worker 1"]


def test_what_waits_for_its_start_is_not_started_any_more_when_all_stop():
    fleet = serving()
    for _ in range(2):
        fleet.on_ended("worker 1", "exit status 1", 0, is_failure=True)
    assert fleet.deadline == DELAYS_S[1]
    assert names(fleet.on_signal("SIGTERM", 0.5), Send) == ["worker 0"]
    assert fleet.on_time(fleet.deadline - 0.1) == []


def test_when_no_worker_is_left_all_stop():
    fleet = serving()
    for name in WORKERS:
        for _ in range(RESTARTS_MAX + 1):
            actions = fleet.on_ended(name, "exit status 1", 0, is_failure=True)
    assert actions == [Send(KEEPER, signal.SIGTERM)]
    assert fleet.failure == "worker 1 has ended (exit status 1) too often"


def test_the_keeper_is_started_again_unless_it_says_that_it_cannot_go_on():
    fleet = serving()
    for _ in range(2):  # the second time before it was ready
        assert started_again(fleet, KEEPER, 0) == [KEEPER]
    fleet.on_ready(KEEPER)
    fleet.on_problem(KEEPER, "the journal cannot be written")
    assert fleet.on_ended(KEEPER, "exit status 1", 1, is_failure=True) == [
        Send("worker 0", ALL_STOP),
        Send("worker 1", ALL_STOP),
    ]
    assert fleet.failure == f"{KEEPER}: the journal cannot be written"


def test_the_first_signal_asks_the_workers_and_then_the_keeper():
    fleet = serving()
    actions = fleet.on_signal("SIGTERM", 0)
    assert [each for each in actions if isinstance(each, Send)] == [Send(name, ALL_STOP) for name in WORKERS]
    assert fleet.on_ended("worker 0", "exit status 0", 1, is_failure=False) == []
    assert fleet.on_ended("worker 1", "exit status 0", 1, is_failure=False) == [Send(KEEPER, signal.SIGTERM)]
    fleet.on_ended(KEEPER, "exit status 0", 1, is_failure=False)
    assert (fleet.is_over, fleet.failure, fleet.was_killed) == (True, "", False)


def test_workers_that_share_their_tree_with_other_machines_hand_over():
    fleet = serving(keeper=None)
    actions = fleet.on_signal("SIGTERM", 0)
    assert [each for each in actions if isinstance(each, Send)] == [Send(name, signal.SIGTERM) for name in WORKERS]
    assert fleet.on_signal("SIGHUP", 1) == []  # a closed terminal may be told of again
    assert [each.number for each in fleet.on_signal("SIGTERM", 1) if isinstance(each, Send)] == [signal.SIGTERM] * 2
    assert [each.number for each in fleet.on_signal("SIGTERM", 2) if isinstance(each, Send)] == [signal.SIGKILL] * 2


def test_further_signals_press():
    fleet = serving()
    fleet.on_signal("SIGINT", 0)
    assert [each.number for each in fleet.on_signal("SIGINT", 1) if isinstance(each, Send)] == [signal.SIGTERM] * 2
    assert [each.number for each in fleet.on_signal("SIGINT", 2) if isinstance(each, Send)] == [signal.SIGKILL] * 2


def test_patience_ends_by_itself():
    fleet = serving()
    fleet.on_signal("SIGTERM", 100)
    assert fleet.deadline == 100 + 10 + FLUSH_S
    assert fleet.on_time(fleet.deadline - 1) == []
    fleet.on_ended("worker 0", "exit status 0", 101, is_failure=False)
    assert fleet.on_time(fleet.deadline) == [Send("worker 1", signal.SIGTERM)]
    assert fleet.on_time(fleet.deadline) == [Send("worker 1", signal.SIGKILL)]
    fleet.on_ended("worker 1", "signal 9, SIGKILL", 200, is_failure=True)
    fleet.on_ended(KEEPER, "exit status 0", 200, is_failure=False)
    assert (fleet.is_over, fleet.was_killed) == (True, True)


def test_what_does_not_even_end_when_it_is_killed_is_left_to_the_system():
    fleet = serving()
    fleet.on_signal("SIGTERM", 100)
    for number in (signal.SIGTERM, signal.SIGKILL):
        assert fleet.on_time(fleet.deadline) == [Send(name, number) for name in WORKERS]
    killed_at = fleet.deadline - KILL_S
    assert fleet.on_time(killed_at + KILL_S) == [
        *(Say(f"{name} does not end, and is left to the system") for name in WORKERS),
        Send(KEEPER, signal.SIGTERM),
    ]
    fleet.on_ended(KEEPER, "exit status 0", 300, is_failure=False)
    assert (fleet.is_over, fleet.was_killed) == (True, True)


def test_a_signal_while_it_starts_ends_what_runs_and_starts_nothing_more():
    fleet = Fleet(WORKERS, KEEPER, 10)
    fleet.begin()
    assert names(fleet.on_signal("SIGTERM", 0), Send) == [KEEPER]
    assert fleet.on_ready(KEEPER) == []
    fleet.on_ended(KEEPER, "exit status 0", 0, is_failure=False)
    assert (fleet.is_over, fleet.failure) == (True, "")
