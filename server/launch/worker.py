"""The processes that a supervisor of workers forks: each worker, which is a broker, and the keeper of their coordination tree.

    what happens                                   the keeper                    its supervisor
    its disk has no room, or the machine is short  refuses writes, or waits to   (hears of nothing)
    of something                                   begin, and goes on by itself
    its disk is broken, its journal is gone        says why, and ends            stops all: nothing goes on without a tree
    or damaged
    a bug, a signal                                ends                          starts another one, and the workers wait

The first keeper of a start does not wait: whoever starts the workers is to hear at once why they do not begin.
"""

from __future__ import annotations

import faulthandler
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.server.cluster.coordination.tree_server import TreeBroken, hold_tree
from ottla.server.config.loggers import set_up_log
from ottla.server.launch.fleet import EXIT_FAILED, EXIT_OK
from ottla.server.launch.running import run_broker, settle_interpreter
from ottla.server.launch.signals import STOPPING
from ottla.server.serving import StartupError

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.config.broker_config import BrokerConfig
    from ottla.server.launch.supervisor import Report


def run_worker(config: BrokerConfig, report: Report, *, log_level: str, log_format: str, beat_s: float | None) -> int:
    """Run a broker until a signal ends it; gives the exit status.

    `beat_s`: how often the supervisor is to hear that the event loop goes round; None: never.
    """
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
    """Send beats to the supervisor while the event loop goes round."""
    # Who stands still is ended by SIGABRT, and then writes what it was at.
    faulthandler.enable()
    while True:
        report.beat()
        await trio.sleep(interval_s)


class _CannotKeep(Exception):
    """A problem of the tree that an operator has to solve; one line."""


def keep_tree(
    directory: Path, where: Path, report: Report, *, log_level: str, log_format: str, beat_s: float | None
) -> int:
    """Hold the tree whose journal is in this directory until a signal comes; gives the exit status.

    `beat_s`: how often the supervisor is to hear that the event loop goes round; None: never.
    """
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
    """Raises _CannotKeep. Whatever else is raised is a bug, be it an OSError: what serves members raises it in a group."""
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
