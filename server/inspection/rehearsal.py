"""What a start would do: the start itself, on a storage that changes nothing on the disk."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import trio

from ottla.replication.cluster.coordination import CoordinationUnavailable
from ottla.replication.log.storage import Storage
from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.server.broker import Broker
from ottla.server.cluster.session import JoinProblem
from ottla.server.environment import Environment
from ottla.server.inspection.overlay import Change, OverlayStorage
from ottla.server.settings.broker_config import BrokerConfig
from ottla.wire.settings import InvalidSetting

SAID_MAX = 1_000
_REFUSALS = (LogDirectoryProblem, JoinProblem, InvalidSetting, CoordinationUnavailable, OSError)


class LoadedRange(NamedTuple):
    """A log as a start would bring it back."""

    name: str
    directory: str
    log_start_offset: int
    log_end_offset: int


class Rehearsal(NamedTuple):
    """`refusal`: why a start would end before it serves anybody; None: it would serve `logs`."""

    refusal: str | None
    changes: list[Change]
    logs: list[LoadedRange]
    said: list[str]
    """What it would log as a warning or an error; of very many the first."""


def rehearse(config: BrokerConfig, storage: OverlayStorage) -> Rehearsal:
    """Start a broker up to where it would begin to serve. It listens on no port, and asks no other broker."""
    with _listening() as said:
        logs: list[LoadedRange] = []
        refusal = None
        try:
            logs = trio.run(open_broker, config, storage)
        except BaseExceptionGroup as group:
            problem: BaseException = group
            while isinstance(problem, BaseExceptionGroup) and len(problem.exceptions) == 1:
                problem = problem.exceptions[0]
            if not isinstance(problem, _REFUSALS):
                raise problem from None
            refusal = str(problem)
        except _REFUSALS as problem:
            refusal = str(problem)
    return Rehearsal(refusal, storage.changes(), logs, said)


async def open_broker(config: BrokerConfig, storage: Storage) -> list[LoadedRange]:
    """The logs of a broker that is opened on a storage, whose decisions are kept there, and which is left as it is then."""
    broker = Broker(config, Environment(storage=storage))
    async with trio.open_nursery() as sessions:
        await broker.open(sessions)
        await broker.member.keep()
        found = [
            LoadedRange(
                f"{each.topic}-{each.index}", each.log.directory, each.log.log_start_offset, each.log.log_end_offset
            )
            for each in broker.replicas.partitions()
        ]
        sessions.cancel_scope.cancel()
    return sorted(found)


class _Listener(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._said) < SAID_MAX:
            self._said.append(record.getMessage())


@contextmanager
def _listening() -> Iterator[list[str]]:
    """What is logged meanwhile, which nobody else hears."""
    said: list[str] = []
    handler, logger = _Listener(said), logging.getLogger("ottla")
    propagated = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated
