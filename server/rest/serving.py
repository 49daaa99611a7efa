"""A proxy from start to end, in one process: the listener, and what answers by one login at the brokers or by those of requests."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import trio

from ottla.replication.log.descriptors import Descriptors
from ottla.server.admin.http.routes import Routes
from ottla.server.admin.http.server import HttpServer, Room
from ottla.server.admin.http.standalone import LIMITS, ApiGuard, FreePace
from ottla.server.cli.client.connection import Address
from ottla.server.cli.client.security import Security
from ottla.server.config.sasl_rules import PeerLoginConfig
from ottla.server.rest.api import BODY_BYTES_MAX, RestApi
from ottla.server.rest.backend import Backend
from ottla.server.rest.client.cluster import IDLE_MAX, KafkaCluster
from ottla.server.rest.logins import Logins
from ottla.server.rest.v2.instances import INSTANCE_TIMEOUT_S, Instances, ReadingRoom

if TYPE_CHECKING:
    import ssl

    from ottla.server.rest.propagation import Login
    from ottla.server.rest.schemas.registry import RegistryConfig
    from ottla.server.rest.schemas.schemas import Schemas

IDLE_OF_USER_MAX = 4
"""Connections to a broker that are kept for later, for each login of requests."""

BODIES_BYTES_MAX = 256 << 20


@dataclass(frozen=True, kw_only=True)
class RestConfig:
    """Settings of a proxy."""

    bootstrap: Sequence[Address]
    security: Security = field(default_factory=Security)
    body_bytes_max: int = BODY_BYTES_MAX
    instance_timeout_s: float = INSTANCE_TIMEOUT_S
    context: ssl.SSLContext | None = None
    logins: Logins | None = None
    propagates: bool = False
    """Requests are carried out by their own logins; `security` has the mechanism."""
    registry: RegistryConfig | None = None
    """Where schemas are; None: formats with schemas are not served."""


async def serve_rest(
    config: RestConfig, sock: socket.socket, on_ready: Callable[[], None], stopping: trio.Event
) -> None:
    """Serve on a listening socket until `stopping` is set. `on_ready` is called when the proxy accepts requests."""
    make = _maker(config)
    routes: Routes
    hasten: Callable[[], None]
    async with trio.open_nursery() as nursery:
        if config.propagates:
            from ottla.server.rest.propagation import Backends, PropagatingApi

            backends = Backends(lambda login: make(_security_of(config.security, login), None))
            await nursery.start(backends.run)
            routes, hasten = PropagatingApi(backends, config.body_bytes_max, config.logins), backends.hasten
        else:
            backend = make(config.security, config.logins)
            await nursery.start(backend.run)
            nursery.start_soon(backend.greet)
            routes, hasten = backend.api, backend.instances.hasten
        nursery.start_soon(_hasten, hasten, stopping)
        on_ready()
        await _server(config, routes, sock).run_until(stopping, sock)
        nursery.cancel_scope.cancel()


def _maker(config: RestConfig) -> Callable[[Security, Logins | None], Backend]:
    """Return a function that makes a backend. All its backends share limits and schemas."""
    schemas = None if config.registry is None else _schemas(config.registry)
    scheme, bytes_max, room = "http" if config.context is None else "https", config.body_bytes_max, ReadingRoom()
    idle_max = IDLE_OF_USER_MAX if config.propagates else IDLE_MAX

    def make(security: Security, logins: Logins | None) -> Backend:
        cluster = KafkaCluster(config.bootstrap, security, idle_max)
        instances = Instances(cluster, config.instance_timeout_s, schemas, room)
        return Backend(cluster, RestApi(scheme, bytes_max, logins), instances, bytes_max, schemas)

    return make


def _server(config: RestConfig, routes: Routes, sock: socket.socket) -> HttpServer:
    guard = ApiGuard(sock.getsockname()[0])
    bodies = Room(max(BODIES_BYTES_MAX, config.body_bytes_max))
    return HttpServer(routes, guard, Descriptors(), FreePace(), LIMITS, config.context, bodies)


def _security_of(security: Security, login: Login) -> Security:
    """Return the security of connections that use a request's login, with the mechanism of `security`."""
    assert isinstance(security.login, PeerLoginConfig), "the command sees to it"
    return replace(security, login=replace(security.login, name=login.name, password=login.password))


async def _hasten(hasten: Callable[[], None], stopping: trio.Event) -> None:
    await stopping.wait()
    hasten()


def _schemas(config: RegistryConfig) -> Schemas:
    from ottla.server.rest.schemas.schemas import Schemas

    return Schemas(config)
