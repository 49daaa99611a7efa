"""A network in memory: hosts, connections between them, and all that can go wrong on the way.

A message takes a random time, and those of one direction of a connection keep their order, as in TCP. A way from one host
to another can be blocked (`block`), also one way only: what is sent then waits, as TCP would send it again and again, until
the way is free or somebody gives the connection up; no connection can be made meanwhile. `break_connections` is a router
that loses its memory. A host that dies (`vanish`) leaves resets behind, for those that hear them.

`SimSocket` is as much of a socket as `server/network/connection.py` and `server/peers/connection.py` use, so that these are what
runs; `SimReadiness` serves it as `server/network/readiness.py` serves real ones.
"""

import random
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import outcome
import trio

from ottla.replication.cluster.metadata_cache import BrokerEndpoint
from ottla.server.network.readiness import Step, Wait
from ottla.server.network.sliced_work import ROUND_S, WorkQueue
from ottla.server.peers.tcp import TcpPeer, TcpPeers
from ottla.server.testing.memory.agenda import Agenda, Pipe
from ottla.server.testing.simulation.processors import Processors
from ottla.server.testing.simulation.trace import Trace

DELAY_S = (0.0001, 0.002)
SLOW_DELAY_S = (0.01, 0.2)
SLOW_SHARE = 0.01
Accept = Callable[["SimSocket"], None]


class Network:
    """All hosts, by number."""

    def __init__(self, agenda: Agenda, chance: random.Random, trace: Trace) -> None:
        self.agenda = agenda
        self.processors = Processors(agenda, chance)
        self.chance = chance
        self.trace = trace
        self._listening: dict[int, Accept] = {}
        self._blocked: dict[tuple[int, int], int] = {}  # by how many faults
        self._connections: list[tuple[SimSocket, SimSocket]] = []
        self._freed = trio.Event()
        self.numbers = count(1)

    # ------------------------------------------------------------------ hosts

    def listen(self, host: int, accept: Accept) -> None:
        self._listening[host] = accept

    def vanish(self, host: int) -> None:
        """End the process of a host: reset its connections, and let nobody listen there."""
        self._listening.pop(host, None)
        for pair in self._open_connections():
            for one in pair:
                if one.host == host:
                    one.die()

    async def connect(self, host: int, to: int) -> "SimSocket":
        """Connect two hosts, after a round trip. Raises ConnectionRefusedError if nobody listens there."""
        while self.is_blocked(host, to) or self.is_blocked(to, host):
            await self._freed.wait()
        await trio.sleep(self.delay() + self.delay())
        accept = self._listening.get(to)
        if accept is None:
            raise ConnectionRefusedError(f"host {to} does not listen")
        one, other = SimSocket(self, host, to), SimSocket(self, to, host)
        one.other, other.other = other, one
        self._connections.append((one, other))
        accept(other)
        return one

    def _open_connections(self) -> list[tuple["SimSocket", "SimSocket"]]:
        self._connections = [pair for pair in self._connections if not all(one.is_closed for one in pair)]
        return list(self._connections)

    # ------------------------------------------------------------------ trouble

    def delay(self) -> float:
        chance = self.chance
        return chance.uniform(*(SLOW_DELAY_S if chance.random() < SLOW_SHARE else DELAY_S))

    def is_blocked(self, host: int, to: int) -> bool:
        return (host, to) in self._blocked

    def block(self, host: int, to: int) -> None:
        """Let nothing through; several may block the same way, and each has to `unblock` it."""
        way = (host, to)
        self._blocked[way] = self._blocked.get(way, 0) + 1
        for one in self._sockets(way):
            one.outgoing.block()

    def unblock(self, host: int, to: int) -> None:
        way = (host, to)
        self._blocked[way] -= 1
        if self._blocked[way]:
            return
        del self._blocked[way]
        for one in self._sockets(way):
            one.outgoing.unblock()
        self._freed.set()
        self._freed = trio.Event()

    def break_connections(self, host: int, other: int) -> None:
        """Reset the connections between two hosts; of what is on its way a part arrives."""
        for pair in self._open_connections():
            if {one.host for one in pair} == {host, other}:
                for one in pair:
                    one.outgoing.close(self.chance.random())
                for one in pair:
                    one.fail()

    def _sockets(self, way: tuple[int, int]) -> list["SimSocket"]:
        return [one for pair in self._open_connections() for one in pair if (one.host, one.to) == way]


class SimSocket:
    """One end of a connection."""

    other: "SimSocket"

    def __init__(self, network: Network, host: int, to: int) -> None:
        self.host = host
        self.to = to
        self.number = next(network.numbers)
        self.is_closed = False
        self.outgoing = Pipe(network.agenda, network.delay, blocked=network.is_blocked(host, to))
        self._network = network
        self._incoming: deque[memoryview] = deque()
        self._taken = 0
        self._has_ended = self._has_failed = False
        self._step: Step | None = None
        self._task: Any = None
        self._is_due = False  # it waits for its turn

    # ------------------------------------------------------------------ as a socket

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Do nothing: the buffers have room for everything, and the receiver is told of every byte."""

    def fileno(self) -> int:
        return self.number

    def recv_into(self, buffer: Any, size_max: int = 0) -> int:
        if not self._incoming:
            return len(self._without_input())
        chunk = self._incoming[0]
        size = min(len(chunk), size_max or len(buffer))
        buffer[:size] = chunk[:size]
        self._taken += size
        if size == len(chunk):
            self._incoming.popleft()
        else:
            self._incoming[0] = chunk[size:]
        return size

    def recv(self, size: int, flags: int) -> bytes:
        """Look whether bytes have arrived; take none away."""
        assert flags & socket.MSG_PEEK
        return bytes(self._incoming[0][:size]) if self._incoming else self._without_input()

    @property
    def has_left(self) -> bool:
        """Return True if the other side has ended the connection, or its half of it."""
        return self._has_ended or self._has_failed or self.is_closed

    @property
    def has_nothing_left(self) -> bool:
        """Return True if all bytes that have arrived were received."""
        return not self._incoming

    def _without_input(self) -> bytes:
        if self._has_failed or self.is_closed:
            raise ConnectionResetError("reset")
        if self._has_ended:
            return b""
        raise BlockingIOError

    def send(self, data: Any, flags: int = 0) -> int:
        if self._has_failed or self.is_closed:
            raise BrokenPipeError("reset")
        sent = bytes(data)
        self._network.trace.note(f"{self.host}>{self.to} #{self.number}", sent)
        self.outgoing.send(partial(self.other._receive, sent))
        return len(sent)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.outgoing.send(self.other._end)

    # ------------------------------------------------------------------ what the network does

    def die(self) -> None:
        """End the socket with its process; the other side hears of it unless the way is blocked."""
        self.is_closed = True
        self._step = None
        self.outgoing.send(self.other.fail)

    def fail(self) -> None:
        if not self.is_closed:
            self._has_failed = True
            self._run_step()

    def _receive(self, data: bytes) -> None:
        if self.is_closed:
            self.outgoing.send(self.other.fail)  # a reset, as for a host that has forgotten the connection
        else:
            self._incoming.append(memoryview(data))
            self._run_step()

    def _end(self) -> None:
        if not self.is_closed:
            self._has_ended = True
            self._run_step()

    # ------------------------------------------------------------------ being served

    @property
    def _is_readable(self) -> bool:
        return bool(self._incoming) or self._has_ended or self._has_failed

    async def serve(self, step: Step) -> Any:
        self._step, self._task = step, trio.lowlevel.current_task()
        if self._is_readable:
            self.poke()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._step = None
            return trio.lowlevel.Abort.SUCCEEDED

        return await trio.lowlevel.wait_task_rescheduled(abort)

    def watch(self, step: Step) -> None:
        """Call a function whenever something has arrived; no task waits for what it returns."""
        self._step = step

    def poke(self) -> None:
        self._network.agenda.at(trio.current_time(), self._run_step)

    def _run_step(self) -> None:
        due = self._network.processors.next_turn(self.host)
        if due is None:
            self._run_step_now()
        elif not self._is_due:
            self._is_due = True
            self._network.agenda.at(due, self._run_step_now)

    def _run_step_now(self) -> None:
        self._is_due = False
        while (step := self._step) is not None:
            taken = self._taken
            result: outcome.Outcome[Any] = outcome.capture(step)
            if isinstance(result, outcome.Value) and isinstance(result.value, Wait):
                if not self._incoming or self._taken == taken:
                    return
            else:
                if self._task is None:
                    result.unwrap()
                    raise AssertionError(f"a watcher returned {result}")
                self._step = None
                trio.lowlevel.reschedule(self._task, result)


class SimReadiness:
    """Server of simulated sockets, as `Readiness` is of real ones."""

    is_inside_the_wait = True

    def __init__(self) -> None:
        self.work = WorkQueue()  # without limit: no round of it ever begins

    async def serve(self, sock: Any, step: Step) -> Any:
        return await sock.serve(step)

    def poke(self, sock: Any) -> None:
        sock.poke()

    def turn_end(self, now: float) -> float:
        return now + ROUND_S


class SimPeers(TcpPeers):
    """Factory of connections from one host to brokers; the port of a broker is the number of its host."""

    def __init__(self, network: Network, host: int) -> None:
        super().__init__(serve=SimReadiness().serve)
        self.network = network
        self.host = host

    def to(self, endpoint: BrokerEndpoint, *, client_id: str) -> "SimPeer":
        return SimPeer(self, endpoint, client_id)


class SimPeer(TcpPeer):
    """Connection to one broker."""

    async def _connected_socket(self) -> Any:
        peers = self._peers
        assert isinstance(peers, SimPeers)
        problem: OSError = TimeoutError("no connection in time")
        with trio.move_on_after(peers.connect_timeout_s):
            try:
                return await peers.network.connect(peers.host, self.endpoint.port)
            except OSError as refusal:
                problem = refusal
        raise self._lost(f"cannot connect: {problem}") from problem
