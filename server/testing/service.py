"""HTTP services beside the brokers of a test: the control port and the schema registry, each in a thread of its own.

Their time is the real one: an advance of the brokers' clock must not end their requests.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

from ottla.server.testing.errors import LabError

PATIENCE_S = 30.0


class Service:
    """Listening socket, and the thread that serves it from `_begin` to `close`."""

    def __init__(self, name: str, host: str, port: int) -> None:
        """Listen on HOST:PORT; 0 is any free port. Raises OSError."""
        self._name, self._host = name, host
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=1024)
        self.port: int = self._socket.getsockname()[1]
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopping: tuple[trio.lowlevel.TrioToken, trio.Event] | None = None

    @property
    def url(self) -> str:
        """URL of the service, without a path."""
        return f"http://[{self._host}]:{self.port}" if ":" in self._host else f"http://{self._host}:{self.port}"

    def close(self) -> None:
        """Answer the requests under way, and stop listening. A second call does nothing."""
        if self._thread is not None:
            if self._stopping is not None:
                token, stopping = self._stopping
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(stopping.set)
            self._thread.join(PATIENCE_S)
            self._thread = None
        self._socket.close()

    def _begin(self, serve: Callable[[Callable[[], None], trio.Event], Awaitable[None]]) -> None:
        """Run `serve(on_ready, stopping)` in a thread; return when it is ready. Raises LabError after PATIENCE_S."""

        async def run() -> None:
            stopping = trio.Event()
            self._stopping = trio.lowlevel.current_trio_token(), stopping
            await serve(self._ready.set, stopping)

        self._thread = threading.Thread(target=trio.run, args=[run], name=f"ottla-{self._name}", daemon=True)
        self._thread.start()
        if not self._ready.wait(PATIENCE_S):
            self.close()
            raise LabError(f"The {self._name} does not serve after {PATIENCE_S:g} s; are the brokers well?")
