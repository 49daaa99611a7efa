"""What happens to a session with ZooKeeper when the way to it, or ZooKeeper itself, fails."""

import contextlib
import gc
import math
import re
import signal
from collections.abc import Callable, Sequence

import pytest
import trio
from compat_tests.apache.brokers import ZooKeeper, free_port
from compat_tests.coordination.conftest import complaint
from compat_tests.coordination.proxy import Proxy
from compat_tests.support.brokers import suspend

from ottla.replication.cluster.coordination import (
    Check,
    CoordinationError,
    CoordinationUnavailable,
    Create,
    Delete,
    SessionExpired,
    SetData,
    TooLarge,
)
from ottla.server.cluster.coordination.zookeeper import READS_IN_FLIGHT, REQUEST_BYTES_MAX, ZooKeeperCoordination
from ottla.server.config.coordination_config import ZooKeeperConfig
from ottla.server.tests.coordination_promises import Calls, settled

SHORT_MS = (
    2_500  # of sessions: five ticks of the server's clock, which a busy machine does not keep from being made sure
)
LONG_MS = 60_000  # of sessions: a busy disk may take longer for a write than a shorter one waits for the answer
SESSIONS_MAX = 5


class SessionCalls(Calls):
    def watch(self, coordination: ZooKeeperCoordination) -> "SessionCalls":
        coordination.watch_session(lambda: self(""))
        return self


async def until(condition: Callable[[], bool], calls: Calls) -> None:
    """Wait, from call to call, until a condition holds."""
    with trio.fail_after(60):
        while not condition():
            await calls.more_than(len(calls.paths))


async def unavailable(coordination: ZooKeeperCoordination) -> None:
    """Return when calls fail because ZooKeeper cannot be reached."""
    with trio.fail_after(60):
        while True:
            try:
                await coordination.get("/")
            except CoordinationUnavailable:
                return


def is_sure(coordination: ZooKeeperCoordination) -> bool:
    return trio.current_time() < coordination.session_sure_until


async def test_a_session_ends_at_once_when_it_is_closed(
    zookeeper: ZooKeeper, root: str, open_session: Callable
) -> None:
    other = await open_session(zookeeper.address + root)
    calls = Calls()
    other.watch_node("/e", calls)
    await settled(other)
    closing = ZooKeeperCoordination(ZooKeeperConfig(zookeeper_connect=zookeeper.address + root))
    async with trio.open_nursery() as nursery:
        await nursery.start(closing.run)
        await closing.multi([Create("/e", ephemeral=True)])
        await calls.more_than(0)
        await settled(other)  # or else the watch, being set again, may be told of neither
        nursery.cancel_scope.cancel()
    await calls.more_than(1)
    assert await other.children("/") == []
    for call in (closing.get("/"), closing.get_all(["/"]), closing.multi([Create("/x")]), closing.until_available()):
        with pytest.raises(SessionExpired):
            await call


async def test_a_broker_knows_that_its_session_may_have_ended_before_it_has(
    zookeeper: ZooKeeper, proxy: Proxy, root: str, open_session: Callable
) -> None:
    other = await open_session(zookeeper.address + root)
    coordination = await open_session(proxy.address + root, SHORT_MS)
    session_calls, gone = SessionCalls().watch(coordination), Calls()
    await coordination.multi([Create("/e", ephemeral=True)])
    first = await other.get("/e")
    was_sure_when_gone: list[bool] = []
    other.watch_node("/e", lambda path: was_sure_when_gone.append(is_sure(coordination)))
    other.watch_node("/e", gone)
    await settled(other)

    proxy.cut()
    await gone.more_than(0)
    assert was_sure_when_gone == [False]
    assert session_calls.paths
    with pytest.raises(CoordinationUnavailable):
        await coordination.get("/")

    proxy.mend()  # and ZooKeeper says that the session is no more
    await until(lambda: coordination.session_sure_until == -math.inf, session_calls)
    for call in (coordination.get("/"), coordination.multi([]), coordination.until_available()):
        with pytest.raises(SessionExpired):
            await call
    assert await other.children("/") == []

    again = await open_session(proxy.address + root, SHORT_MS)
    await again.multi([Create("/e", ephemeral=True)])
    second = await again.get("/e")
    assert second.creation_id > first.creation_id
    assert (first.owner, second.owner) == (coordination.session_id, again.session_id)
    assert first.owner != second.owner


async def test_a_session_outlives_its_connection_and_watches_tell_what_was_missed(
    zookeeper: ZooKeeper, proxy: Proxy, root: str, open_session: Callable
) -> None:
    other = await open_session(zookeeper.address + root)
    coordination = await open_session(proxy.address + root)
    await coordination.multi([Create("/e", ephemeral=True), Create("/changed"), Create("/quiet"), Create("/parent")])
    session_id = coordination.session_id
    changed, made, quiet, parent = Calls(), Calls(), Calls(), Calls()
    coordination.watch_node("/changed", changed)
    coordination.watch_node("/made", made)
    coordination.watch_children("/parent", parent)
    for path in ("/quiet", "/never"):
        coordination.watch_node(path, quiet)
        coordination.watch_children(path, quiet)
    for _ in range(2):  # until the watches are known to be set: of what is not there, with a second request
        await settled(coordination)

    proxy.cut()
    await unavailable(coordination)
    await other.multi([SetData("/changed", b"x"), Create("/made"), Create("/parent/child")])
    proxy.mend()
    for calls in (changed, made, parent):
        await calls.more_than(0)
    assert (await coordination.get("/changed")).data == b"x"
    assert (await coordination.get("/e")).owner == session_id == coordination.session_id
    assert (changed.paths, made.paths, parent.paths, quiet.paths) == (["/changed"], ["/made"], ["/parent"], [])

    await other.multi([SetData("/changed", b"y"), Create("/never")])  # and the watches are set again
    await changed.more_than(1)
    await quiet.more_than(0)


async def test_nothing_is_sent_later_that_was_asked_for_while_cut_off(
    zookeeper: ZooKeeper, proxy: Proxy, root: str, open_session: Callable
) -> None:
    coordination = await open_session(proxy.address + root)
    proxy.cut()
    await unavailable(coordination)
    for operation in (Create("/late"), Create("/later", ephemeral=True)):
        with pytest.raises(CoordinationUnavailable):
            await coordination.multi([operation])
    proxy.mend()
    await coordination.until_available()
    assert await coordination.children("/") == []


async def test_a_write_whose_answer_is_lost_is_told_by_its_owner(
    zookeeper: ZooKeeper, proxy: Proxy, root: str, open_session: Callable
) -> None:
    other = await open_session(zookeeper.address + root)
    coordination = await open_session(proxy.address + root, LONG_MS)
    calls = Calls()
    other.watch_node("/e", calls)
    await settled(other)
    proxy.loses_answers = True
    outcomes: list[CoordinationError] = []

    async def write() -> None:
        with pytest.raises(CoordinationUnavailable) as failure:
            await coordination.multi([Create("/e", ephemeral=True)])
        outcomes.append(failure.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await calls.more_than(0)  # it has happened
        assert not outcomes
        proxy.break_connections()
    proxy.mend()
    await coordination.until_available()
    assert (await coordination.get("/e")).owner == coordination.session_id


async def test_a_connection_without_answers_is_given_up_within_the_session(
    zookeeper: ZooKeeper,
    proxy: Proxy,
    root: str,
    nursery: trio.Nursery,
    open_session: Callable,
    caplog: pytest.LogCaptureFixture,
) -> None:
    second = Proxy(zookeeper.port)
    await nursery.start(second.run)
    second.cut()
    coordination = await open_session(f"{proxy.address},{second.address}{root}", 20_000)
    await coordination.multi([Create("/e", ephemeral=True)])
    session_id = coordination.session_id
    second.mend()
    proxy.loses_answers = True  # new connections, too, are taken and then not answered
    await unavailable(coordination)
    node = None
    with trio.fail_after(60):
        while node is None:
            with contextlib.suppress(CoordinationUnavailable):
                await coordination.until_available()
                node = await coordination.get("/e")
    assert node.owner == session_id == coordination.session_id
    assert "ZooKeeper does not answer" in caplog.text


async def test_a_stopped_zookeeper_fails_calls_and_makes_the_session_unsure(
    start_zookeeper: Callable, root: str, open_session: Callable
) -> None:
    server = start_zookeeper()
    coordination = await open_session(server.address + root, 2_000)
    calls = SessionCalls().watch(coordination)
    suspend(server.process)
    try:
        with pytest.raises(CoordinationUnavailable), trio.fail_after(60):
            await coordination.get("/")
        await until(lambda: not is_sure(coordination), calls)
    finally:
        server.process.send_signal(signal.SIGCONT)
    # Whether it finds the session alive is up to the server's clock.
    await until(lambda: is_sure(coordination) or coordination.session_sure_until < 0, calls)


async def test_a_restart_of_zookeeper_is_survived(start_zookeeper: Callable, root: str, open_session: Callable) -> None:
    server = start_zookeeper()
    coordination = await open_session(server.address + root, 10_000)
    await coordination.multi([Create("/e", b"1", ephemeral=True), Create("/p")])
    calls, session_id = Calls(), coordination.session_id
    coordination.watch_node("/p", calls)
    server.stop()
    await trio.to_thread.run_sync(server.start)
    await coordination.until_available()
    assert (await coordination.get("/e")).owner == session_id == coordination.session_id
    await coordination.multi([SetData("/p", b"x", 0)])
    await calls.more_than(0)


async def test_the_server_decides_on_the_session_timeout(
    start_zookeeper: Callable, root: str, open_session: Callable
) -> None:
    server = start_zookeeper({"maxSessionTimeout": "3000"})
    coordination = await open_session(server.address + root, 8_000)
    assert coordination.session_sure_until - trio.current_time() < 3


async def test_the_session_is_made_sure_again_and_again(
    zookeeper: ZooKeeper, root: str, open_session: Callable
) -> None:
    # A session may end while the machine is away, and another one is tried. One that nobody makes sure ends each time.
    with trio.fail_after(240):
        for _ in range(SESSIONS_MAX):
            coordination = await open_session(zookeeper.address + root, SHORT_MS)
            first = coordination.session_sure_until
            while first <= coordination.session_sure_until < first + 2 * SHORT_MS / 1000:
                await trio.sleep_until(coordination.session_sure_until - SHORT_MS / 3000)
            if is_sure(coordination):
                break
    assert coordination.session_sure_until >= first + 2 * SHORT_MS / 1000


async def test_servers_that_are_down_are_passed_over(zookeeper: ZooKeeper, root: str, open_session: Callable) -> None:
    coordination = await open_session(f"127.0.0.1:{free_port()},{zookeeper.address}{root}")
    assert await coordination.children("/") == []


async def test_an_absent_zookeeper_is_told_in_one_line() -> None:
    connect = f"127.0.0.1:{free_port()}/kafka"
    assert re.search(f"{connect}: .*refused", await complaint("refused", zookeeper_connect=connect))


async def test_a_silent_server_is_told_and_left(proxy: Proxy, root: str) -> None:
    proxy.loses_answers = True
    assert "no answer" in await complaint("no answer", zookeeper_connect=proxy.address + root)


async def test_the_root_is_made_and_shared(zookeeper: ZooKeeper, root: str, open_session: Callable) -> None:
    whole = await open_session(zookeeper.address)
    sessions: list[ZooKeeperCoordination] = []

    async def open_one() -> None:
        sessions.append(await open_session(f"{zookeeper.address}{root}/a/b"))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(open_one)
    calls = Calls()
    sessions[0].watch_children("/", calls)
    await settled(sessions[0])
    assert await sessions[1].multi([Create("/x", b"1"), Create("/x/y_", sequential=True)]) == ["/x", "/x/y_0000000000"]
    await calls.more_than(0)
    assert calls.paths == [""]
    assert (await whole.get(f"{root}/a/b/x")).data == b"1"


async def test_what_zookeeper_would_hang_up_on_is_not_sent(coordination: ZooKeeperCoordination) -> None:
    await coordination.multi([Create("/a")])
    with pytest.raises(TooLarge) as failure:
        await coordination.multi([Check("/a", 0), SetData("/a", b"x" * REQUEST_BYTES_MAX)])
    assert failure.value.path.endswith("/a")
    largest = REQUEST_BYTES_MAX - 200
    await coordination.multi([SetData("/a", b"x" * largest)])
    assert len((await coordination.get("/a")).data) == largest


async def test_readers_share_what_is_asked_at_a_time(
    zookeeper: ZooKeeper, root: str, open_session: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await open_session(zookeeper.address + root)
    await session.multi([Create(f"/{number}", b"%d" % number) for number in range(300)])
    asked, most = 0, 0
    ask = session._ask

    async def counted(requests: Sequence[Callable]) -> list:
        nonlocal asked, most
        asked += len(requests)
        most = max(most, asked)
        try:
            return await ask(requests)
        finally:
            asked -= len(requests)

    monkeypatch.setattr(session, "_ask", counted)
    found = []

    async def read() -> None:
        nodes = await session.get_all([f"/{number}" for number in range(310)])
        found.append([None if node is None else int(node.data) for node in nodes])

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(read)
    assert found == [[*range(300), *[None] * 10]] * 10
    assert most == READS_IN_FLIGHT


async def test_what_was_asked_and_watched_is_held_by_nobody(
    zookeeper: ZooKeeper, root: str, open_session: Callable
) -> None:
    """What holds each other stays for ever: a broker makes no full collection of garbage."""
    session = await open_session(zookeeper.address + root)
    calls = Calls()

    async def use_it() -> None:
        await session.multi([Create("/a"), Create("/b")])
        await session.get_all(["/a", "/b", "/none"] * 100)
        cancel = [session.watch_node(path, calls) for path in ("/a", "/b")]
        for each in cancel:
            each()
        await session.multi([Delete("/a"), Delete("/b")])
        await settled(session)

    await use_it()
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            await use_it()
        assert gc.collect() < 300
    finally:
        gc.enable()
