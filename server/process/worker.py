"""One of several workers: a broker in a process that a supervisor has forked."""

from __future__ import annotations

import faulthandler
from typing import TYPE_CHECKING

import trio

from ottla.server.process import log_lines
from ottla.server.process.fleet import EXIT_FAILED, EXIT_OK
from ottla.server.process.running import run_broker
from ottla.server.serving import StartupError

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.process.supervisor import Report
    from ottla.server.settings.broker_config import BrokerConfig


def run_worker(config: BrokerConfig, report: Report, *, log_level: str, log_format: str, beat_s: float | None) -> int:
    """Run a broker until a signal ends it; gives the exit status.

    `beat_s`: how often the supervisor is to hear that the event loop goes round; None: never.
    """
    assert config.worker is not None
    log_lines.set_up(log_level, log_format, f"worker {config.worker.number}")
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
    """Tell the supervisor again and again that the event loop goes round."""
    # Who stands still is ended by SIGABRT, and then writes what it was at.
    faulthandler.enable()
    while True:
        report.beat()
        await trio.sleep(interval_s)
