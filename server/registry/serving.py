"""A registry from start to end, in one process: the topic, the election and the listener."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from ottla.replication.log.descriptors import Descriptors
from ottla.server.admin.http.server import HttpServer
from ottla.server.admin.http.standalone import LIMITS, ApiGuard, FreePace
from ottla.server.registry.access import Access
from ottla.server.registry.api import RegistryApi
from ottla.server.registry.election import Election, Identity
from ottla.server.registry.forwarding import Alone, Others
from ottla.server.registry.judging import Judging
from ottla.server.registry.reading import Reading
from ottla.server.registry.state import RegistryState
from ottla.server.registry.topic import Reach, SchemasTopic
from ottla.server.registry.writing import Writing

if TYPE_CHECKING:
    import ssl

logger = logging.getLogger("ottla.registry")


@dataclass(frozen=True, kw_only=True)
class RegistryConfig:
    """Settings of a registry."""

    topic: str = "_schemas"
    group: str = "schema-registry"
    compatibility: str = "BACKWARD"
    access: Access = field(default_factory=Access)
    context: ssl.SSLContext | None = None
    identity: Identity | None = None
    """Address of this instance for the others; None: there are no others."""
    others_context: ssl.SSLContext | None = None
    """TLS context for a primary with https."""


async def serve_registry(
    config: RegistryConfig,
    sock: socket.socket,
    reach: Reach,
    on_ready: Callable[[], None],
    stopping: trio.Event,
    descriptors: Descriptors | None = None,
) -> None:
    """Serve a listening socket until `stopping`. Calls `on_ready` when the schemas topic is read to its end.

    `descriptors` limits the connections; None: no limit of descriptors.
    """
    state = RegistryState(config.compatibility)
    topic = SchemasTopic(reach, config.topic, state)
    judging = Judging(state)
    writing = Writing(state, topic, judging)
    election = None if config.identity is None else Election(reach, config.group, config.identity, topic)
    others = Alone() if election is None else Others(election, config.others_context)
    api = RegistryApi(Reading(state), writing, judging, topic, others, config.access, config.group)
    guard = ApiGuard(sock.getsockname()[0])
    server = HttpServer(api, guard, descriptors or Descriptors(), FreePace(), LIMITS, config.context)

    async def tell() -> None:
        await topic.loaded.wait()
        logger.info("%s is read: %d schemas of %d subjects", topic.name, state.schema_count, len(state.names))
        on_ready()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(topic.run)
        if election is not None:
            nursery.start_soon(election.run)
        nursery.start_soon(tell)
        await server.run_until(stopping, sock)
        nursery.cancel_scope.cancel()
