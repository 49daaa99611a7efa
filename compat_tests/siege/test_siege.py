"""The short form of `make siege`: every request is attacked in its newest version, and no limit is broken.

Time is only asserted as the processor time of the event loop's thread within one turn, which no other process on the
machine can lengthen, and with a factor to spare: `make siege` measures.
"""

import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_tests.siege.attacks import Attack, of_many_peers, of_records, of_route
from compat_tests.siege.run import GARBAGE_MAX
from compat_tests.siege.siege import Damage, Siege, laid
from compat_tests.siege.state_attacks import of_states
from compat_tests.siege.subjects import subjects_that_differ
from compat_tests.siege.watched_broker import Notes, WatchedEpoll

from ottla.server.gate.dispatch import Route, served_routes

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
    longest_ns, count, _, over = notes.read()
    assert (count, over) == (1, 1)
    assert longest_ns >= 99_000_000


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
