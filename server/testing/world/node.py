"""One broker of the lab: Ottla's own `serve` on a disk in memory, real sockets and the lab's clock.

    new --start--> serving --kill, stop or a failure--> down --start--> serving ...

The port is chosen at the first start and kept. `kill` leaves on the disk what the broker had written at that moment.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakSet

import trio

from ottla.server.config.broker_config import load_config
from ottla.server.environment import Environment, tcp_peers
from ottla.server.serving import serve
from ottla.server.serving_state import Stop
from ottla.server.testing.errors import LabError
from ottla.server.testing.memory.names import StorageSnapshot
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.server.testing.memory.transport import MemoryTransport
from ottla.server.testing.profiles.profiles import PROFILE, restrictions_of
from ottla.server.testing.world.cuts import CutPeers, Cuts

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.cluster.session import Session
    from ottla.server.config.broker_config import BrokerConfig
    from ottla.server.network.connection import Connection
    from ottla.server.network.readiness import Readiness
    from ottla.server.network.transport import Transport
    from ottla.server.peers.tcp import PeerConnectionConfig
    from ottla.server.testing.wire_tap.ruled_conversation import RuledConversation
    from ottla.server.testing.wire_tap.rules import Rule
    from ottla.server.testing.wire_tap.tapped import TappedTransport
    from ottla.server.testing.world.loop import LabLoop
    from ottla.wire.happenings import Happenings

T = TypeVar("T")

HOST = "127.0.0.1"
DIRECTORY = "/data"
LIVES_MAX = 20
"""Starts of a broker whose happenings are kept."""


class Node:
    """A broker with its disk. Call its async methods in the lab's loop."""

    def __init__(
        self,
        node_id: int,
        loop: LabLoop,
        settings: Mapping[str, str],
        open_session: Callable[[Any], Session] | None = None,
        cuts: Cuts | None = None,
        transport: Callable[[socket.socket], Transport] = MemoryTransport,
        over_tls: Callable[[Transport], Transport] | None = None,
    ) -> None:
        """`open_session` opens a session with the cluster's tree, `cuts` are those of its network; None: it is alone.

        `transport` makes the transport of a connection that the broker has accepted. `over_tls` makes that of one with TLS
        from the transport that encrypts; None: nothing stands between it and the broker.
        """
        self._over_tls = over_tls
        self.node_id, self._loop, self.settings = node_id, loop, dict(settings)
        self._open_session, self._cuts, self._transport = open_session, cuts, transport
        self.broker: Broker | None = None
        self.latest: Broker | None = None
        """The broker as it is, or was when it ended."""
        self.failure: BaseException | None = None
        """Why the broker ended by itself; None while it has not."""
        self.port = 0
        self._listeners = ""
        self.lives: deque[Happenings] = deque(maxlen=LIVES_MAX)
        """Happenings of the broker since each of its starts, the latest last."""
        self.storage = MemoryStorage(loop.clock.now_ms)
        self.storage.make_directory(DIRECTORY)
        self._peers: CutPeers | None = None
        self._accepted: WeakSet[socket.socket] = WeakSet()
        self._askers: set[trio.CancelScope] = set()
        self._stop: Stop | None = None
        self._life: trio.CancelScope | None = None
        self._ended = trio.Event()
        self._ended.set()
        self.is_reserved = False
        """True while a snapshot is put back, which starts the broker itself; set and cleared there."""

    @property
    def address(self) -> str:
        """HOST:PORT, for clients."""
        return f"{HOST}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self.broker is not None

    @property
    def is_alive(self) -> bool:
        """True if the broker runs, is being started or is being stopped."""
        return not self._ended.is_set()

    @property
    def is_well(self) -> bool:
        """True if the broker runs and none of its log directories has failed."""
        return self.broker is not None and all(each.is_online for each in self.broker.replicas.log_directories)

    @property
    def is_fenced(self) -> bool:
        """True if the broker is down, or may have been replaced because it does not see its cluster's tree."""
        return self.broker is None or (self.broker.is_in_cluster and self.broker.member.is_fenced)

    def serving(self) -> Broker:
        """Return the broker. Raises LabError if it does not run."""
        if self.broker is None:
            raise LabError(f"Broker {self.node_id} is down; start() it first.")
        return self.broker

    async def while_it_runs(self, serve: Callable[[], Awaitable[T]]) -> T:
        """Let the broker serve something, and return the result. Raises LabError if the broker ends meanwhile."""
        # What a broker has put off it never does once it has ended, so that a test would wait for ever.
        with trio.CancelScope() as asker:
            self._askers.add(asker)
            try:
                return await serve()
            except RuntimeError:  # trio's, of a broker whose nursery takes no more tasks
                if not self._is_ending:
                    raise
            finally:
                self._askers.discard(asker)
        raise LabError(f"Broker {self.node_id} ended while it served this; ask again when it runs.")

    @property
    def _is_ending(self) -> bool:
        is_killed = self._life is not None and self._life.cancel_called
        return is_killed or (self._stop is not None and self._stop.requested.is_set())

    def close_sockets(self) -> None:
        """Close listeners and connections in a forked child, where nobody serves them."""
        for listener in self.broker.listeners if self.broker is not None else ():
            listener.close_socket()
        for sock in self._accepted:
            sock.close()

    def conversations(self) -> list[RuledConversation]:
        """Return what the tap does with the bytes of each connection."""
        return [conversation for _, conversation in self._tapped()]

    def cut_connections(self, is_meant: Callable[[RuledConversation], bool]) -> None:
        """End the connections that are meant, judged by what the tap does with their bytes."""
        for connection, conversation in self._tapped():
            if is_meant(conversation):
                connection.cancel_scope.cancel()

    def let_through(self, rule: Rule) -> None:
        """Let the broker have the requests that a rule of the tap holds back."""
        for connection, conversation in self._tapped():
            if conversation.holds_for(rule):
                cast("TappedTransport", connection._transport).let_through()

    def _tapped(self) -> list[tuple[Connection, RuledConversation]]:
        connections = [
            each
            for listener in (self.broker.listeners if self.broker is not None else ())
            for each in listener.connections
        ]
        return [
            (each, found)
            for each in connections
            if (found := getattr(each._transport, "conversation", None)) is not None
        ]

    def fetch_anew(self, topic: str, partition: int) -> None:
        """Let the broker give up its present fetch of a partition, also one that waits at the leader, and begin another."""
        fetchers = None if self.broker is None else self.broker.member.fetchers
        held = None if self.broker is None else self.broker.replicas.partition(topic, partition)
        if fetchers is None or held is None or held.is_leader or held.leader_id < 0:
            return
        fetchers.forget(held)
        fetchers.follow(held)
        fetcher, _ = fetchers._followed[topic, partition]
        if (asking := fetcher._leader._asking) is not None:
            asking.deadline = trio.current_time()  # the grace of an interruption never ends while the clock is frozen

    async def start(self, *, reserved: bool = False) -> None:
        """Start the broker; return when it serves clients. Raises LabError, and the broker's StartupError.

        `reserved`: whether this is the start for which `restore` has reserved the broker.
        """
        if self.broker is not None:
            raise LabError(f"Broker {self.node_id} runs already.")
        if self.is_alive or (self.is_reserved and not reserved):
            raise LabError(f"Broker {self.node_id} is being started already; wait until it runs.")
        self._stop, self._ended, self.failure = Stop(), trio.Event(), None
        ready = trio.Event()
        self._loop.nursery.start_soon(self._live, ready)
        await ready.wait()
        if self.failure is not None:
            raise self.failure

    async def stop(self) -> None:
        """Stop the broker as SIGTERM does: hand leadership over, flush, close."""
        if self._stop is not None:
            self._stop.requested.set()
        await self._ended.wait()

    async def kill(self) -> None:
        """End the broker as SIGKILL does. Its disk keeps what was written until now, its connections break."""
        left_behind = self.storage
        if self._life is not None and not self._ended.is_set():
            # A task that is awake goes on to its next wait, and the broker cleans up: all that is done to the disk that is
            # left behind, so no client may hear of it.
            for sock in self._accepted:
                with suppress(OSError):  # the client has left
                    sock.shutdown(socket.SHUT_RDWR)
            self.storage = left_behind.copy()
            self.storage.fail = left_behind.fail
        await self._end_at_once()
        if self.storage is not left_behind:
            left_behind.discard()

    async def close(self) -> None:
        """End the broker at once. Nothing is left of its disk."""
        await self._end_at_once()
        self.storage.discard()

    def put_back(self, disk: StorageSnapshot) -> None:
        """Put another disk in place of that of a broker that is closed; `start` then serves that on the same port."""
        self.storage = MemoryStorage.from_snapshot(disk, self._loop.clock.now_ms)

    async def _end_at_once(self) -> None:
        if self._life is not None and not self._ended.is_set():
            if self.broker is not None:
                # To flush files that nobody will read is half of the time of an end.
                self.broker.close = _nothing  # type: ignore[method-assign]
            self._life.cancel()
        await self._ended.wait()

    async def _live(self, ready: trio.Event) -> None:
        assert self._stop is not None
        is_started = False

        def on_ready(broker: Broker) -> None:
            nonlocal is_started
            is_started, self.broker, self.port = True, broker, broker.listeners[0].port
            self.latest = broker
            bound = zip(broker.config.listeners, broker.listeners, strict=False)
            self._listeners = ",".join(str(replace(each, port=listener.port)) for each, listener in bound)
            self.lives.append(broker.happenings)
            ready.set()

        async def run_in_thread(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            if is_started:
                return await trio.to_thread.run_sync(function, *arguments, **options)
            # A start reads a little of a disk in memory. Threads would take longer than that, and turns of others, too.
            return function(*arguments)

        life = self._life = trio.CancelScope()
        try:
            with life:
                await self._serve(on_ready, run_in_thread)
        except Exception as failure:  # noqa: BLE001 - raised where the broker is used; the other brokers live on
            if not life.cancel_called:  # else it comes of a kill, as of the session in the middle of a start
                self.failure = failure
        finally:
            self.broker = None
            self.storage.kill()
            for asker in self._askers:
                asker.cancel()
            if self._peers is not None:
                with trio.CancelScope(shield=True):
                    await self._peers.aclose()
            self._ended.set()
            ready.set()

    async def _serve(self, on_ready: Callable[[Broker], None], run_in_thread: Callable[..., Awaitable[Any]]) -> None:
        own = {"broker.id": str(self.node_id), "log.dirs": DIRECTORY, "listeners": f"PLAINTEXT://{HOST}:0"}
        # The ports of the first start are kept, as clients know them.
        kept = {"listeners": self._listeners} if self._listeners else {}
        environment = Environment(
            storage=self.storage,
            clock_ms=self._loop.clock.now_ms,
            run_in_thread=run_in_thread,
            accept=self._accept,
            accept_encrypted=self._accept_encrypted if self._over_tls is not None else None,
            restrictions=restrictions_of(self.settings),
        )
        if self._open_session is not None:
            environment = replace(environment, open_session=self._open_session, make_peers=self._make_peers)
        assert self._stop is not None
        await serve(
            _parsed(tuple((own | self.settings | kept).items())),
            stop=self._stop,
            on_ready=on_ready,
            environment=environment,
            readiness=self._loop.readiness,
        )

    def _accept(self, sock: socket.socket) -> Transport:
        self._accepted.add(sock)
        return self._transport(sock)

    def _accept_encrypted(self, encrypted: Transport) -> Transport:
        assert self._over_tls is not None
        self._accepted.add(encrypted.socket)
        transport = self._over_tls(encrypted)
        self._accepted.add(transport.socket)
        return transport

    def _make_peers(self, readiness: Readiness, config: PeerConnectionConfig) -> CutPeers:
        assert self._cuts is not None
        self._peers = CutPeers(tcp_peers(readiness, config), self.node_id, self._cuts)
        return self._peers


@lru_cache(maxsize=64)
def _parsed(settings: tuple[tuple[str, str], ...]) -> BrokerConfig:
    """Parse settings. Worlds have the same ones again and again."""
    return load_config({name: text for name, text in settings if name != PROFILE})


async def _nothing() -> None:
    await trio.lowlevel.checkpoint()
