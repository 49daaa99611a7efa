"""Several sessions with one service in memory, and what happens when the ways to it fail; on virtual time."""

import math
import random
from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from ottla.replication.cluster.coordination import (
    Check,
    CoordinationError,
    CoordinationUnavailable,
    Create,
    SessionExpired,
    SetData,
)
from ottla.server.cluster.coordination.probed_session import SURE_SHARE
from ottla.server.testing.memory.agenda import Agenda
from ottla.server.testing.memory.coordination import MemoryCoordination
from ottla.server.testing.memory.coordination_service import MemoryService
from ottla.server.tests.coordination_promises import Calls

TIMEOUT_S = 6.0


class Sessions:
    """A service and the sessions that a test opens."""

    def __init__(self, nursery: trio.Nursery, service: MemoryService) -> None:
        self.nursery = nursery
        self.service = service

    async def open(self) -> MemoryCoordination:
        coordination = MemoryCoordination(self.service.link(), timeout_s=TIMEOUT_S)
        await self.nursery.start(coordination.run)
        return coordination


@pytest.fixture
async def sessions(autojump_clock: MockClock) -> AsyncIterator[Sessions]:
    service = MemoryService(random.Random(7))
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run)
        yield Sessions(nursery, service)
        nursery.cancel_scope.cancel()


def is_sure(coordination: MemoryCoordination) -> bool:
    return trio.current_time() < coordination.session_sure_until


async def until_unavailable(coordination: MemoryCoordination) -> None:
    with pytest.raises(CoordinationUnavailable):
        while True:
            await coordination.get("/")


async def test_what_one_session_writes_another_reads_and_is_told_of(
    sessions: Sessions, autojump_clock: MockClock
) -> None:
    first, second = await sessions.open(), await sessions.open()
    assert first.session_id != second.session_id
    calls = Calls()
    second.watch_node("/a", calls)
    await first.multi([Create("/a", b"1"), Create("/e", ephemeral=True)])
    assert (await second.get("/a")).data == b"1"
    assert calls.paths == ["/a"]
    assert (await second.get("/e")).owner == first.session_id


async def test_no_read_shows_a_change_of_another_session_before_the_watch_was_called(
    sessions: Sessions, autojump_clock: MockClock
) -> None:
    first, second = await sessions.open(), await sessions.open()
    await first.multi([Create("/a")])
    calls = Calls()
    second.watch_node("/a", calls)

    async def write() -> None:
        for _ in range(200):
            await first.multi([SetData("/a", b"x")])

    seen = called_before_last_read = called_before_this = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        while seen < 200:
            called_before_last_read, called_before_this = called_before_this, len(calls.paths)
            version = (await second.get("/a")).version
            assert version == seen or len(calls.paths) > called_before_last_read
            seen = version


async def test_a_session_that_is_closed_ends_at_once_and_its_ephemeral_nodes_go(
    sessions: Sessions, autojump_clock: MockClock
) -> None:
    other = await sessions.open()
    closing = MemoryCoordination(sessions.service.link())
    calls = Calls()
    other.watch_node("/e", calls)
    async with trio.open_nursery() as nursery:
        await nursery.start(closing.run)
        await closing.multi([Create("/e", ephemeral=True), Create("/p")])
        nursery.cancel_scope.cancel()
    closed = trio.current_time()
    await calls.more_than(1)
    assert trio.current_time() < closed + 1
    assert await other.children("/") == ["p"]
    for call in (closing.get("/"), closing.multi([Create("/x")]), closing.until_available()):
        with pytest.raises(SessionExpired):
            await call


async def test_a_session_that_was_abandoned_ends_after_its_timeout(
    sessions: Sessions, autojump_clock: MockClock
) -> None:
    other, killed = await sessions.open(), await sessions.open()
    await killed.multi([Create("/e", ephemeral=True)])
    calls, died = Calls(), trio.current_time()
    other.watch_node("/e", calls)
    killed.abandon()
    await calls.more_than(0)
    assert TIMEOUT_S * (1 - 1 / 6) < trio.current_time() - died < TIMEOUT_S + 0.01
    assert await other.children("/") == []


@pytest.mark.parametrize("way", ["to_service", "from_service"])
async def test_a_broker_that_is_cut_off_knows_it_before_its_ephemeral_nodes_go(
    sessions: Sessions, autojump_clock: MockClock, way: str
) -> None:
    other, cut_off = await sessions.open(), await sessions.open()
    await cut_off.multi([Create("/e", ephemeral=True)])
    was_sure_when_gone: list[bool] = []
    other.watch_node("/e", lambda _: was_sure_when_gone.append(is_sure(cut_off)))
    heard: list[bool] = []
    cut_off.watch_session(lambda: heard.append(is_sure(cut_off)))
    link = cut_off._link
    link.cut(to_service=way == "to_service", from_service=way == "from_service")
    await until_unavailable(cut_off)
    assert is_sure(cut_off)
    await trio.sleep(3 * TIMEOUT_S)
    assert (was_sure_when_gone, heard) == ([False], [False])
    with pytest.raises(CoordinationUnavailable):
        await cut_off.get("/")  # it cannot know that the session has ended
    link.heal()
    with pytest.raises(SessionExpired):
        await cut_off.until_available()
    assert cut_off.session_sure_until == -math.inf


async def test_a_session_outlives_a_short_cut_and_watches_tell_what_was_missed(
    sessions: Sessions, autojump_clock: MockClock
) -> None:
    other, cut_off = await sessions.open(), await sessions.open()
    await cut_off.multi([Create("/e", ephemeral=True), Create("/a")])
    session_id, calls = cut_off.session_id, Calls()
    cut_off.watch_node("/a", calls)
    cut_off._link.reset()
    with pytest.raises(CoordinationUnavailable):
        await cut_off.get("/a")
    await other.multi([SetData("/a", b"x")])
    await cut_off.until_available()
    assert calls.paths
    assert (await cut_off.get("/a")).data == b"x"
    assert (await cut_off.get("/e")).owner == session_id == cut_off.session_id


async def test_requests_wait_while_a_cut_is_not_yet_noticed(sessions: Sessions, autojump_clock: MockClock) -> None:
    coordination = await sessions.open()
    link = coordination._link
    link.cut()
    sessions.service.agenda.at(trio.current_time() + 0.5, link.heal)
    asked = trio.current_time()
    await coordination.multi([Create("/a")])
    assert trio.current_time() > asked + 0.5


async def test_a_session_is_sure_for_as_long_as_it_is_held(sessions: Sessions, autojump_clock: MockClock) -> None:
    coordination = await sessions.open()
    calls: list[None] = []
    coordination.watch_session(lambda: calls.append(None))
    for _ in range(100):
        await trio.sleep(TIMEOUT_S / 10)
        assert trio.current_time() + TIMEOUT_S * SURE_SHARE / 2 < coordination.session_sure_until
    assert calls == []


async def test_a_write_whose_outcome_is_unknown_happens_or_not_but_never_after_a_later_read(
    sessions: Sessions,
    autojump_clock: MockClock,
) -> None:
    other, coordination = await sessions.open(), await sessions.open()
    await other.multi([Create("/n")])
    outcomes = set()
    for number in range(100):
        async with trio.open_nursery() as nursery:
            failures: list[CoordinationError] = []
            nursery.start_soon(_failing_write, coordination, f"/n/{number}", failures)
            await trio.sleep(sessions.service.random.uniform(0.0002, 0.0015))
            coordination._link.reset()
        await coordination.until_available()
        there = str(number) in await coordination.children("/n")
        await trio.sleep(1)
        assert there == (str(number) in await other.children("/n"))
        outcomes.add((there, bool(failures)))
    assert {(True, True), (False, True)} <= outcomes


async def _failing_write(coordination: MemoryCoordination, path: str, failures: list[CoordinationError]) -> None:
    try:
        await coordination.multi([Create(path)])
    except CoordinationUnavailable as error:
        failures.append(error)


async def test_no_session_ends_while_the_service_is_away(sessions: Sessions, autojump_clock: MockClock) -> None:
    first, second = await sessions.open(), await sessions.open()
    await first.multi([Create("/e", ephemeral=True)])
    sessions.service.stop()
    for coordination in (first, second):
        with pytest.raises(CoordinationUnavailable):
            await coordination.get("/")
    await trio.sleep(5 * TIMEOUT_S)
    assert not is_sure(first)
    sessions.service.start()
    await first.until_available()
    await second.until_available()
    assert (await second.get("/e")).owner == first.session_id
    assert is_sure(first)


async def test_a_session_that_is_ended_by_the_service_is_told(sessions: Sessions, autojump_clock: MockClock) -> None:
    other, coordination = await sessions.open(), await sessions.open()
    await coordination.multi([Create("/e", ephemeral=True)])
    calls = Calls()
    coordination.watch_session(lambda: calls(""))
    sessions.service.expire(coordination.session_id)
    await calls.more_than(0)
    for ended in (coordination.get("/"), coordination.multi([]), coordination.until_available()):
        with pytest.raises(SessionExpired):
            await ended
    assert await other.children("/") == []


async def test_a_session_cannot_begin_while_the_service_is_away(sessions: Sessions, autojump_clock: MockClock) -> None:
    sessions.service.stop()
    coordination = MemoryCoordination(sessions.service.link(), connection_timeout_s=3)
    with pytest.raises(CoordinationUnavailable):
        await coordination.run()
    assert trio.current_time() >= 3


async def test_guarded_writes_of_two_sessions_do_not_both_happen(sessions: Sessions, autojump_clock: MockClock) -> None:
    first, second = await sessions.open(), await sessions.open()
    await first.multi([Create("/epoch")])
    done: list[int] = []

    async def claim(coordination: MemoryCoordination, number: int) -> None:
        try:
            await coordination.multi([Check("/epoch", 0), SetData("/epoch", b"", 0)])
        except CoordinationError:
            return
        done.append(number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(claim, first, 1)
        nursery.start_soon(claim, second, 2)
    assert len(done) == 1
    assert (await first.get("/epoch")).version == 1


async def test_the_agenda_calls_in_order_of_time(autojump_clock: MockClock) -> None:
    agenda, calls = Agenda(), []
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        await nursery.start(agenda.run)
        for delay in (3, 1, 2, 1):
            number = len(calls)
            agenda.at(start + delay, lambda delay=delay: calls.append((delay, trio.current_time() - start)))
            assert number == len(calls)
        await trio.sleep(1.5)
        assert [delay for delay, _ in calls] == [1, 1]
        agenda.at(start + 1.6, lambda: calls.append((1.6, trio.current_time() - start)))
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert [delay for delay, _ in calls] == [1, 1, 1.6, 2, 3]
    assert all(delay == pytest.approx(at) for delay, at in calls)
