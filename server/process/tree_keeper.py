"""The process that holds the coordination tree of several workers, whose supervisor has forked it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ottla.replication.hosting.directories import LogDirectoryProblem
from ottla.server.coordination.serving import TreeBroken, hold_tree
from ottla.server.process import log_lines
from ottla.server.process.fleet import EXIT_FAILED, EXIT_OK
from ottla.server.process.running import settle_interpreter
from ottla.server.process.worker import beat

if TYPE_CHECKING:
    from ottla.server.process.supervisor import Report

EXPECTED = (LogDirectoryProblem, OSError, TreeBroken)
"""What an operator can do something about."""


def keep_tree(
    directory: Path, where: Path, report: Report, *, log_level: str, log_format: str, beat_s: float | None
) -> int:
    """Hold the tree whose journal is in this directory until a signal comes; gives the exit status.

    `beat_s`: how often the supervisor is to hear that the event loop goes round; None: never.
    """
    log_lines.set_up(log_level, log_format, "tree")
    problem = trio.run(_keep, directory, where, report, beat_s)
    if problem is None:
        return EXIT_OK
    report.problem(f"{problem}")
    return EXIT_FAILED


async def _keep(directory: Path, where: Path, report: Report, beat_s: float | None) -> BaseException | None:
    problem: BaseException | None = None
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(hold_tree, directory, where)
                settle_interpreter()
                report.ready()
                if beat_s is not None:
                    nursery.start_soon(beat, report, beat_s)
                async for _ in signals:
                    nursery.cancel_scope.cancel()
        except* EXPECTED as group:
            problem = _first(group)
    return problem


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
