"""`ottla start` with num.workers: several brokers in processes of their own, and the process that looks after them.

    supervisor    the process that was started: no broker, no event loop (`supervisor.py`, `fleet.py`)
      |- the coordination tree    in the data directory, served to the workers by its keeper; not if they share another one
      |- worker 0, worker 1, ...  a broker each, forked from what the supervisor has imported

What differs from worker to worker is in `server/config/worker_places.py`, their folders in `server/cluster/start/worker_folders.py`.

    what happens                                   the keeper                    its supervisor
    its disk has no room, or the machine is short  refuses writes, or waits to   (hears of nothing)
    of something                                   begin, and goes on by itself
    its disk is broken, its journal is gone        says why, and ends            stops all: nothing goes on without a tree
    or damaged
    a bug, a signal                                ends                          starts another one, and the workers wait

The first keeper of a start does not wait, so that the user learns at once why the workers do not start.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import socket
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.replication import system
from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.server.cluster.coordination.tree_server import TreeBroken, hold_tree
from ottla.server.cluster.start.worker_folders import hold_folders, looks
from ottla.server.config.loggers import set_up_log
from ottla.server.config.worker_places import Ports, tree_socket, wanted_ports, worker_config
from ottla.server.launch.banner import worker_console, workers_banner
from ottla.server.launch.fleet import EXIT_FAILED, EXIT_OK
from ottla.server.launch.running import ServiceManager, run_broker, settle_interpreter
from ottla.server.launch.signals import STOPPING
from ottla.server.launch.supervisor import Program, Supervisor
from ottla.server.network.listener import bind
from ottla.server.serving import PORT_HINT, StartupError, cannot_listen
from ottla.server.standard_streams import announce

if TYPE_CHECKING:
    from ottla.replication.log.storage import DirectoryLock
    from ottla.server.broker import Broker
    from ottla.server.config.broker_config import BrokerConfig
    from ottla.server.config.endpoint import Endpoint
    from ottla.server.launch.supervisor import Report


def run_worker(config: BrokerConfig, report: Report, *, log_level: str, log_format: str, beat_s: float | None) -> int:
    """Run a worker's broker until a signal; return the exit status. `beat_s`: seconds per heartbeat, None: none."""
    assert config.worker is not None
    set_up_log(log_level, log_format, f"worker {config.worker.number}")
    try:
        trio.run(_run, config, report, beat_s)
    except StartupError as error:
        report.problem(str(error))
        return EXIT_FAILED
    return EXIT_OK


async def _run(config: BrokerConfig, report: Report, beat_s: float | None) -> None:
    problem: StartupError | None = None

    def tell(broker: Broker) -> None:
        report.ready(
            cluster_id=broker.cluster.cluster_id, http_address=broker.http_address, http_token=broker.http_token
        )

    async with trio.open_nursery() as nursery:
        if beat_s is not None:
            nursery.start_soon(beat, report, beat_s)
        try:
            await run_broker(config, on_ready=tell)
        except StartupError as error:
            # Raised outside the nursery, which would wrap it into a group.
            problem = error
        nursery.cancel_scope.cancel()
    if problem is not None:
        raise problem


async def beat(report: Report, interval_s: float) -> None:
    """Send heartbeats to the supervisor from the event loop, every `interval_s` seconds."""
    # Who stands still is ended by SIGABRT, and then writes what it was at.
    faulthandler.enable()
    while True:
        report.beat()
        await trio.sleep(interval_s)


class _CannotKeep(Exception):
    """Raised if the coordination tree has a problem that the operator must solve. The text is one line."""


def keep_tree(
    directory: Path, where: Path, report: Report, *, log_level: str, log_format: str, beat_s: float | None
) -> int:
    """Serve `directory`'s tree until a signal; return the exit status. `beat_s`: seconds per heartbeat, None: none."""
    set_up_log(log_level, log_format, "tree")
    problem = trio.run(_keep, directory, where, report, beat_s)
    if problem is None:
        return EXIT_OK
    report.problem(f"{problem}")
    return EXIT_FAILED


async def _keep(directory: Path, where: Path, report: Report, beat_s: float | None) -> BaseException | None:
    problem: BaseException | None = None
    with trio.open_signal_receiver(*STOPPING) as signals:
        try:
            async with trio.open_nursery() as nursery:
                # At once, because it may have to wait long for room.
                nursery.start_soon(_end_by_signal, signals, nursery.cancel_scope)
                last_incarnation = report.told_before.get("era", 0)
                incarnation = await nursery.start(partial(_hold, directory, where, last_incarnation, report))
                settle_interpreter()
                report.ready(era=incarnation)
                if beat_s is not None:
                    nursery.start_soon(beat, report, beat_s)
        except* _CannotKeep as group:
            problem = _first(group)
    return problem


async def _end_by_signal(signals: AsyncIterator[int], all_of_it: trio.CancelScope) -> None:
    async for _ in signals:
        all_of_it.cancel()


async def _hold(
    directory: Path, where: Path, last_incarnation: int, report: Report, task_status: trio.TaskStatus[int]
) -> None:
    """Serve the coordination tree to workers. Raises _CannotKeep; other exceptions, even OSError, are bugs."""
    try:
        # The supervisor has to know the latest: an older journal is refused by it.
        await hold_tree(
            directory,
            where,
            last_incarnation=last_incarnation,
            on_other_incarnation=lambda incarnation: report.ready(era=incarnation),
            task_status=task_status,
        )
    except (LogDirectoryProblem, OSError, TreeBroken) as problem:
        raise _CannotKeep(str(problem)) from None


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


PATIENCE_S: Final = 5.0  # for the sockets of workers of a start that was killed, which the kernel is just ending
LOOKS_AT_OTHERS: Final = 25  # at a port that others than workers have


class HeldPorts:
    """Ports of several workers, reserved by the supervisor as long as it lives. `by_listener`: the ports, never 0.

    Each port is first bound exclusively, to find a port in use immediately, and to keep two clusters from sharing a
    bootstrap address. Then the workers bind the same ports (SO_REUSEPORT). The supervisor does not listen, so no
    connection waits for a worker that has ended, and a restarted worker finds its port free.
    """

    def __init__(self, config: BrokerConfig, wanted: Mapping[str, Ports]) -> None:
        """Reserve the ports. Raises StartupError, which names the address that cannot be bound."""
        self._sockets: list[socket.socket] = []
        self._static = config.static
        try:
            self.by_listener = {
                each.listener: Ports(
                    self._hold(each, wanted[each.listener].shared),
                    [self._hold(each, port) for port in wanted[each.listener].own],
                )
                for each in config.listeners
            }
        except BaseException:
            self.close()
            raise

    def _hold(self, endpoint: Endpoint, port: int) -> int:
        try:
            sock = _patiently_bound(endpoint.host, port)
        except OSError as error:
            place = f"{endpoint.listener}://{endpoint.host}:{port}"
            told = place if port == endpoint.port else f"{place}, which a worker needs for itself"
            is_chosen = "listeners" in self._static or port != endpoint.port
            raise cannot_listen(told, port, error, "" if is_chosen else PORT_HINT) from None
        self._sockets.append(sock)
        # From now on another process gets it only if it asks for company, as the workers do.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held: int = sock.getsockname()[1]
        return held

    def close(self) -> None:
        """Close the sockets that reserve the ports."""
        for sock in self._sockets:
            sock.close()


def _patiently_bound(host: str, port: int) -> socket.socket:
    """Bind a port, waiting for an ending process to free it; return the socket. Raises OSError if that fails."""
    problem = OSError("never looked at")
    at_others = 0
    for _ in looks(PATIENCE_S):
        try:
            return bind(host, port)
        except OSError as error:
            problem = error
        # Workers that end may get no processor for long. Nobody else is worth the wait.
        at_others += not _is_shared(host, port)
        if at_others > LOOKS_AT_OTHERS:
            break
    raise problem


def _is_shared(host: str, port: int) -> bool:
    """Return True if the port is held only by processes of this user that share it, such as workers."""
    try:
        bind(host, port, with_others=True).close()
    except OSError:
        return False
    return True


TREE = "the coordination tree"


def run_workers(
    texts: Mapping[str, str],
    config: BrokerConfig,
    count: int,
    *,
    log_level: str,
    log_format: str,
    for_scripts: str | None = None,
) -> None:
    """Run the workers until SIGTERM or Ctrl-C; `texts`: the given settings, `config`: parsed from them.

    `for_scripts`: another line of the banner; None: there is none.

    Raises ConfigError, or StartupError if the workers cannot start or had to stop.
    """
    if not system.SHARES_PORTS:
        raise StartupError(f"num.workers={count}: several workers need Linux; start with num.workers=1")
    wanted = wanted_ports(config, count)
    # Once with ports that are not known yet: a setting that some worker cannot have is told before anything is touched.
    for number in range(count):
        worker_config(texts, config, number, count, wanted)
    lock = _hold_folders(config, count)
    held = HeldPorts(config, wanted)
    ports = held.by_listener
    manager = ServiceManager.of(os.environ)
    beat_s = None if manager is None or manager.watchdog_s is None else manager.interval_s
    run = partial(run_worker, log_level=log_level, log_format=log_format, beat_s=beat_s)
    workers = [worker_config(texts, config, number, count, ports) for number in range(count)]
    programs: dict[str, Program] = {f"worker {number}": partial(run, each) for number, each in enumerate(workers)}
    if not config.is_member:
        where = (config.log_dirs[0], tree_socket(config.log_dirs[0]))
        programs[TREE] = partial(keep_tree, *where, log_level=log_level, log_format=log_format, beat_s=beat_s)
    supervisor = Supervisor(
        programs,
        keeper=None if config.is_member else TREE,
        hand_over_s=config.member.controlled_shutdown_timeout_ms / 1000,
        announce=lambda told: announce(workers_banner(config, ports, workers, told, for_scripts)),
        announce_again=_announce_again,
        manager=manager,
    )
    _share_what_is_imported()
    failure = supervisor.run()
    held.close()
    lock.release()
    if failure:
        raise StartupError(failure)


def _hold_folders(config: BrokerConfig, count: int) -> DirectoryLock:
    try:
        return hold_folders(
            config.log_dirs,
            count,
            node_id=config.node_id,
            accepted=config.accepted_log_dirs,
            has_journal=not config.is_member,
            readable_by=config.server.log_dirs_readable_by,
        )
    except LogDirectoryProblem as problem:
        raise StartupError(str(problem)) from None
    except OSError as error:
        raise StartupError(f"cannot use the data directory: {error}") from None


def _share_what_is_imported() -> None:
    """Import the workers' modules before the fork and freeze their objects, so that workers share the memory."""
    # Each is imported where it is needed, too.
    from ottla.replication.controller import alter_partition, elect_leaders  # noqa: F401
    from ottla.replication.fetcher import fetcher_manager  # noqa: F401
    from ottla.replication.log import cleaner  # noqa: F401
    from ottla.replication.partition import fetch_session  # noqa: F401
    from ottla.replication.replica_manager import alter_partition_manager  # noqa: F401
    from ottla.server import coordinator_factory  # noqa: F401
    from ottla.server.api.handlers import controller_requests, metadata, produce  # noqa: F401
    from ottla.server.cluster.coordination import tree_client  # noqa: F401
    from ottla.server.cluster.start import member_trees  # noqa: F401
    from ottla.server.peers import tcp  # noqa: F401

    system.keep_little_memory()
    gc.freeze()
    system.give_free_memory_back()


def _announce_again(number: int, told: Mapping[str, Any]) -> None:
    """Print the HTTP address of a restarted worker, with its new token unless the settings fix the token."""
    if lines := worker_console(number, told):
        announce(lines)
