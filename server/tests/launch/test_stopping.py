"""The effects of the first, the second and the third signal."""

import logging
import signal
from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from ottla.server.launch.signals import ALL_STOP, EXIT_KILLED, StopSignals


class Operator:
    """Sends signals."""

    def __init__(self) -> None:
        self.ended_with: list[int] = []
        self.stop = StopSignals(self.ended_with.append)
        self._send, self._receive = trio.open_memory_channel[int](10)

    async def run(self) -> None:
        await self.stop.heed(self._signals())

    async def _signals(self) -> AsyncIterator[int]:
        async for number in self._receive:
            yield number

    async def send(self, number: int) -> None:
        await self._send.send(number)
        await trio.testing.wait_all_tasks_blocked()


async def test_signals_ask_more_and_more(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    operator = Operator()
    stop = operator.stop
    with caplog.at_level(logging.INFO, "ottla.broker"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(operator.run)
            states = []
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
                await operator.send(number)
                states.append((stop.requested.is_set(), stop.immediate.is_set(), operator.ended_with.copy()))
            nursery.cancel_scope.cancel()
    assert states == [(True, False, []), (True, True, []), (True, True, [EXIT_KILLED])]
    assert [record.message.split(",")[-1].split()[-1] for record in caplog.records] == ["SIGTERM", "SIGINT", "SIGTERM"]


async def test_a_closed_terminal_asks_for_a_stop_however_often_it_is_told(autojump_clock: MockClock) -> None:
    """A shell may send SIGHUP, and the kernel again: neither is somebody who has lost patience."""
    operator = Operator()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(operator.run)
        for _ in range(3):
            await operator.send(signal.SIGHUP)
        assert operator.stop.requested.is_set()
        assert not operator.stop.immediate.is_set() and operator.ended_with == []
        await operator.send(signal.SIGINT)
        assert operator.stop.immediate.is_set()
        nursery.cancel_scope.cancel()


async def test_brokers_that_stop_together_hand_nothing_over_and_expect_each_other_to_go(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    operator = Operator()
    peers = logging.getLogger("ottla.peers")
    with caplog.at_level(logging.INFO, "ottla"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(operator.run)
            peers.warning("a broker is unavailable")
            await operator.send(ALL_STOP)
            assert not operator.stop.requested.is_set()
            peers.warning("a broker is unavailable")
            peers.error("a bug")
            await operator.stop.requested.wait()
            assert not operator.stop.hands_over and not operator.stop.immediate.is_set()
            await operator.send(signal.SIGTERM)
            assert operator.stop.immediate.is_set() and not operator.ended_with
            nursery.cancel_scope.cancel()
    assert [each.levelname for each in caplog.records if each.name == "ottla.peers"] == ["WARNING", "INFO", "ERROR"]
    peers.warning("a broker is unavailable")
    assert caplog.records[-1].levelname == "WARNING"


async def test_who_wants_warnings_alone_does_not_hear_of_others_that_stop_too(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    operator = Operator()
    peers = logging.getLogger("ottla.peers")
    with caplog.at_level(logging.WARNING, "ottla"):
        caplog.handler.setLevel(logging.NOTSET)  # as that of a broker
        async with trio.open_nursery() as nursery:
            nursery.start_soon(operator.run)
            await operator.send(ALL_STOP)
            peers.warning("a broker is unavailable")
            peers.error("a bug")
            await operator.stop.requested.wait()
            nursery.cancel_scope.cancel()
    assert [each.levelname for each in caplog.records if each.name == "ottla.peers"] == ["ERROR"]


async def test_a_broker_that_hands_over_already_goes_on_with_that(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """As under a service manager that sends SIGTERM to all processes."""
    operator = Operator()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(operator.run)
        await operator.send(signal.SIGTERM)
        await operator.send(ALL_STOP)
        assert operator.stop.requested.is_set() and operator.stop.hands_over and not operator.stop.immediate.is_set()
        with caplog.at_level(logging.INFO, "ottla"):
            logging.getLogger("ottla.cluster").warning("nobody can be asked")
        nursery.cancel_scope.cancel()
    assert caplog.records[-1].levelname == "INFO"


async def test_work_is_done_unless_a_signal_comes(autojump_clock: MockClock) -> None:
    stop = StopSignals()

    async def work() -> None:
        await trio.sleep(5)

    async with trio.open_nursery() as nursery:

        async def interrupt() -> None:
            await trio.sleep(7)
            stop.requested.set()

        nursery.start_soon(interrupt)
        assert await stop.unless(stop.requested, work)
        assert not await stop.unless(stop.requested, work)
        assert trio.current_time() == 7


async def test_an_error_of_the_work_is_not_lost(autojump_clock: MockClock) -> None:
    stop = StopSignals()

    async def fail() -> None:
        raise OSError("no disk")

    with pytest.raises(BaseExceptionGroup) as raised:
        await stop.unless(stop.requested, fail)
    assert isinstance(raised.value.exceptions[0], OSError)
