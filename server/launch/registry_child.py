"""`ottla start --registry`: a schema registry beside a broker, as a process of its own that ends with it."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import trio

from ottla.replication.system import dying_with_this_process
from ottla.server.config.endpoint import host_and_port
from ottla.server.launch.cluster_children import wait_for
from ottla.server.serving import StartupError

if TYPE_CHECKING:
    from ottla.server.broker import Broker

logger = logging.getLogger("ottla.broker")

AGAIN_S: Final = 2.0
"""Pause before a registry that has ended is started again."""

END_S: Final = 5.0
_ANYWHERE = ("", "0.0.0.0", "::")
OnReady = Callable[["Broker"], None]


def registry_command(broker: Broker, listen: str, more: Sequence[str]) -> list[str]:
    """Return the command that runs a schema registry for this broker; there is only one, so it holds no elections."""
    ports = {each.name: each.port for each in broker.listeners}
    listeners = broker.config.listeners
    plain = [each for each in listeners if each.security_protocol == "PLAINTEXT"]
    endpoint = (plain or listeners)[0]
    host = "127.0.0.1" if endpoint.host in _ANYWHERE else endpoint.host
    address = host_and_port(host, ports[endpoint.listener])
    return [sys.executable, "-m", "ottla", "registry", "--alone", "--listen", listen, "-b", address, *more]


async def run_with_registry(
    run_broker: Callable[[OnReady], Awaitable[None]], listen: str, more: Sequence[str], on_ready: OnReady
) -> None:
    """Run a broker, and a schema registry as long as the broker serves. Raises the broker's errors."""
    problem: StartupError | KeyboardInterrupt | None = None
    async with trio.open_nursery() as nursery:

        def ready(broker: Broker) -> None:
            nursery.start_soon(keep_running, registry_command(broker, listen, more))
            on_ready(broker)

        try:
            await run_broker(ready)
        except (StartupError, KeyboardInterrupt) as error:
            # Raised outside the nursery, which would wrap it into a group.
            problem = error
        nursery.cancel_scope.cancel()
    if problem is not None:
        raise problem


async def keep_running(command: Sequence[str]) -> None:
    """Run a schema registry until cancelled; restart it whenever it ends."""
    while True:
        # Its log lines go where the broker's go. It dies with the thread that starts it, so that has to be this one.
        process = subprocess.Popen(  # noqa: ASYNC220
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            preexec_fn=dying_with_this_process(),  # noqa: PLW1509 - it takes no lock that another thread may hold
        )
        try:
            await wait_for(process)
        finally:
            with trio.CancelScope(shield=True):
                await _end(process)
        logger.error("the schema registry has ended with status %d; it is started again", process.returncode)
        await trio.sleep(AGAIN_S)


async def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process; kill it if it does not end in time."""
    process.terminate()
    with trio.move_on_after(END_S):
        await wait_for(process)
    if process.returncode is None:
        process.kill()
        await wait_for(process)
