"""A process that is a broker: its signals, its limit of descriptors, and how its interpreter is set up."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from ottla.replication import system
from ottla.replication.log.descriptors import Descriptors, raise_limit
from ottla.server.process.signals import STOPPING, StopSignals
from ottla.server.serving import StartupError, checked_limit, serve

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.settings.broker_config import BrokerConfig

NEVER = 2**31 - 1
SWITCH_SECONDS = 0.0005
"""How soon a thread that computes lets others go on: the event loop is not to wait for threads."""


async def run_broker(config: BrokerConfig, *, on_ready: Callable[[Broker], None]) -> None:
    """Run a broker until a signal stops it (`signals.py`). Raises StartupError if it cannot start, or stops for want of a disk."""
    problem: StartupError | KeyboardInterrupt | None = None
    with trio.open_signal_receiver(*STOPPING) as signals:
        descriptors, stop = Descriptors(checked_limit(raise_limit())), StopSignals()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop.heed, signals)
            if "NOTIFY_SOCKET" in os.environ:
                on_ready = _telling_service_manager(nursery, stop, on_ready)
            try:
                await serve(
                    config, stop=stop, on_ready=on_ready, before_serving=settle_interpreter, descriptors=descriptors
                )
            except (StartupError, KeyboardInterrupt) as error:
                # Raised outside the nursery, which would wrap it into a group.
                problem = error
            nursery.cancel_scope.cancel()
    if problem is not None:
        raise problem


def _telling_service_manager(
    nursery: trio.Nursery, stop: StopSignals, on_ready: Callable[[Broker], None]
) -> Callable[[Broker], None]:
    from ottla.server.process.service_manager import ServiceManager

    manager = ServiceManager.of(os.environ)
    if manager is None:
        return on_ready

    async def tell_of_stop() -> None:
        await stop.asked.wait()
        manager.stopping()

    def tell(broker: Broker) -> None:
        on_ready(broker)
        manager.serving()

    nursery.start_soon(manager.keep_informed)
    nursery.start_soon(tell_of_stop)
    return tell


def settle_interpreter() -> None:
    """Keep the interpreter from holding up the event loop.

    Young garbage is collected as ever, but few objects at a time, since a thousand take up to a millisecond: large requests
    in work may hold millions. There is no full collection. It would take a tenth of a second, and find nothing: objects
    that grow old in a broker are its topics, partitions and groups, and circles of garbage are broken where they are made
    (`make siege` counts them). A thread that computes gives way sooner. Memory that was needed once goes back to the system.
    """
    system.keep_little_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    # What is there stays, and is not looked at again. To look for what does not would take a tenth of the start, and find next to nothing.
    gc.freeze()
    gc.set_threshold(2_000, 3, NEVER)
