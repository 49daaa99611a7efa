"""A proxy from start to end, in one process: the client of the cluster, the consumer instances and the listener."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from ottla.replication.log.descriptors import Descriptors
from ottla.server.admin.http.routes import Pace
from ottla.server.admin.http.server import ConnectionLimits, HttpServer, Room
from ottla.server.cli.client.connection import Address
from ottla.server.cli.client.security import Security
from ottla.server.rest.api import BODY_BYTES_MAX, RestApi, RestGuard
from ottla.server.rest.client.cluster import KafkaCluster
from ottla.server.rest.client.producer import KafkaProducer
from ottla.server.rest.errors import RestError
from ottla.server.rest.logins import Logins
from ottla.server.rest.v2.consumers import Consumers
from ottla.server.rest.v2.instances import INSTANCE_TIMEOUT_S, Instances
from ottla.server.rest.v2.topics import TopicsV2
from ottla.server.rest.v3.acls import Acls
from ottla.server.rest.v3.clusters import Clusters
from ottla.server.rest.v3.groups import Groups
from ottla.server.rest.v3.records import Records
from ottla.server.rest.v3.resources import Scoped
from ottla.server.rest.v3.topics import Topics

if TYPE_CHECKING:
    import ssl

    from ottla.server.rest.schemas.registry import RegistryConfig
    from ottla.server.rest.schemas.schemas import Schemas

logger = logging.getLogger("ottla.rest")

BODIES_BYTES_MAX = 256 << 20
CONNECTIONS_MAX = 2000
PER_ADDRESS_MAX = 1500
"""A proxy, or a host with many processes, is one address."""


@dataclass(frozen=True, kw_only=True)
class RestConfig:
    """Settings of one proxy."""

    bootstrap: Sequence[Address]
    security: Security = field(default_factory=Security)
    body_bytes_max: int = BODY_BYTES_MAX
    instance_timeout_s: float = INSTANCE_TIMEOUT_S
    context: ssl.SSLContext | None = None
    logins: Logins | None = None
    registry: RegistryConfig | None = None
    """Where schemas are; None: formats with schemas are not served."""


class FreePace(Pace):
    """Pace without pauses, because the event loop serves only these requests."""

    async def request(self) -> None:
        """Go on at once."""

    async def pay(self, worked_s: float) -> None:
        """Let others run after long work."""
        await trio.lowlevel.checkpoint()


async def serve_rest(
    config: RestConfig, sock: socket.socket, on_ready: Callable[[], None], stopping: trio.Event
) -> None:
    """Serve a listening socket until `stopping`. `on_ready` is called when the proxy accepts requests."""
    cluster = KafkaCluster(config.bootstrap, config.security)
    api = RestApi("http" if config.context is None else "https", config.body_bytes_max, config.logins)
    schemas = None if config.registry is None else _schemas(config.registry)
    producer, instances = KafkaProducer(cluster), Instances(cluster, config.instance_timeout_s, schemas)
    add_v2(api, cluster, producer, instances, schemas)
    add_v3(api, cluster, producer, config.body_bytes_max, schemas)
    guard = RestGuard(sock.getsockname()[0])
    bodies = Room(max(BODIES_BYTES_MAX, config.body_bytes_max))
    limits = ConnectionLimits(CONNECTIONS_MAX, PER_ADDRESS_MAX)
    server = HttpServer(api, guard, Descriptors(), FreePace(), limits, config.context, bodies)
    # Instances leave their groups at the end, for which the cluster has to be there until then.
    last = trio.CancelScope(shield=True)

    async def carry(task_status: trio.TaskStatus[None]) -> None:
        with last:
            await cluster.run(task_status)

    async with trio.open_nursery() as outer:
        await outer.start(carry)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(instances.run)
                nursery.start_soon(_greet, cluster)
                nursery.start_soon(_hasten, instances, stopping)
                on_ready()
                await server.run_until(stopping, sock)
                nursery.cancel_scope.cancel()
        finally:
            last.cancel()


async def _hasten(instances: Instances, stopping: trio.Event) -> None:
    await stopping.wait()
    instances.hasten()


def _schemas(config: RegistryConfig) -> Schemas:
    from ottla.server.rest.schemas.schemas import Schemas

    return Schemas(config)


def add_v2(
    api: RestApi,
    cluster: KafkaCluster,
    producer: KafkaProducer,
    instances: Instances,
    schemas: Schemas | None = None,
) -> None:
    """Add the paths of the second version."""
    TopicsV2(cluster, producer, schemas).add_to(api)
    Consumers(cluster, instances).add_to(api)


def add_v3(
    api: RestApi,
    cluster: KafkaCluster,
    producer: KafkaProducer,
    value_bytes_max: int,
    schemas: Schemas | None = None,
) -> None:
    """Add the paths of the third version."""
    scoped = Scoped(api, cluster)
    Clusters(cluster).add_to(api, scoped)
    Topics(cluster).add_to(scoped)
    Acls(cluster).add_to(scoped)
    Groups(cluster).add_to(scoped)
    Records(producer, value_bytes_max, schemas).add_to(scoped)


async def _greet(cluster: KafkaCluster) -> None:
    try:
        await cluster.refreshed(())
        logger.info("the cluster is %s, with brokers %s", cluster.cluster_id, cluster.known_brokers)
    except RestError as error:
        logger.warning("the cluster cannot be reached yet: %s", error)
