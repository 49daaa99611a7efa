"""The short form of `make siege`: every request is attacked in its newest version, and no limit is broken.

Time is only asserted as the processor time of the event loop's thread within one turn, which no other process on the
machine can lengthen, and with a factor to spare: `make siege` measures.
"""

import contextlib
import select
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from compat_tests.siege.attacks import Attack, of_many_peers, of_records, of_route
from compat_tests.siege.run import GARBAGE_MAX, Report, lay
from compat_tests.siege.siege import Damage, Limits, Siege, laid
from compat_tests.siege.state_attacks import of_states
from compat_tests.siege.subjects import subjects_that_differ
from compat_tests.siege.watched_broker import Moment, Notes, Seen, Turn, WatchedEpoll

from ottla.server.dispatch.dispatch import Route, served_routes

SIZE_BYTES = 160 << 10
BUSY_MS_MAX = 150.0
MEMORY_MIB_MAX = 300.0
TIMES = 3

ROUTES = [route for _, route in sorted(served_routes(is_in_cluster=False).items())]


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    with laid(tmp_path_factory.mktemp("siege")) as siege:
        yield siege


@pytest.mark.parametrize("route", ROUTES, ids=[route.name for route in ROUTES])
def test_no_request_holds_up_the_others(siege: Siege, route: Route):
    subjects = subjects_that_differ(route.request_class)
    for attack in of_route(route, [route.versions.last], [SIZE_BYTES], subjects):
        check(attack, siege)
    check_garbage(siege, route.name)


def test_no_crowd_of_peers_holds_up_the_others(siege: Siege):
    for attack in of_many_peers(hold_s=0.2, peers=25, large_peers=4, topics=300):
        check(attack, siege)
    check_garbage(siege, "a crowd")


def test_no_records_hold_up_the_others(siege: Siege):
    for attack in of_records():
        check(attack, siege)
    check_garbage(siege, "records")


def test_nothing_that_was_built_up_holds_up_the_others(siege: Siege):
    for attack in of_states():
        check(attack, siege)
    check_garbage(siege, "what was built up")


def test_a_turn_that_waits_for_anything_but_a_processor_is_a_hold(tmp_path: Path):
    notes = Notes(tmp_path / "notes", create=True)
    with select.epoll() as epoll:
        watched = WatchedEpoll(epoll, notes)
        watched.poll(0)
        time.sleep(0.1)  # as a disk would let it wait
        watched.poll(0)
    seen = notes.read()
    assert (seen.count, seen.over) == (1, 1)
    turn = seen.longest
    # On a busy machine the thread wakes late, and the wait for a processor counts as `away_ns`.
    assert turn.held_ns + turn.away_ns >= 99_000_000 and turn.blocked_ns > turn.busy_ns
    notes.clear()
    assert notes.read() == Seen(0, 0, 0, 0, Turn())


BEGAN = Moment(now=1_000, ran=500, queued=70, sleeps=3, faults=1)


@pytest.mark.parametrize(
    ("ended", "turn", "held_ns", "away_ns"),
    [
        (Moment(1_090, 590, 70, 3, 1), Turn(busy_ns=90), 90, 0),
        (Moment(1_090, 520, 130, 3, 1), Turn(busy_ns=20, queued_ns=60, stolen_ns=10), 20, 70),
        (Moment(1_090, 503, 70, 3, 1), Turn(busy_ns=3, stolen_ns=87), 3, 87),
        (Moment(1_090, 503, 80, 4, 3), Turn(busy_ns=3, blocked_ns=77, queued_ns=10, faults=2), 80, 10),
        # It was away between two looks at the clocks.
        (Moment(1_090, 590, 400, 3, 1), Turn(busy_ns=90, queued_ns=330), 90, 330),
    ],
    ids=["at work", "others have the processor", "the hypervisor has it", "asleep in the kernel", "away meanwhile"],
)
def test_each_part_of_a_turn_is_somebodys(ended: Moment, turn: Turn, held_ns: int, away_ns: int):
    found = Turn.between(BEGAN, ended)
    assert found == turn
    assert (found.held_ns, found.away_ns) == (held_ns, away_ns)


def test_who_waits_for_a_thread_without_a_processor_is_not_held():
    """It has the interpreter's lock, and the machine lets it wait."""
    ended = Moment(1_090, 503, 80, 4, 1)
    assert Turn.between(BEGAN, ended, 50) == Turn(busy_ns=3, blocked_ns=27, starved_ns=50, queued_ns=10)
    assert Turn.between(BEGAN, ended, 500) == Turn(busy_ns=3, starved_ns=77, queued_ns=10)
    assert Turn.between(BEGAN, Moment(1_090, 503, 80, 3, 1), 50) == Turn(busy_ns=3, queued_ns=10, stolen_ns=77)


def test_the_longest_hold_is_told_with_its_parts(tmp_path: Path):
    notes = Notes(tmp_path / "notes", create=True)
    for turn in (
        Turn(busy_ns=9),
        Turn(queued_ns=99, stolen_ns=1),
        Turn(busy_ns=2, blocked_ns=10**9, faults=4),
        Turn(blocked_ns=8),
    ):
        notes.note(turn)
    assert notes.read() == Seen(4, 1, 9, 100, Turn(busy_ns=2, blocked_ns=10**9, faults=4))


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, AssertionError, None])
def test_a_siege_ends_with_its_summary(end: type[BaseException] | None, capsys: pytest.CaptureFixture[str]):
    siege: Any = SimpleNamespace(
        all_waits_ms=[1.0, 2.0], broker=SimpleNamespace(died=lambda: end is AssertionError), garbage=lambda: 7
    )
    report = Report(Limits())

    def rounds() -> None:
        report.add(Attack("Fetch", "of nothing", lambda _: None), Damage("Fetch", Turn(busy_ns=3), 1, 2, 3, 0, 5, 6))
        if end is not None:
            raise end

    with pytest.raises(AssertionError) if end is AssertionError else contextlib.nullcontext():
        assert lay(siege, report, rounds) is (end is None)
    assert "1 attacks, 0 broke a limit; bystander: 2 requests" in capsys.readouterr().out


def check_garbage(siege: Siege, what: str) -> None:
    """The broker never frees objects that hold each other."""
    garbage = siege.garbage()
    assert garbage <= GARBAGE_MAX, f"{what} left {garbage} objects that hold each other"


def check(attack: Attack, siege: Siege) -> None:
    """A limit that is broken each time fails; that the broker and the bystander live was asserted by the siege.

    What an attack costs it costs every time. A virtual machine that is stopped for a moment counts that as work, and one that
    others press hard is stopped more than once.
    """
    damages = [siege.carry_out(attack)]
    while breaks(damages[-1]) and len(damages) < TIMES:
        damages.append(siege.carry_out(attack))
    assert not breaks(damages[-1]), f"{attack} breaks the limits each time: {damages}"


def breaks(damage: Damage) -> bool:
    return damage.busy_ms > BUSY_MS_MAX or damage.memory_mib > MEMORY_MIB_MAX or damage.sockets_left > 0
