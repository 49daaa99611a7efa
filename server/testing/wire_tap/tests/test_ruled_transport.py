"""Rules on real sockets: served inside the event loop's wait and by tasks, with late answers by the loop's clock."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from ottla.server.network.readiness import WAIT_READABLE, WAIT_WRITABLE, Readiness
from ottla.server.testing.wire_tap import ruled_conversation
from ottla.server.testing.wire_tap.tests.wire_talk import answer, produce, produced, request
from ottla.server.testing.wire_tap.wire import Wire
from ottla.wire.messages.classic_group import HeartbeatRequest, HeartbeatResponse

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
ASKED = request(HEARTBEAT, 4, 1)
TOLD = answer(HeartbeatResponse(error_code=0), 4, 1)
REFUSED = answer(HeartbeatResponse(error_code=25), 4, 1)
FAR_S = 60


class Broker:
    """A connection served as a broker serves it: each heartbeat is answered, in one send."""

    def __init__(self, wire: Wire, sock: socket.socket) -> None:
        self.transport = wire.acceptor(0)(sock)
        self.received = bytearray()
        self.unsent = bytearray()

    def step(self) -> Any:
        buffer = bytearray(1000)
        if not self.unsent:
            try:
                count = self.transport.receive_into(buffer)
            except BlockingIOError:
                return WAIT_READABLE
            if not count:
                return "end"
            self.received += buffer[:count]
            while len(self.received) >= len(ASKED):
                self.unsent += TOLD
                del self.received[: len(ASKED)]
        if self.unsent:
            try:
                del self.unsent[: self.transport.send(bytes(self.unsent))]
            except BlockingIOError:
                return WAIT_WRITABLE
        return WAIT_WRITABLE if self.unsent else WAIT_READABLE

    async def run(self, readiness: Any) -> None:
        serve = self.transport.serving(readiness)
        try:
            while await serve(self.step) != "end":
                raise AssertionError("a step ended")
        except ConnectionResetError:
            pass
        finally:
            self.transport.close()


class InTasks:
    """Readiness of a system without epoll."""

    is_inside_the_wait = False

    def close(self) -> None:
        """Nothing is to be closed."""


Story = Callable[[trio.SocketStream, Wire, trio.testing.MockClock, Broker], Awaitable[None]]


def tell(story: Story, *, inside: bool) -> None:
    async def run() -> None:
        wire = Wire()
        readiness: Any = Readiness() if inside else InTasks()
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        stream = await trio.testing.open_stream_to_socket_listener(listeners[0])
        accepted = await listeners[0].accept()
        sock = socket.socket(fileno=accepted.socket.detach())
        sock.setblocking(False)
        try:
            async with trio.open_nursery() as nursery, stream, listeners[0]:
                broker = Broker(wire, sock)
                nursery.start_soon(broker.run, readiness)
                with trio.fail_after(FAR_S):
                    await story(stream, wire, clock, broker)
                nursery.cancel_scope.cancel()
        finally:
            readiness.close()

    clock = trio.testing.MockClock()
    trio.run(run, clock=clock)


async def heard(stream: trio.SocketStream, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := await stream.receive_some(count - len(data))):
        data += more
    return data


everywhere = pytest.mark.parametrize("inside", [True, False])


@everywhere
def test_a_rule_that_comes_while_the_connection_sleeps(inside: bool) -> None:
    async def story(stream: trio.SocketStream, wire: Wire, clock: Any, broker: Broker) -> None:
        await stream.send_all(ASKED)
        assert await heard(stream, len(TOLD)) == TOLD
        rule = wire.on("Heartbeat").fail("UNKNOWN_MEMBER_ID")
        await stream.send_all(ASKED + ASKED)
        assert await heard(stream, 2 * len(TOLD)) == REFUSED + TOLD
        assert rule.hits == 1 and broker.transport.conversation.is_idle

    tell(story, inside=inside)


@everywhere
@pytest.mark.parametrize("before", [True, False])
def test_what_is_late_comes_when_its_time_has_come(inside: bool, before: bool) -> None:
    async def story(stream: trio.SocketStream, wire: Wire, clock: Any, broker: Broker) -> None:
        wire.on("Heartbeat").delay(30, before=before)
        await stream.send_all(ASKED + ASKED)
        await trio.testing.wait_all_tasks_blocked()
        while broker.transport.conversation.next_due is None:
            await trio.testing.wait_all_tasks_blocked(0.001)
        clock.jump(29)
        await trio.testing.wait_all_tasks_blocked(0.001)
        assert broker.transport.conversation.next_due is not None
        clock.jump(1)
        assert await heard(stream, 2 * len(TOLD)) == TOLD + TOLD

    tell(story, inside=inside)


@everywhere
def test_too_much_behind_a_late_answer_waits_in_the_socket(inside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ruled_conversation, "TAKEN_BYTES_MAX", 3 * len(TOLD))

    async def story(stream: trio.SocketStream, wire: Wire, clock: Any, broker: Broker) -> None:
        wire.on("Heartbeat").delay(30)
        for _ in range(20):
            await stream.send_all(ASKED)
            await trio.testing.wait_all_tasks_blocked(0.001)
        while not broker.unsent:
            await trio.testing.wait_all_tasks_blocked(0.001)
        clock.jump(30)
        assert await heard(stream, 20 * len(TOLD)) == 20 * TOLD

    tell(story, inside=inside)


@everywhere
@pytest.mark.parametrize("action", ["half", "before", "after"])
def test_a_connection_that_a_rule_ends(inside: bool, action: str) -> None:
    async def story(stream: trio.SocketStream, wire: Wire, clock: Any, broker: Broker) -> None:
        on = wire.on("Heartbeat")
        _ = on.half() if action == "half" else on.disconnect(before=action == "before")
        await stream.send_all(ASKED)
        assert await heard(stream, 1000) == (TOLD[: len(TOLD) // 2] if action == "half" else b"")
        while broker.transport.socket.fileno() >= 0:
            await trio.testing.wait_all_tasks_blocked(0.001)

    tell(story, inside=inside)


@everywhere
def test_a_dropped_request_leaves_its_client_waiting(inside: bool) -> None:
    async def story(stream: trio.SocketStream, wire: Wire, clock: Any, broker: Broker) -> None:
        wire.on("Heartbeat").drop()
        await stream.send_all(ASKED + ASKED)
        while len(wire.requests()) < 2:
            await trio.testing.wait_all_tasks_blocked(0.001)
        assert not any(each.is_answered for each in wire.requests())

    tell(story, inside=inside)


@everywhere
def test_answers_for_a_client_that_does_not_read_wait(inside: bool) -> None:
    async def story(stream: trio.SocketStream, wire: Wire, clock: Any, broker: Broker) -> None:
        wire.on("Produce").fail("NOT_LEADER_OR_FOLLOWER", times=None)
        broker.transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        places = tuple((f"a-topic-with-a-long-name-{number}", 0) for number in range(500))
        count, asked = 20, request(produce(*places, records=b""), 9, 1)
        size = len(answer(produced(*places, error=6), 9))
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                for _ in range(count):
                    await stream.send_all(asked)

            nursery.start_soon(send)
            while not broker.transport.conversation.to_client:
                await trio.testing.wait_all_tasks_blocked(0.001)
            assert len(await heard(stream, count * size)) == count * size

    tell(story, inside=inside)
