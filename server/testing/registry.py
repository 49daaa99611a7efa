"""A schema registry beside the brokers of a test: `ottla registry`, without a process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from ottla.server.cli.client.cluster import Cluster, parse_bootstrap
from ottla.server.cli.client.security import Security
from ottla.server.testing.errors import LabError
from ottla.server.testing.service import PATIENCE_S, Service

HOST: Final = "127.0.0.1"


class Registry(Service):
    """Schema registry at `url`, with Confluent's HTTP API. Its schemas are in the topic _schemas of the brokers."""

    def __init__(self, bootstrap: str, security: Security, port: int = 0) -> None:
        """Start a registry for the brokers at `bootstrap`, reached by `security`. Raises LabError if its packages are missing."""
        try:
            from ottla.server.registry.serving import RegistryConfig, serve_registry
        except ImportError as error:
            raise LabError(f"The registry needs {error.name}: pip install 'ottla[registry]'.") from None
        super().__init__("registry", HOST, port)
        reach = partial(Cluster.reached, parse_bootstrap(bootstrap), security, PATIENCE_S)

        async def serve(on_ready: Callable[[], None], stopping: trio.Event) -> None:
            await serve_registry(RegistryConfig(), self._socket, reach, on_ready, stopping)

        self._begin(serve)

    def __str__(self) -> str:
        return self.url
