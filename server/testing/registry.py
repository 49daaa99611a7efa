"""A schema registry beside the brokers of a test, in a thread of its own: `ottla registry`, without a process."""

from __future__ import annotations

import socket
import threading
from functools import partial
from typing import Final

import trio

from ottla.server.cli.client.cluster import Cluster, parse_bootstrap
from ottla.server.cli.client.security import Security
from ottla.server.testing.errors import LabError

HOST: Final = "127.0.0.1"
PATIENCE_S: Final = 30.0


class Registry:
    """Schema registry at `url`, with Confluent's HTTP API. Its schemas are in the topic _schemas of the brokers."""

    def __init__(self, bootstrap: str) -> None:
        """Start a registry for the brokers at `bootstrap`. Raises LabError if its packages are missing."""
        try:
            from ottla.server.registry.serving import RegistryConfig, serve_registry
        except ImportError as error:
            raise LabError(f"The registry needs {error.name}: pip install 'ottla[registry]'.") from None
        self._socket = socket.create_server((HOST, 0), backlog=1024)
        self.url = f"http://{HOST}:{self._socket.getsockname()[1]}"
        reach = partial(Cluster.reached, parse_bootstrap(bootstrap), Security(), PATIENCE_S)
        self._ready = threading.Event()
        self._stopping: tuple[trio.lowlevel.TrioToken, trio.Event] | None = None

        async def serve() -> None:
            stopping = trio.Event()
            self._stopping = trio.lowlevel.current_trio_token(), stopping
            await serve_registry(RegistryConfig(), self._socket, reach, self._ready.set, stopping)

        self._thread = threading.Thread(target=trio.run, args=[serve], name="ottla-registry", daemon=True)
        self._thread.start()
        if not self._ready.wait(PATIENCE_S):
            raise LabError(f"The registry has not read its topic within {PATIENCE_S:g} s; are the brokers well?")

    def __str__(self) -> str:
        return self.url

    def close(self) -> None:
        """Stop to serve. A second call does nothing."""
        if self._stopping is not None:
            (token, stopping), self._stopping = self._stopping, None
            token.run_sync_soon(stopping.set)
            self._thread.join(PATIENCE_S)
            self._socket.close()
