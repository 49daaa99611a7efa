"""One broker of the simulation: Ottla's own `Broker` on a disk, a network and a ZooKeeper in memory.

`start`, `kill`, `stop`, `pause` and `resume` are what an operator, the kernel or bad luck does to a process. After a SIGKILL
the disk holds what the process had written, and perhaps a part of the batch that it was just writing; a machine that loses
power also loses what was not synced (`lose_power`).
"""

import errno
import random
import traceback
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import trio

from ottla.replication.cluster.metadata_cache import BrokerEndpoint, BrokerRegistration
from ottla.replication.log.descriptors import Descriptors
from ottla.replication.log.storage import FileRegion
from ottla.replication.partition.partition import Partition
from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.server.broker import Broker
from ottla.server.cluster.session import JoinProblem
from ottla.server.config.broker_config import load_config
from ottla.server.dispatch.dispatch import served_routes
from ottla.server.environment import Environment
from ottla.server.network.calls import Calls
from ottla.server.network.connection import Connection
from ottla.server.network.connection_limits import ConnectionLimits
from ottla.server.network.inbox import ReceiveBuffers
from ottla.server.network.listener import Listener
from ottla.server.testing.memory.coordination import MemoryCoordination
from ottla.server.testing.memory.coordination_service import MemoryService
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.server.testing.simulation.network import Network, SimPeers, SimReadiness, SimSocket
from ottla.server.testing.simulation.processors import whose_task
from ottla.server.testing.simulation.virtual import EPOCH_S, thread_runner
from ottla.wire.records import iter_batches

DIRECTORIES = ("/disk-a", "/disk-b")
LISTENER = "PLAINTEXT"
RESTART_S = 1.0
SKEW_MS = 300  # of the brokers' wall clocks


class SimTransport:
    """Regions of files in memory have no descriptor: their bytes are sent."""

    def __init__(self, sock: SimSocket) -> None:
        self.socket: Any = sock
        self.receive_into = sock.recv_into
        self.send = sock.send
        self.close = sock.close

    def serving(self, readiness: Any, missing: Callable[[], int] | None = None) -> Callable[[Any], Awaitable[Any]]:
        return partial(readiness.serve, self.socket)

    def expect(self, count: int) -> None:
        """Do nothing: simulated sockets report every byte."""

    async def until_sendable(self) -> None:
        await trio.lowlevel.wait_writable(self.socket)

    def send_region(self, region: FileRegion, position: int, length: int) -> int:
        return self.send(region.file.read_at(position, length))

    def is_in_memory(self, region: FileRegion, position: int, length: int) -> bool:
        return True

    def read_in_memory(self, region: FileRegion) -> bytearray | None:
        try:
            return bytearray(region.read())
        except OSError:
            return None

    def peer_has_left(self) -> bool:
        return bool(self.socket.has_left)

    def is_at_end(self) -> bool:
        return bool(self.socket.has_left and self.socket.has_nothing_left)


class SimListener(Listener):
    """Serves connections that the network hands over."""

    def __init__(self, broker: Broker, calls: Calls) -> None:
        limits = ConnectionLimits(lambda: broker.config.server, Descriptors(), broker.quotas)
        super().__init__(LISTENER, None, broker, calls, ReceiveBuffers(), SimReadiness(), limits)  # type: ignore[arg-type]
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as self._nursery:
                await self._keep_house()
        finally:
            self._nursery = None

    def accept(self, sock: SimSocket) -> None:
        if self._nursery is None or self._nursery.cancel_scope.cancel_called:
            sock.close()
            return
        host = f"host-{sock.to}"
        self.limits.admit(host, self.name)
        connection = Connection(SimTransport(sock), host, self)
        self.connections[connection] = None
        self._nursery.start_soon(self._serve, connection, host)


class Setting(NamedTuple):
    """Environment of all brokers."""

    network: Network
    zookeeper: MemoryService
    chance: random.Random
    fail: Callable[[str], None]
    """Called with what must not happen."""


class SimBroker:
    """A broker that can be started, killed, stopped and cut off; see the module."""

    def __init__(self, node_id: int, setting: Setting, settings: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.broker: Broker | None = None
        self.is_serving = False
        self._setting = setting
        self._settings = {
            "broker.id": str(node_id),
            "log.dirs": ",".join(DIRECTORIES),
            "listeners": f"{LISTENER}://broker-{node_id}:{node_id}",
            "zookeeper.connect": "zookeeper:2181/simulation",
            **settings,
        }
        self.session_timeout_s = float(settings["zookeeper.session.timeout.ms"]) / 1000
        self._link = setting.zookeeper.link()
        self._sessions: list[MemoryCoordination] = []
        self._skew_ms = setting.chance.randint(-SKEW_MS, SKEW_MS)
        self.disk = MemoryStorage(self.clock_ms)
        for directory in DIRECTORIES:
            self.disk.make_directory(directory)
        self._life: trio.CancelScope | None = None
        self._stop_asked = trio.Event()
        self._ended = trio.Event()
        self._ended.set()
        self._is_killed = False
        self._cuts = 0  # faults that cut the way to ZooKeeper

    def __str__(self) -> str:
        return f"broker {self.node_id}"

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    @property
    def is_controller(self) -> bool:
        return self.broker is not None and self.broker.member.controller is not None

    @property
    def is_fenced(self) -> bool:
        return self.broker is not None and self.broker.member.is_fenced

    def _held(self, topic: str, partition: int) -> Partition | None:
        return None if self.broker is None else self.broker.replicas.partition(topic, partition)

    def leads(self, topic: str, partition: int) -> bool:
        held = self._held(topic, partition)
        return held is not None and held.is_leader

    def successors(self, topic: str, partition: int) -> list[int]:
        """Return the brokers that the controller would elect if this leader handed a partition over, in that order."""
        held = self._held(topic, partition)
        return [] if held is None else [each for each in held.replicas if each in held.isr and each != self.node_id]

    def is_under_min_isr(self, topic: str, partition: int) -> bool:
        held = self._held(topic, partition)
        return held is not None and held.is_under_min_isr

    def clock_ms(self) -> int:
        return int((EPOCH_S + trio.current_time()) * 1000) + self._skew_ms

    # ------------------------------------------------------------------ its life

    async def run(self) -> None:
        """One process, from its start to its end; again if it ends by itself, as a service manager does."""
        whose_task.set(self.node_id)
        self._ended, self._stop_asked = trio.Event(), trio.Event()
        self._is_killed = False
        try:
            with trio.CancelScope() as self._life:
                while not self._is_killed and not self._stop_asked.is_set():
                    await self._live_once()
                    if not self._stop_asked.is_set():
                        await trio.sleep(RESTART_S)
        finally:
            self.is_serving, self.broker = False, None
            self._ended.set()

    async def _live_once(self) -> None:
        try:
            await self._live()
        except* JoinProblem:
            pass  # such as a session of an earlier life that has not expired, or a ZooKeeper that is away for long
        except* (OSError, LogDirectoryProblem) as problem:
            if self.disk.fail is None:
                self._setting.fail(f"{self}: {problem.exceptions!r}")
        except* Exception as bug:  # noqa: BLE001 - a broker that ends by itself is what this looks for
            if not self._is_killed:
                self._setting.fail(f"{self} ended: {''.join(traceback.format_exception(bug))}")
        finally:
            self._setting.network.vanish(self.node_id)
            self.disk.kill()
            self.is_serving = False

    async def _live(self) -> None:
        broker = self.broker = Broker(load_config(self._settings), self._environment(), SimReadiness())  # type: ignore[arg-type]
        endpoint = BrokerEndpoint(self.node_id, f"broker-{self.node_id}", self.node_id)
        broker.member.register(BrokerRegistration(self.node_id, {LISTENER: endpoint}))
        async with trio.open_nursery() as sessions:
            await broker.open(sessions)
            try:
                await self._serve(broker)
            finally:
                if not self._is_killed:
                    await broker.close()
            sessions.cancel_scope.cancel()

    async def _serve(self, broker: Broker) -> None:
        async with broker.running() as nursery:
            listener = SimListener(broker, Calls(served_routes(is_in_cluster=True)))
            nursery.start_soon(listener.run)
            self._setting.network.listen(self.node_id, listener.accept)
            await broker.member.join()
            self.is_serving = True
            await self._until_stopped(broker)
            self.is_serving = False
            await broker.member.leave()

    async def _until_stopped(self, broker: Broker) -> None:
        async with trio.open_nursery() as nursery:

            async def wait(event: trio.Event) -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(wait, self._stop_asked)
            nursery.start_soon(wait, broker.replicas.all_directories_failed)

    def _environment(self) -> Environment:
        chance = self._setting.chance
        return Environment(
            storage=self.disk,
            clock_ms=self.clock_ms,
            run_in_thread=thread_runner(chance),
            open_session=self._open_session,
            make_peers=lambda readiness, speech: SimPeers(self._setting.network, self.node_id),
            random_bytes=chance.randbytes,
        )

    def _open_session(self, config: object) -> MemoryCoordination:
        session = MemoryCoordination(
            self._link, timeout_s=self.session_timeout_s, connection_timeout_s=self.session_timeout_s
        )
        self._sessions = [session]
        return session

    # ------------------------------------------------------------------ what is done to it

    async def kill(self, *, is_torn: bool = False) -> None:
        """End the process as SIGKILL does. `is_torn`: in the middle of a write."""
        if not self.is_running:
            return
        assert self._life is not None
        self._is_killed = True
        self.disk.fail = lambda operation, path: OSError(errno.EIO, "the process is no more", path)
        for session in self._sessions:
            session.abandon()
        self._setting.network.vanish(self.node_id)
        self._life.cancel()
        await self._ended.wait()
        self.disk.fail = None
        if is_torn:
            self._tear()

    async def lose_power(self) -> None:
        """Kill the process, and lose what it had not synced to its disks."""
        await self.kill()
        self.disk.crash(self._setting.chance)

    async def stop(self) -> None:
        """Stop the process as SIGTERM does, by a controlled shutdown."""
        self._stop_asked.set()
        await self._ended.wait()

    def expire_session(self) -> None:
        for session in self._sessions:
            self._setting.zookeeper.expire(session.session_id)

    def reset_session(self) -> None:
        self._link.reset()

    def cut_from_zookeeper(self, *, outwards: bool = True, inwards: bool = True) -> None:
        self._cuts += 1
        self._link.cut(to_service=outwards, from_service=inwards)

    def heal_way_to_zookeeper(self) -> None:
        self._cuts -= 1
        if not self._cuts:
            self._link.heal()

    def offline_directories(self) -> list[str]:
        """Return the log directories that the broker believes to have failed."""
        if self.broker is None:
            return []
        return [each.path for each in self.broker.replicas.log_directories if not each.is_online]

    def fail_directory(self, directory: str) -> None:
        """Let every access to one of the broker's disks fail."""

        def fail(operation: str, path: str) -> OSError | None:
            return OSError(errno.EIO, "Input/output error", path) if path.startswith(directory) else None

        self.disk.fail = fail

    def _tear(self) -> None:
        """Append the first part of an unacknowledged batch to some of the logs."""
        chance = self._setting.chance
        last = {path.rpartition("/")[0]: path for path in sorted(self.disk.files()) if path.endswith(".log")}
        for path in last.values():
            data = bytearray(self.disk.read(path))
            batches = list(iter_batches(data))
            if batches and chance.random() < 0.5:
                header, start, end = batches[-1]
                torn = data[start : start + chance.randint(1, end - start - 1)]
                torn[:8] = header.next_offset.to_bytes(8, "big")[: len(torn)]
                self.disk.open(path).append(torn)
