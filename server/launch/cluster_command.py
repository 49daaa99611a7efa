"""`ottla cluster`: several brokers on this machine, each a process of its own, as long as the command runs.

The coordination tree that they share is held by the command's own process (`server/cluster/coordination/tree_server.py`), or by an Apache
ZooKeeper beside them. A cluster that began with one of the two goes on with it.

The data folder holds all of it: tree/ or zookeeper/, broker-1/ and so on with their logs beside them, and cluster.json with the
ports and the folder of its certificates, if it has any, so that a second start brings the same cluster back at the same
addresses, and does not open what was closed.

The command restarts nothing by itself; `ottla cluster start-broker` or a key in its terminal asks it to
(`cluster_control.py`). Its children are in sessions of their own, so that Ctrl-C reaches the command alone, which stops
the brokers before their tree; the kernel kills them all (PR_SET_PDEATHSIG) if the command itself is killed.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shlex
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import trio

from ottla import __version__
from ottla.replication.log.locks import open_to_lock
from ottla.replication.log.storage import OsStorage
from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.server.cluster.coordination.embedded import JOURNAL_NAME
from ottla.server.cluster.coordination.tree_server import SOCKET_NAME, TreeBroken, hold_tree
from ottla.server.config.broker_config import ConfigError, default_data_directory, load_config
from ottla.server.launch.banner import commands_to_try, how_to_stop
from ottla.server.launch.cluster_children import (
    Child,
    NotSecured,
    Secured,
    ZooKeeperMissing,
    write_configuration,
    write_settings,
    zookeeper_command,
)
from ottla.server.launch.cluster_control import (
    STATUS,
    Asked,
    Keyboard,
    Unanswered,
    keys,
    listen,
    serve_control,
    terminal,
)
from ottla.server.launch.signals import ALL_STOP, STOPPING
from ottla.server.standard_streams import announce

BROKERS: Final = 3
HOST: Final = "127.0.0.1"
OWN_SETTINGS: Final = (
    "node.id", "broker.id", "listeners", "advertised.listeners", "log.dir", "log.dirs", "zookeeper.connect",
    "coordination.socket", "num.workers",
)  # fmt: skip
HTTP_LISTENER: Final = "http.listener"
START_S: Final = 60.0
STOP_S: Final = 30.0
TREE, ZOOKEEPER = "tree", "zookeeper"  # the folder of the tree that the command holds, or of ZooKeeper's data
FLUSH_S: Final = 30.0  # how long a broker may need to bring its logs to disk
KILL_S: Final = 10.0  # how long the system may need to end a process that was killed

logger = logging.getLogger("ottla.cluster")


class ClusterFailed(Exception):
    """Raised if the cluster could not start or had to stop. The text is one line for the user."""


def cluster_settings(size: int) -> dict[str, str]:
    """Return the default settings of a cluster of `size` brokers.

    There are up to three replicas, of which one may be out of sync.
    """
    copies = min(3, size)
    in_sync = max(1, copies - 1)
    return {
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(in_sync),
        "group.initial.rebalance.delay.ms": "0",
        "zookeeper.session.timeout.ms": "6000",
    }


def run_cluster(
    size: int | None,
    data: Path | None,
    settings: Mapping[str, str],
    accepted_log_dirs: Sequence[str] = (),
    secure: Path | None = None,
    with_zookeeper: bool = False,
    log_level: str = "info",
    http_port: int | None = None,
) -> None:
    """Run a cluster on this machine until SIGTERM or Ctrl-C. Raises ConfigError or ClusterFailed.

    `size` None: as many brokers as the data folder has, or three. `settings` are for all brokers. A broker with a log
    directory in `accepted_log_dirs` starts even if the directory has another id than recorded. `secure`: the folder of
    the certificates; None: the folder of the last start, or no TLS. `with_zookeeper`: a new cluster keeps its
    coordination tree in ZooKeeper. `log_level` is for the brokers. `http_port`: port of the console of broker 1, which
    those of the others follow; 0: any ports; None: there are no consoles.
    """
    for name in OWN_SETTINGS:
        if name in settings:
            raise ConfigError(f"{name} differs from broker to broker: `ottla cluster` chooses it")
    if http_port is not None and HTTP_LISTENER in settings:
        raise ConfigError(f"--http {http_port}: {HTTP_LISTENER}={settings[HTTP_LISTENER]} is given, too")
    folder = (data or default_folder()).absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(folder / ".lock", "w", opener=open_to_lock) as lock:
            _lock(lock, folder)
            known = Known.read(folder)
            secured = _secured(secure, known)
            ports = _ports(folder, size, known, with_zookeeper)
            cluster = LocalCluster(folder, ports, settings, accepted_log_dirs, secured, log_level, http_port)
            # Only now: what cannot even be tried, for want of Java or by a wrong setting, settles nothing.
            known.write(folder, ports, secured)
            trio.run(cluster.run)
    except (OSError, ZooKeeperMissing, NotSecured) as error:
        raise ClusterFailed(str(error)) from None


def default_folder() -> Path:
    """Return the default data folder of a cluster."""
    return (default_data_directory() / "cluster").absolute()


def _lock(file: IO[str], folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ClusterFailed(f"another `ottla cluster` runs in {folder}") from None


VERSION: Final = 1
"""Format version of cluster.json; a file without one has version 1."""


class Known(NamedTuple):
    """Content of cluster.json: the ports and the certificate folder of the last start."""

    ports: Sequence[int | None]
    """ZooKeeper's, None if there is none, then those of brokers 1, 2 and so on."""
    secure: str | None
    """The folder of the certificates."""

    @classmethod
    def read(cls, folder: Path) -> Known:
        """Read cluster.json; without the file return empty values.

        Raises ClusterFailed if the file is damaged or newer: only the file says whether the cluster was secured.
        """
        file = folder / "cluster.json"
        try:
            found = json.loads(file.read_text()) if file.exists() else {}
            version, ports, secure = found.get("version", VERSION), found.get("ports", []), found.get("secure")
            if type(version) is int and version > VERSION:
                raise ClusterFailed(
                    f"{file} was written by a newer Ottla, as version {version}, and this one reads {VERSION}"
                )
            zookeeper_first = ports[1:] if ports[:1] == [None] else ports
            is_whole = type(version) is int and all(type(port) is int and 0 <= port < 65536 for port in zookeeper_first)
            if is_whole and isinstance(secure, str | None):
                return cls(ports, secure)
        except (ValueError, TypeError, AttributeError, RecursionError):
            pass
        raise ClusterFailed(
            f"{file} is damaged; put it right, or remove it and give --brokers and --secure as they were"
        )

    @staticmethod
    def write(folder: Path, ports: Sequence[int | None], secured: Secured | None) -> None:
        kept: dict[str, object] = {"version": VERSION, "ports": list(ports)}
        if secured is not None:
            kept["secure"] = str(secured.folder)
        # As a whole or not at all: a signal may end this process at any moment.
        OsStorage().replace(str(folder / "cluster.json"), json.dumps(kept).encode() + b"\n")


def _secured(wanted: Path | None, known: Known) -> Secured | None:
    if wanted is None:
        if known.secure is None:
            return None
        wanted = Path(known.secure)
    return Secured(wanted)


def _ports(folder: Path, size: int | None, known: Known, with_zookeeper: bool) -> list[int | None]:
    """Return the ports of ZooKeeper (None without it) and of brokers 1, 2 and so on.

    Known processes keep their ports of the last start, and new processes get free ports. Raises ConfigError.
    """
    before = known.ports or [0 if _has_zookeeper(folder, with_zookeeper) else None]
    if with_zookeeper and before[0] is None:
        raise ConfigError(
            f"--zookeeper is for a new cluster: the one in {folder} began without, and goes on with its tree"
        )
    held = len(before) - 1
    size = size or held or BROKERS
    if size < held:
        raise ConfigError(f"{folder} holds a cluster of {held} brokers, which --brokers {size} would leave incomplete")
    zookeeper, *known_ports = before
    brokers = [port or 0 for port in known_ports] + [0] * (size - held)
    if zookeeper is None:
        return [None, *_free_ports(brokers)]
    return [*_free_ports([zookeeper, *brokers])]


def _has_zookeeper(folder: Path, wanted: bool) -> bool:
    """Return True if the cluster keeps its coordination tree in ZooKeeper; a new cluster does if `wanted`."""
    if (folder / ZOOKEEPER / "version-2").exists():
        return True
    return wanted and not (folder / TREE / JOURNAL_NAME).exists()


def _free_ports(wanted: list[int]) -> list[int]:
    held: list[socket.socket] = []
    # All ports are held until the last one is found, so that none is chosen twice.
    try:
        for port in wanted:
            held.append(_listen(port))
        return [listener.getsockname()[1] for listener in held]
    finally:
        for listener in held:
            listener.close()


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError:
        return socket.create_server((HOST, 0))


class LocalCluster:
    """Cluster of child processes on this machine, for one call of `run`."""

    def __init__(
        self,
        folder: Path,
        ports: Sequence[int | None],
        settings: Mapping[str, str],
        accepted_log_dirs: Sequence[str],
        secured: Secured | None = None,
        log_level: str = "info",
        http_port: int | None = None,
    ) -> None:
        """Prepare the cluster. Raises ConfigError or NotSecured; no process has been started then.

        `ports` are as in `Known`. `secured` None: everyone may connect. `http_port` is as in `run_cluster`.
        """
        zookeeper_port, *broker_ports = ports
        self._broker_ports = [port for port in broker_ports if port is not None]
        self._folder, self._secured, self._log_level, self._http_port = folder, secured, log_level, http_port
        self._accepted = self._checked(accepted_log_dirs)
        self._zookeeper = None if zookeeper_port is None else self._prepared_zookeeper(zookeeper_port)
        self._besides = [] if self._zookeeper is None else [self._zookeeper]
        self._zookeeper_port = zookeeper_port
        self._brokers = [
            self._prepared_broker(number, port, settings) for number, port in enumerate(self._broker_ports, 1)
        ]
        self._failure: ClusterFailed | None = None
        self._is_stopping = self._has_tree = False
        self._stop = trio.CancelScope()
        self._any_ended = trio.Event()
        self._nursery: trio.Nursery | None = None  # once all serve

    def _prepared_zookeeper(self, port: int) -> Child:
        home = self._folder / ZOOKEEPER
        home.mkdir(mode=0o700, exist_ok=True)
        configuration = home / "zoo.cfg"
        write_configuration(configuration, data=home, port=port)
        return Child("ZooKeeper", zookeeper_command(configuration), self._folder / "zookeeper.log")

    def _prepared_broker(self, number: int, port: int, settings: Mapping[str, str]) -> Child:
        own = (
            {"listeners": f"PLAINTEXT://{HOST}:{port}"} if self._secured is None else self._secured.settings(HOST, port)
        )
        texts = cluster_settings(len(self._broker_ports)) | own | dict(settings)
        texts |= {"node.id": str(number), "log.dirs": self._log_dir(number), **self._way_to_tree}
        if self._http_port is not None:
            texts[HTTP_LISTENER] = f"{HOST}:{self._http_port + number - 1 if self._http_port else 0}"
        # Read here, too, so that a wrong setting is refused before any process is started.
        self._hand_over_s = load_config(texts).member.controlled_shutdown_timeout_ms / 1000
        # In a file, because everybody on the machine may see arguments, and there may be passwords among the settings.
        file = self._folder / f"broker-{number}.properties"
        write_settings(file, texts)
        accepted = [f"--accept-empty-log-dir={path}" for path in self._accepted if path == texts["log.dirs"]]
        command = [sys.executable, "-m", "ottla", "start", str(file), "--log-level", self._log_level, *accepted]
        return Child(f"broker {number}", command, self._folder / f"broker-{number}.log")

    @property
    def _way_to_tree(self) -> dict[str, str]:
        if self._zookeeper is None:
            return {"coordination.socket": str(self._folder / TREE / SOCKET_NAME)}
        return {"zookeeper.connect": f"{HOST}:{self._zookeeper_port}"}

    def _log_dir(self, number: int) -> str:
        return str(self._folder / f"broker-{number}")

    def _checked(self, accepted_log_dirs: Sequence[str]) -> Sequence[str]:
        known = [self._log_dir(number) for number, _ in enumerate(self._broker_ports, 1)]
        for path in accepted_log_dirs:
            if path not in known:
                raise ConfigError(
                    f"--accept-empty-log-dir {path}: the log directories of this cluster are {', '.join(known)}"
                )
        return accepted_log_dirs

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers: host:port,host:port,..."""
        return ",".join(f"{HOST}:{port}" for port in self._broker_ports)

    async def run(self) -> None:
        """Run until a signal arrives or all brokers have ended. Raises ClusterFailed."""
        with trio.open_signal_receiver(*STOPPING) as signals:
            # No task of this nursery raises: it minds the processes, and signals are heeded, until all have ended.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._guarded, self._heed, signals)
                try:
                    with self._stop:
                        await self._start(nursery)
                        self._nursery = nursery
                        nursery.start_soon(self._guarded, self._serve_control)
                        with terminal() as keyboard:
                            self._announce(keyboard is not None)
                            nursery.start_soon(self._guarded, self._heed_keys, keyboard)
                            await self._until_all_have_ended()
                except ClusterFailed as failed:
                    self._failure = failed
                except OSError as error:  # perhaps no process can be made for now
                    self._failure = ClusterFailed(str(error))
                finally:
                    # The processes have to end in order even if this task is cancelled.
                    with trio.CancelScope(shield=True):
                        await self._end()
                    nursery.cancel_scope.cancel()
        if self._failure is not None:
            raise self._failure

    async def _guarded(self, task: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Run a background task. Exceptions are bugs: they are logged and do not end other tasks."""
        try:
            await task(*arguments)
        except Exception:
            logger.exception("bug: a task of the cluster has ended")

    async def _heed(self, signals: AsyncIterator[int]) -> None:
        """Handle signals: the first stops brokers in order, the second has them flush and end, the third kills them."""
        number = signal.SIGTERM
        async for received in signals:
            if self._is_stopping and received == signal.SIGHUP:
                continue  # shell and kernel may each send it when a terminal is closed
            if self._is_stopping:
                for child in (*self._brokers, *self._besides):
                    child.signal(number)
                number = signal.SIGKILL
            self._is_stopping = True
            self._stop.cancel()

    async def _start(self, nursery: trio.Nursery) -> None:
        with trio.move_on_after(START_S):
            if self._zookeeper is None:
                await nursery.start(self._hold_tree)
                self._has_tree = True
            else:
                self._launch(self._zookeeper, nursery)
                await self._until_listens(self._zookeeper)
            # All are started before one is awaited, so that they start side by side.
            for broker in self._brokers:
                self._launch(broker, nursery)
            for broker in self._brokers:
                await broker.serving_or_ended.wait()
                if broker.exit_status is not None:
                    raise ClusterFailed(broker.epitaph())
            return
        late = [child for child in (*self._besides, *self._brokers) if not child.serving_or_ended.is_set()]
        if late:
            raise ClusterFailed(f"{late[0].name} does not serve after {START_S:.0f} s; its log is {late[0].log_path}")

    async def _serve_control(self) -> None:
        try:
            listener = listen(self._folder)
        except OSError as error:  # the cluster runs all the same
            print(f"ottla: `ottla cluster status` cannot ask this one: {error}", file=sys.stderr, flush=True)
        else:
            await serve_control(listener, self.answer)

    async def answer(self, asked: Asked) -> dict[str, Any]:
        """Carry out a request of another `ottla cluster` command and return the response. Raises Unanswered."""
        if asked.do == STATUS:
            secure = None if self._secured is None else str(self._secured.folder)
            return {
                "brokers": [self._described(number) for number in range(1, len(self._brokers) + 1)],
                "secure": secure,
                "pid": os.getpid(),
            }
        return await self._start_again(asked.broker)

    async def _heed_keys(self, keyboard: Keyboard | None) -> None:
        if keyboard is None:
            return
        assert self._nursery is not None
        async for key in keys(keyboard):
            if key in "123456789" and int(key) <= len(self._brokers):
                self._nursery.start_soon(self._guarded, self._press, int(key))

    async def _press(self, number: int) -> None:
        """Handle the key of broker `number`: kill a running broker, start an ended one again.

        The key is ignored while the broker starts, or while the cluster stops.
        """
        broker = self._brokers[number - 1]
        if self._is_stopping or not broker.serving_or_ended.is_set():
            return
        if broker.exit_status is None:
            broker.signal(signal.SIGKILL)
            return
        try:
            await self._start_again(number)
        except (Unanswered, OSError) as problem:  # perhaps no process can be made for now
            print(f"ottla: {problem}", file=sys.stderr, flush=True)
        else:
            announce(
                [f"ottla: {broker.name} serves again{f', its console at {broker.console}' if broker.console else ''}"]
            )

    def _described(self, number: int) -> dict[str, Any]:
        broker = self._brokers[number - 1]
        serves = broker.exit_status is None and broker.serving_or_ended.is_set()
        state = f"{'runs' if serves else 'starts'} (pid {broker.pid})" if broker.exit_status is None else broker.end
        return {
            "number": number,
            "host": HOST,
            "port": self._broker_ports[number - 1],
            "serves": serves,
            "state": state,
        }

    async def _start_again(self, number: int) -> dict[str, Any]:
        if not 1 <= number <= len(self._brokers):
            raise Unanswered(f"this cluster has brokers 1 to {len(self._brokers)}")
        broker = self._brokers[number - 1]
        if self._is_stopping or self._nursery is None:
            raise Unanswered("the cluster stops")
        if broker.exit_status is None:
            raise Unanswered(f"{broker.name} runs already")
        self._launch(broker, self._nursery)
        with trio.move_on_after(START_S):
            await broker.serving_or_ended.wait()
            if broker.exit_status is not None:
                raise Unanswered(broker.epitaph())
            return {"started": number}
        raise Unanswered(f"{broker.name} does not serve after {START_S:.0f} s; its log is {broker.log_path}")

    def _launch(self, child: Child, nursery: trio.Nursery) -> None:
        child.start()
        nursery.start_soon(self._guarded, self._mind, child)

    async def _mind(self, child: Child) -> None:
        has_served = await child.until_ended()
        if has_served and not self._is_stopping:
            hint = f"; {self._start_command(child)} starts it again" if child in self._brokers else ""
            print(f"ottla: {child.epitaph()}{hint}", file=sys.stderr, flush=True)
        self._any_ended.set()
        self._any_ended = trio.Event()

    def _start_command(self, broker: Child) -> str:
        return f"`ottla cluster start-broker {self._brokers.index(broker) + 1}{self._which}`"

    @property
    def _which(self) -> str:
        """Command-line option that names this cluster's folder; empty for the default folder."""
        return "" if self._folder == default_folder() else f" --data {shlex.quote(str(self._folder))}"

    async def _hold_tree(self, task_status: trio.TaskStatus[int]) -> None:
        """Serve the coordination tree until all processes have ended.

        Raises ClusterFailed if the tree cannot be served from the start; a later failure stops the cluster.
        """
        folder = self._folder / TREE
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            await hold_tree(folder, folder / SOCKET_NAME, task_status=task_status)
        except Exception as problem:
            if not isinstance(problem, OSError | LogDirectoryProblem | TreeBroken):
                logger.exception("bug: the coordination tree of the cluster has ended")
            failure = ClusterFailed(f"the coordination tree cannot be kept: {problem}")
            if not self._has_tree:
                raise failure from None
            # Nobody waits for this task any more: what it raised would leave the processes unminded.
            self._failure = failure
            self._stop.cancel()

    async def _until_listens(self, zookeeper: Child) -> None:
        assert self._zookeeper_port is not None
        while zookeeper.exit_status is None:
            try:
                await (await trio.open_tcp_stream(HOST, self._zookeeper_port)).aclose()
            except OSError:
                await trio.sleep(0.05)
            else:
                zookeeper.serves()
                return
        raise ClusterFailed(zookeeper.epitaph())

    def _announce(self, has_keys: bool) -> None:
        lines = [
            f"ottla {__version__}",
            f"  brokers         {len(self._brokers)}",
            *([f"  ZooKeeper       {HOST}:{self._zookeeper_port}"] if self._besides else []),
            f"  data directory  {self._folder}",
            f"  see             ottla cluster status{self._which}",
            *(["  keys            1 to 9 kill that broker, or start it again"] if has_keys else []),
            *self._how_to_connect(),
            *self._consoles(),
            how_to_stop(self._folder, default_data_directory()),
            f"listening on {self.bootstrap}",
        ]
        announce(lines)

    def _consoles(self) -> list[str]:
        found = [(number, each.console) for number, each in enumerate(self._brokers, 1) if each.console]
        return [f"  {'console' if number == 1 else f'  of broker {number}':15} {url}" for number, url in found]

    def _how_to_connect(self) -> list[str]:
        # The commands find the others by this one, and fit a line.
        secured, first_broker = self._secured, f"{HOST}:{self._broker_ports[0]}"
        if secured is None:
            return commands_to_try(f" -b {first_broker}")
        first, *others = secured.client_lines
        return [
            f"  client          {first}",
            *[f"                  {each}" for each in others],
            f"  tools           --command-config {secured.client_properties}",
            f"  kcat            {secured.for_kcat}",
            *commands_to_try(f" -b {first_broker} --command-config {shlex.quote(str(secured.client_properties))}"),
        ]

    async def _until_all_have_ended(self) -> None:
        while any(broker.exit_status is None for broker in self._brokers):
            await self._any_ended.wait()
        raise ClusterFailed("all brokers have ended")

    async def _end(self) -> None:
        """Stop all brokers together, then the server of the coordination tree, which they need until they end."""
        self._is_stopping = True
        for children, patience_s in ((self._brokers, self._hand_over_s + FLUSH_S), (self._besides, STOP_S)):
            first = ALL_STOP if children is self._brokers else signal.SIGTERM
            for number, wait_s in ((first, patience_s), (signal.SIGTERM, FLUSH_S), (signal.SIGKILL, KILL_S)):
                for child in children:
                    child.signal(number)
                with trio.move_on_after(wait_s):
                    await _all_ended(children)
                    break
            for child in children:
                if not child.ended.is_set():
                    print(
                        f"ottla: {child.name} does not end, and is left to the system (pid {child.pid})",
                        file=sys.stderr,
                    )


async def _all_ended(children: list[Child]) -> None:
    for child in children:
        await child.ended.wait()
