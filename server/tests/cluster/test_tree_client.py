"""A tree that one process holds and others share over a Unix socket: sessions, deaths of either side, strangers, and limits."""

from __future__ import annotations

import errno
import itertools
import logging
import math
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ottla.replication import system
from ottla.replication.cluster.coordination import (
    AccessDenied,
    Check,
    CoordinationError,
    CoordinationUnavailable,
    Create,
    Delete,
    NodeExists,
    Operation,
    SessionExpired,
    SetData,
    TooLarge,
    WriteRefused,
)
from ottla.server.cluster.coordination import embedded as embedded_module
from ottla.server.cluster.coordination import messages, sockets, tree_client, tree_server
from ottla.server.cluster.coordination.embedded import EmbeddedCoordination
from ottla.server.cluster.coordination.messages import Frame, Frames, Hello
from ottla.server.cluster.coordination.sockets import FramedSocket, HeldElsewhere, connected, listening
from ottla.server.cluster.coordination.tree_client import ServedCoordination
from ottla.server.cluster.coordination.tree_server import TreeBroken, hold_tree, serve_tree
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.server.tests.administered import disk_with
from ottla.server.tests.coordination_promises import Calls

TIMEOUT_S = 60.0  # for what is not about silence
DIRECTORY = Path("/data")


async def at_once(function: Any, *arguments: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return function(*arguments)


class Holder:
    """A process that holds a tree, and members of it."""

    def __init__(self, nursery: trio.Nursery, path: Path, storage: MemoryStorage | None = None) -> None:
        self.nursery = nursery
        self.path = path
        self.storage = storage
        if storage is None:
            self.embedded = EmbeddedCoordination(path.parent, is_served=True)
        else:
            self.embedded = EmbeddedCoordination(DIRECTORY, run_in_thread=at_once, storage=storage, is_served=True)
        self.failure: Exception | None = None
        self._scope = trio.CancelScope()
        self._ended = trio.Event()

    async def open(self) -> None:
        self.embedded.open()
        await self.nursery.start(self._serve)

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        with self._scope:
            try:
                await serve_tree(self.embedded, self.path, task_status=task_status)
            except TreeBroken as broken:
                self.failure = broken
        self.embedded.close()
        self._ended.set()

    async def end(self) -> None:
        self._scope.cancel()
        await self._ended.wait()

    async def member(self, *, last_session: int = 0, timeout_s: float = TIMEOUT_S) -> ServedCoordination:
        member = ServedCoordination(str(self.path), timeout_s=timeout_s, last_session=last_session)
        await self.nursery.start(member.run)
        return member


@pytest.fixture
async def holder(tmp_path: Path) -> AsyncIterator[Holder]:
    async with trio.open_nursery() as nursery:
        holder = Holder(nursery, tmp_path / "socket")
        await holder.open()
        yield holder
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def session(holder: Holder, **how: Any) -> AsyncIterator[ServedCoordination]:
    """A member's session, ended with the context."""
    member = ServedCoordination(str(holder.path), timeout_s=how.pop("timeout_s", TIMEOUT_S), **how)
    async with trio.open_nursery() as nursery:
        await nursery.start(member.run)
        yield member
        nursery.cancel_scope.cancel()


async def until_gone(member: ServedCoordination, path: str) -> None:
    calls = Calls()
    cancel = member.watch_node(path, calls)
    with trio.fail_after(30):
        while (await member.get_all([path]))[0] is not None:
            await calls.more_than(len(calls.paths))
    cancel()


# --- several members --------------------------------------------------------------------------------------------------


async def test_members_share_a_tree_and_hear_of_each_other(holder: Holder) -> None:
    first, second = await holder.member(), await holder.member()
    assert first.session_id != second.session_id
    calls = Calls()
    second.watch_node("/a", calls)
    await first.multi([Create("/a", b"1"), Create("/e", ephemeral=True)])
    assert (await second.get("/a")).data == b"1"
    assert calls.paths == ["/a"]
    assert (await second.get("/e")).owner == first.session_id
    with pytest.raises(NodeExists):
        await second.multi([Create("/e", ephemeral=True)])
    assert (await holder.embedded.get("/e")).owner == first.session_id


async def test_what_a_session_had_is_gone_in_one_step_when_it_ends(holder: Holder) -> None:
    second = await holder.member()
    seen: list[list[str]] = []
    async with session(holder) as first:
        await first.multi([Create("/p"), Create("/e1", ephemeral=True), Create("/e2", ephemeral=True)])
        second.watch_node("/e1", lambda _: seen.append(sorted(holder.embedded._tree.children(""))))
        await second.get_all(["/"])
    await until_gone(second, "/e1")
    assert seen == [["p"]]
    with pytest.raises(SessionExpired):
        await first.get("/p")
    assert first.session_sure_until == -math.inf


async def test_a_watch_may_be_older_than_the_session(holder: Holder) -> None:
    member, calls = ServedCoordination(str(holder.path), timeout_s=TIMEOUT_S), Calls()
    member.watch_node("/a", calls)
    await holder.nursery.start(member.run)
    await member.multi([Create("/a")])
    assert calls.paths == ["/a"]


async def test_multis_of_one_member_are_done_in_their_order(holder: Holder) -> None:
    member = await holder.member()
    await member.multi([Create("/a")])
    async with trio.open_nursery() as nursery:
        for number in range(60):
            nursery.start_soon(member.multi, [SetData("/a", str(number).encode(), number)])
            await wait_all_tasks_blocked()  # else trio begins them in any order
    assert (await member.get("/a"))[:2] == (b"59", 60)


async def test_a_member_gets_answers_of_any_length(holder: Holder) -> None:
    member = await holder.member()
    await member.multi([Create("/t")])
    data = {f"{number:03}": bytes([number]) * 50_000 for number in range(60)}
    for name, content in data.items():
        await member.multi([Create(f"/t/{name}", content)])
    assert {name: node.data for name, node in (await member.children_data("/t")).items()} == data
    nodes = await member.get_all([f"/t/{name}" for name in data] * 20)
    assert [node and node.data for node in nodes] == [*data.values()] * 20


async def test_a_multi_that_is_too_large_is_refused_here(holder: Holder) -> None:
    member = await holder.member()
    with pytest.raises(TooLarge) as refused:
        await member.multi([Create("/a"), Create("/large", b"x" * messages.REQUEST_BYTES_MAX)])
    assert refused.value.path == "/large"
    with pytest.raises(TooLarge):
        await member.multi([Check("/", 0)] * (messages.OPERATIONS_MAX + 1))
    await member.multi([Create("/large", b"x" * (messages.REQUEST_BYTES_MAX - 100))])
    assert await member.children("/") == ["large"]


# --- sessions over restarts of the holder -----------------------------------------------------------------------------


async def test_no_session_and_no_transaction_has_an_id_that_was_there_before(tmp_path: Path) -> None:
    sessions: list[int] = []
    creations: list[int] = []
    for _ in range(3):
        async with trio.open_nursery() as nursery:
            holder = Holder(nursery, tmp_path / "socket")
            await holder.open()
            for _ in range(2):
                member = await holder.member()
                sessions.append(member.session_id)
                (path,) = await member.multi([Create("/n", ephemeral=True, sequential=True)])
                creations.append((await member.get(str(path))).creation_id)
            nursery.cancel_scope.cancel()
    assert sessions == sorted(set(sessions))
    assert creations == sorted(set(creations))
    alone = EmbeddedCoordination(tmp_path)  # the file is that of a broker that is alone, too
    alone.open()
    await alone.multi([Create("/alone")])
    assert (await alone.get("/alone")).creation_id > creations[-1]
    alone.close()


async def test_a_member_that_comes_again_finds_everything(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        holder = Holder(nursery, tmp_path / "socket")
        await holder.open()
        member = await holder.member()
        await member.multi([Create("/a", b"1"), Create("/e", ephemeral=True)])
        ended: list[None] = []
        member.watch_session(lambda: ended.append(None))
        await holder.end()
        with pytest.raises(SessionExpired):
            await member.multi([Create("/b")])
        assert len(ended) == 1
        with pytest.raises(SessionExpired):
            await member.until_available()
        # It tries for as long as it is told to, and is there as soon as somebody serves the tree.
        again = ServedCoordination(str(holder.path), timeout_s=TIMEOUT_S, last_session=member.session_id)
        async with trio.open_nursery() as starting:
            starting.start_soon(nursery.start, again.run)
            await wait_all_tasks_blocked()
            await Holder(nursery, tmp_path / "socket").open()
        assert again.session_id > member.session_id
        assert await again.children("/") == ["a"]
        nursery.cancel_scope.cancel()


async def test_nobody_serves_the_tree(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    member = ServedCoordination(str(path), timeout_s=0.1)
    with pytest.raises(CoordinationUnavailable, match="nobody serves it"):
        await member.run()
    with listening(str(path)):  # and never answers
        member = ServedCoordination(str(path), timeout_s=0.1)
        with pytest.raises(CoordinationUnavailable, match="no answer"):
            await member.run()


async def test_who_waits_without_end_says_for_what(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a worker does whose keeper of the tree hangs: to give up would not help it."""
    caplog.set_level(logging.WARNING)
    autojump_clock.autojump_threshold = 0.05
    monkeypatch.setattr(tree_client, "ATTEMPT_S", 3.0)
    path = tmp_path / "socket"
    member = ServedCoordination(str(path), timeout_s=6, connection_timeout_s=math.inf)
    with trio.fail_after(600):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member.run)
            while "This broker waits until a process serves" not in caplog.text:
                await trio.sleep(3)
            with listening(str(path)):
                while "has not answered for 6 s" not in caplog.text:
                    await trio.sleep(3)
                await trio.sleep(60)
                assert len(caplog.records) == 2 and not member.session_id
                nursery.cancel_scope.cancel()


async def test_the_last_session_is_over_before_the_next_begins(holder: Holder) -> None:
    gate, at_gate = trio.Event(), trio.Event()
    run_in_thread = holder.embedded._run_in_thread

    async def slow(function: Any, *arguments: Any) -> Any:
        at_gate.set()
        await gate.wait()
        return await run_in_thread(function, *arguments)

    first = await holder.member()
    await first.multi([Create("/e", ephemeral=True)])
    holder.embedded._run_in_thread = slow
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_in_vain, first, Create("/written"))
        await at_gate.wait()
        nursery.start_soon(_in_vain, first, Create("/queued"))
        await wait_all_tasks_blocked()
        next_one = ServedCoordination(str(holder.path), timeout_s=TIMEOUT_S, last_session=first.session_id)
        nursery.start_soon(holder.nursery.start, next_one.run)
        with trio.move_on_after(0.05):
            while not next_one.session_id:
                await next_one._changed.wait()
        assert next_one.session_id == 0  # while something of the last one is being written
        gate.set()
    # Whatever was to be done of the last session has been done, and nothing comes later.
    before = sorted(await next_one.children("/"))
    assert "written" in before
    assert "e" not in before
    await next_one.multi([Create("/x")])
    assert sorted(await next_one.children("/")) == sorted([*before, "x"])


async def test_nothing_of_a_session_is_done_after_its_end(holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_server, "REQUESTS_MAX", 2)
    gate, at_gate = trio.Event(), trio.Event()
    run_in_thread = holder.embedded._run_in_thread

    async def slow(function: Any, *arguments: Any) -> Any:
        at_gate.set()
        await gate.wait()
        return await run_in_thread(function, *arguments)

    first = Raw(holder.path)
    last_session = await first.greeted(60_000)
    holder.embedded._run_in_thread = slow
    # All of them are received at once, but the third one and those after it have to wait.
    wanted = [Create("/a"), Create("/b"), Create("/e", ephemeral=True), Create("/c"), Create("/d"), Create("/f")]
    multis = (messages.operations([each]) for each in wanted)
    await first.send(b"".join(messages.frame(messages.MULTI, number, each) for number, each in enumerate(multis)))
    await at_gate.wait()
    await wait_all_tasks_blocked()
    async with trio.open_nursery() as nursery:
        next_one = ServedCoordination(str(holder.path), timeout_s=TIMEOUT_S, last_session=last_session)
        nursery.start_soon(holder.nursery.start, next_one.run)
        await first.until_hung_up()
        gate.set()
    await next_one.multi([Create("/x")])
    assert sorted(await next_one.children("/")) == ["a", "b", "x"]


async def _in_vain(member: ServedCoordination, operation: Operation) -> None:
    with pytest.raises(SessionExpired):
        await member.multi([operation])


async def test_a_member_knows_at_once_that_its_holder_is_gone(holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[FramedSocket] = []
    monkeypatch.setattr(tree_server, "FramedSocket", lambda *a, **k: made.append(FramedSocket(*a, **k)) or made[-1])
    monkeypatch.setattr(tree_client, "LOOK_S", 0.0)
    member = await holder.member()
    assert member.session_sure_until > member.session_now()
    made[0]._sock.close()  # as the system does it when the process dies; this task has not let the loop run since
    assert member.session_sure_until == -math.inf


# --- silence ----------------------------------------------------------------------------------------------------------


class Raw:
    """A member that says what a test wants it to."""

    def __init__(self, path: Path) -> None:
        self.sock = connected(str(path))
        self._frames = Frames(messages.ANSWER_BYTES_MAX)

    async def send(self, content: bytes) -> None:
        while content:
            await trio.lowlevel.wait_writable(self.sock)
            content = content[self.sock.send(content) :]

    async def receive(self) -> list[Frame] | None:
        """None at the end."""
        await trio.lowlevel.wait_readable(self.sock)
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            return None
        return list(self._frames.feed(data)) if data else None

    async def greeted(self, timeout_ms: int) -> int:
        await self.send(messages.frame(messages.HELLO, 1, messages.hello(Hello(timeout_ms, 0))))
        frames = await self.receive()
        assert frames is not None
        return messages.read_greeted(frames[0].body).session_id

    async def until_hung_up(self) -> None:
        with trio.fail_after(30):
            while await self.receive() is not None:
                pass
        self.sock.close()


async def test_a_member_that_falls_silent_loses_its_session(holder: Holder, caplog: pytest.LogCaptureFixture) -> None:
    other, silent = await holder.member(), Raw(holder.path)
    await silent.greeted(200)
    await silent.send(messages.frame(messages.MULTI, 2, messages.operations([Create("/e", ephemeral=True)])))
    await silent.receive()
    assert await other.children("/") == ["e"]
    await until_gone(other, "/e")
    assert "nothing was heard for 200 ms" in caplog.text
    await silent.until_hung_up()


async def test_a_probe_does_not_wait_for_the_end_of_a_long_answer(holder: Holder) -> None:
    member, other = await holder.member(), Raw(holder.path)
    await member.multi([Create("/many")])
    for number in range(50):
        await member.multi([Create(f"/many/{number}", b"x" * 100_000)])
    await other.greeted(60_000)
    await other.send(messages.frame(messages.CHILDREN_DATA, 2, messages.texts("/many")))
    await other.send(messages.frame(messages.PROBE, 3))
    heard: list[tuple[int, int]] = []
    while (messages.DONE, 2) not in heard:
        frames = await other.receive()
        assert frames is not None
        heard += [(frame.kind, frame.number) for frame in frames]
    assert len(heard) == 51
    assert (messages.DONE, 3) in heard[:40]
    other.sock.close()


async def test_no_time_runs_while_the_holder_is_away(tmp_path: Path, mock_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        holder = Holder(nursery, tmp_path / "socket", disk_with(DIRECTORY))
        await holder.open()
        silent = Raw(holder.path)
        session_id = await silent.greeted(6_000)
        await wait_all_tasks_blocked(0.01)
        for _ in range(3):
            mock_clock.jump(1000)  # as if the process had been stopped
            await wait_all_tasks_blocked(0.01)
        tree = holder.embedded._tree
        await silent.send(messages.frame(messages.MULTI, 2, messages.operations([Create("/e", ephemeral=True)])))
        await silent.receive()
        assert tree.get("/e").owner == session_id
        for _ in range(13):  # half a second each
            mock_clock.jump(0.5)
            await wait_all_tasks_blocked(0.01)
        while tree.children(""):
            await wait_all_tasks_blocked(0.01)
        silent.sock.close()
        nursery.cancel_scope.cancel()


async def test_a_member_that_receives_nothing_is_given_up(holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[FramedSocket] = []
    monkeypatch.setattr(tree_server, "FramedSocket", lambda *a, **k: made.append(FramedSocket(*a, **k)) or made[-1])
    member, deaf = await holder.member(), Raw(holder.path)
    await member.multi([Create("/large", b"x" * 900_000)])
    await deaf.greeted(400)
    question = messages.frame(messages.NODES, 2, messages.paths(["/large"]))
    most = 0

    async def ask() -> None:
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while True:
                await deaf.send(question * 100)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            while not made[1].is_closed:
                most = max(most, made[1]._waiting_bytes)
                await member.get("/")  # others are served
    assert 0 < most <= sockets.ROOM_BYTES + 2 * 900_000
    deaf.sock.close()


async def test_what_a_member_asks_for_does_not_end_its_session(holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "WAITING_BYTES_MAX", 2_000_000)
    member = await holder.member()
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(member.multi, [Create(f"/{number}", b"x" * 900_000)])
    assert len(await member.children("/")) == 10


async def test_questions_that_nobody_waits_for_keep_no_probe_from_being_answered(
    holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_client, "REQUESTS_MAX", 3)
    monkeypatch.setattr(tree_server, "REQUESTS_MAX", 4)
    gate = trio.Event()
    run_in_thread = holder.embedded._run_in_thread

    async def slow(function: Any, *arguments: Any) -> Any:
        await gate.wait()
        return await run_in_thread(function, *arguments)

    member = await holder.member()
    holder.embedded._run_in_thread = slow
    for number in range(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member.multi, [Create(f"/{number}")])
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    member._probe()
    try:
        with trio.fail_after(30):
            while member._probe_open:
                await member._changed.wait()
    finally:
        gate.set()
    await member.multi([Create("/x")])
    assert len(await member.children("/")) == 4


async def test_notices_that_nobody_receives_are_bounded(holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "WAITING_BYTES_MAX", 20_000)
    member, deaf = await holder.member(), Raw(holder.path)
    await deaf.greeted(60_000)
    await member.multi([Create(f"/{number}") for number in range(400)])
    for number in range(400):
        await deaf.send(messages.frame(messages.WATCH, 2, messages.watched(("node", f"/{number}"))))
    await deaf.send(messages.frame(messages.PROBE, 3))
    await deaf.receive()
    deaf.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    with trio.fail_after(30):
        while len(holder.embedded._watches._listeners):
            await member.multi([SetData(f"/{number}", b"") for number in range(400)])
    deaf.sock.close()


# --- a full disk, a broken one, and deaths ----------------------------------------------------------------------------


async def test_want_of_room_reaches_the_members(tmp_path: Path, autojump_clock: MockClock) -> None:
    autojump_clock.autojump_threshold = 0.05
    async with trio.open_nursery() as nursery:
        storage = disk_with(DIRECTORY)
        holder = Holder(nursery, tmp_path / "socket", storage)
        await holder.open()
        member, other = await holder.member(), await holder.member()
        await other.multi([Create("/e", ephemeral=True)])
        storage.space_left = 0
        with pytest.raises(WriteRefused):
            await member.multi([Create("/a")])
        before = trio.current_time()
        await member.until_available()
        assert trio.current_time() - before >= 1
        # Sessions begin and end all the same, because nothing has to be written for them.
        other._end("the test wants it")
        await until_gone(member, "/e")
        third = await holder.member(last_session=other.session_id)
        await third.multi([Create("/e", ephemeral=True)])
        storage.space_left = None
        await member.multi([Create("/a")])
        before = trio.current_time()
        await member.until_available()
        assert trio.current_time() == before
        nursery.cancel_scope.cancel()


async def test_a_full_disk_keeps_a_holder_from_starting() -> None:
    storage = disk_with(DIRECTORY)
    first = EmbeddedCoordination(DIRECTORY, storage=storage, is_served=True)
    first.open()
    await first.multi([Create("/a")])
    first.close()
    storage.space_left = 0  # so that it cannot be noted that another incarnation begins
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        EmbeddedCoordination(DIRECTORY, storage=storage, is_served=True).open()


async def test_a_broken_journal_ends_the_holder_and_all_sessions(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        storage = disk_with(DIRECTORY)
        holder = Holder(nursery, tmp_path / "socket", storage)
        await holder.open()
        member = await holder.member()
        storage.fail = lambda operation, path: OSError(errno.EIO, "broken") if operation == "sync" else None
        with pytest.raises((CoordinationUnavailable, SessionExpired)):
            await member.multi([Create("/a")])
        with trio.fail_after(30), pytest.raises(SessionExpired):
            while True:
                await member.until_available()
        await holder._ended.wait()
        assert isinstance(holder.failure, TreeBroken)
        assert "coordination.journal cannot be written" in str(holder.failure)
        nursery.cancel_scope.cancel()


CONVERSATION: tuple[tuple[Operation, ...], ...] = (
    (Create("/t"), Create("/t/a", b"1")),
    (SetData("/t/a", b"2"), Create("/t/b", b"3" * 300), Create("/e", ephemeral=True)),
    (Check("/t", 0), Delete("/t/b"), Create("/t/c")),
    *((SetData("/t/c", str(number).encode()),) for number in range(5)),
)


def after(multis: int) -> dict[str, bytes]:
    """What the tree holds after so many multis of the conversation."""
    tree: dict[str, bytes] = {}
    for operation in itertools.chain(*CONVERSATION[:multis]):
        match operation:
            case Create(path, data, ephemeral=False) | SetData(path, data):
                tree[path] = data
            case Delete(path):
                del tree[path]
    return tree


async def converse(member: ServedCoordination) -> int:
    """How many multis were acknowledged."""
    for number, operations in enumerate(CONVERSATION):
        try:
            await member.multi(operations)
        except (SessionExpired, CoordinationUnavailable):
            return number
    return len(CONVERSATION)


class DiesAt:
    """The holder dies just before this call to the disk: nobody hears of it any more, and the disk stays as it is then."""

    def __init__(self, number: int, storage: MemoryStorage, connections: list[FramedSocket]) -> None:
        self.calls = 0
        self.left: MemoryStorage | None = None
        self.operation = ""
        self._number = number
        self._storage = storage
        self._connections = connections

    def __call__(self, operation: str, path: str) -> OSError | None:
        self.calls += 1
        if self.calls == self._number:
            self.operation, self.left = operation, self._storage.copy()
            for connection in self._connections:
                connection.close()
        return None if self.left is None else OSError(errno.EINTR, "dead", path)


@pytest.mark.parametrize("power_cut", [False, True])
async def test_the_holder_dies_at_every_step_of_a_multi(
    power_cut: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_module, "GARBAGE_MIN", 6)
    connections: list[FramedSocket] = []
    monkeypatch.setattr(
        tree_server, "FramedSocket", lambda *a, **k: connections.append(FramedSocket(*a, **k)) or connections[-1]
    )
    operations: set[str] = set()
    for number in itertools.count(1):
        connections.clear()
        async with trio.open_nursery() as nursery:
            storage = disk_with(DIRECTORY)
            holder = Holder(nursery, tmp_path / "socket", storage)
            await holder.open()
            member = await holder.member()
            storage.fail = death = DiesAt(number, storage, connections)
            acknowledged = await converse(member)
            await holder.end()
            if death.left is None:
                nursery.cancel_scope.cancel()
                break
            operations.add(death.operation)
            if power_cut:
                death.left.crash(Random(number))
            else:
                death.left.kill()
            following = Holder(nursery, tmp_path / "socket", death.left)
            await following.open()
            again = await following.member(last_session=member.session_id)
            found = {path: node.data for path, node in following.embedded._tree.nodes.items() if path}
            # What was acknowledged is there, what was under way is there whole or not at all, and no session's nodes are.
            assert found in (after(acknowledged), after(acknowledged + 1)), number
            await again.multi([Create("/e", ephemeral=True), Create("/at-last")])
            nursery.cancel_scope.cancel()
    assert {"append", "sync", "rename", "open"} <= operations


class FailOnce:
    """Fails the call of this number."""

    def __init__(self, number: int) -> None:
        self.calls = 0
        self._number = number

    def __call__(self, operation: str, path: str) -> OSError | None:
        self.calls += 1
        return OSError(errno.ENOSPC, "as the test wants it", path) if self.calls == self._number else None


async def test_every_call_to_the_disk_fails_once_for_a_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_module, "GARBAGE_MIN", 6)
    for number in itertools.count(1):
        async with trio.open_nursery() as nursery:
            storage = disk_with(DIRECTORY)
            holder = Holder(nursery, tmp_path / "socket", storage)
            await holder.open()
            member = await holder.member()
            storage.fail = fails = FailOnce(number)
            done = 0
            refused: list[CoordinationError] = []
            while done < len(CONVERSATION):
                try:
                    await member.multi(CONVERSATION[done])
                except WriteRefused as error:
                    refused.append(error)
                except (CoordinationUnavailable, SessionExpired):  # a sync has failed: nobody knows
                    break
                else:
                    done += 1
            storage.fail = None
            is_broken = holder.embedded._journal.failure is not None
            assert is_broken == (done < len(CONVERSATION))
            assert len(refused) <= 1
            await holder.end()
            again = EmbeddedCoordination(DIRECTORY, run_in_thread=at_once, storage=storage)
            again.open()
            found = {path: node.data for path, node in again._tree.nodes.items() if path}
            assert found in (after(done), after(done + is_broken))
            nursery.cancel_scope.cancel()
        if fails.calls < number:
            break


# --- strangers --------------------------------------------------------------------------------------------------------


async def test_only_their_user_may_use_the_socket(
    holder: Holder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert stat.S_IMODE(holder.path.stat().st_mode) == 0o600
    monkeypatch.setattr(system, "peer_user", lambda sock: os.geteuid() + 1)
    with pytest.raises(AccessDenied, match="served by another user"):
        await ServedCoordination(str(holder.path), timeout_s=TIMEOUT_S).run()
    stranger = Raw(holder.path)
    await stranger.until_hung_up()
    assert "another user was turned away" in caplog.text
    monkeypatch.setattr(system, "peer_user", lambda sock: None)  # the system does not tell: the file's rights decide
    assert await (await holder.member()).children("/") == []


async def test_the_system_tells_who_is_at_the_other_end() -> None:
    first, second = socket.socketpair(socket.AF_UNIX)
    with first, second:
        assert system.peer_user(first) == (None if system.IS_PORTABLE and sys.platform == "linux" else os.geteuid())


GARBAGE = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    messages.frame(messages.PROBE, 1),  # before HELLO
    messages.frame(messages.HELLO, 1),
    messages.frame(messages.HELLO, 1, messages.hello(Hello(0, 0))),
)
GARBAGE_LATER = (
    b"\0\0\0\0",
    messages.frame(99, 2),
    messages.frame(messages.HELLO, 2, messages.hello(Hello(1000, 0))),
    messages.frame(messages.MULTI, 2, b"\0\0\0\1"),
    messages.frame(messages.NODES, 2, b"\xff\xff\xff\xff"),
    messages.frame(messages.CHILDREN, 2, messages.texts("no/path")),
    messages.frame(messages.WATCH, 2, b"\7" + messages.texts("/")),
)


@pytest.mark.parametrize("garbage", [(each, False) for each in GARBAGE] + [(each, True) for each in GARBAGE_LATER])
async def test_whoever_speaks_otherwise_is_hung_up_on(holder: Holder, garbage: tuple[bytes, bool]) -> None:
    content, is_greeted = garbage
    member, other = await holder.member(), Raw(holder.path)
    if is_greeted:
        await other.greeted(60_000)
    await other.send(content)
    await other.until_hung_up()
    assert await member.multi([Create("/a")]) == ["/a"]


async def test_half_a_message_costs_nobody_else_anything(holder: Holder) -> None:
    member, other = await holder.member(), Raw(holder.path)
    await other.send(b"\0\0")
    assert await member.multi([Create("/a")]) == ["/a"]
    other.sock.close()
    assert await member.multi([Create("/b")]) == ["/b"]


async def test_a_connection_without_a_hello_is_not_kept(holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_server, "HELLO_S", 0.1)
    await Raw(holder.path).until_hung_up()


async def test_members_and_watches_are_bounded(
    holder: Holder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tree_server, "MEMBERS_MAX", 1)
    monkeypatch.setattr(tree_server, "WATCHES_MAX", 3)
    member = await holder.member()
    await Raw(holder.path).until_hung_up()
    for name in "abc":
        member.watch_node(f"/{name}", lambda _: None)()
        member.watch_node(f"/{name}", lambda _: None)
    await member.get("/")
    member.watch_children("/", lambda _: None)
    with trio.fail_after(30), pytest.raises(SessionExpired):
        while True:
            await member.get("/")
    await wait_all_tasks_blocked()
    assert "more than 3 watches" in caplog.text


async def test_the_memory_of_all_watches_is_bounded(
    holder: Holder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    long = "/" + "x" * 500_000
    monkeypatch.setattr(tree_server, "WATCHES_BYTES_MAX", 2 * (tree_server.WATCH_BYTES + 2 * len(long)))
    first = await holder.member()
    for _ in range(3):  # what is not watched any more does not count, nor what is watched twice
        first.watch_node(long, lambda _: None)()
    first.watch_node(long, lambda _: None)
    async with session(holder) as second:
        second.watch_node(long, lambda _: None)
        await second.get("/")
        async with session(holder) as third:
            third.watch_node("/a", lambda _: None)
            with trio.fail_after(30), pytest.raises(SessionExpired):
                while True:
                    await third.get("/")
    assert "all watches would take more than" in caplog.text
    # Those of a member that is gone do not count either.
    async with session(holder, last_session=second.session_id) as fourth:
        fourth.watch_node(long, lambda _: None)
        await fourth.get("/")
    await first.get("/")


# --- the socket -------------------------------------------------------------------------------------------------------


async def test_the_socket_of_a_dead_holder_is_replaced_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))  # and nobody unlinks it
    async with trio.open_nursery() as nursery:
        await nursery.start(hold_tree, tmp_path, path)
        with pytest.raises(HeldElsewhere, match="another process serves"), listening(str(path)):
            pass
        member = ServedCoordination(str(path), timeout_s=TIMEOUT_S)
        await nursery.start(member.run)
        assert await member.children("/") == []
        nursery.cancel_scope.cancel()
    assert not path.exists()


async def test_a_second_holder_leaves_the_journal_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with trio.open_nursery() as nursery:
        await nursery.start(hold_tree, tmp_path, path)
        with pytest.raises(HeldElsewhere, match="another process serves"):
            await hold_tree(tmp_path, path)
        member = ServedCoordination(str(path), timeout_s=TIMEOUT_S)
        await nursery.start(member.run)
        await member.multi([Create("/acknowledged")])
        nursery.cancel_scope.cancel()
    again = EmbeddedCoordination(tmp_path)
    again.open()
    assert await again.children("/") == ["acknowledged"]


@pytest.mark.skipif(not system.IS_LINUX, reason="only Linux has short paths of open folders")
async def test_the_name_of_the_socket_may_be_long(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 100) / ("b" * 100)
    folder.mkdir(parents=True)
    async with trio.open_nursery() as nursery:
        await nursery.start(hold_tree, folder, folder / tree_server.SOCKET_NAME)
        member = ServedCoordination(str(folder / tree_server.SOCKET_NAME), timeout_s=TIMEOUT_S)
        await nursery.start(member.run)
        assert await member.multi([Create("/a")]) == ["/a"]
        nursery.cancel_scope.cancel()


async def test_a_stopped_holder_is_given_up_and_comes_back(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    autojump_clock.autojump_threshold = 0.05
    path = tmp_path / "socket"
    with listening(str(path)) as listener:
        member = ServedCoordination(str(path), timeout_s=6)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member.run)
            await trio.lowlevel.wait_readable(listener)
            sock, _ = listener.accept()
            sock.setblocking(False)
            with sock:
                holder = FramedSocket(sock, frame_bytes_max=1000)
                frames = await holder.receive()
                assert frames is not None
                (hello,) = frames
                holder.send(
                    messages.frame(messages.GREETED, hello.number, messages.greeted(messages.Greeted(7, 6_000)))
                )
                # No probe is ever answered. What rests on the session ends first, and then the session.
                told: list[tuple[float, bool]] = []
                begun = trio.current_time()
                member.watch_session(lambda: told.append((trio.current_time() - begun, member._ended)))
                with trio.fail_after(60):
                    while not member._ended:
                        await member._changed.wait()
                assert all(when < 6 for when, _ in told)
                assert told[-1][1]
    assert "does not answer" in caplog.text


def test_every_function_of_the_conversation_is_checked() -> None:
    assert after(0) == {}
    assert after(len(CONVERSATION)) == {"/t": b"", "/t/a": b"2", "/t/c": b"4"}
