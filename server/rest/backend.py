"""Backend: one login at the brokers, with the client of the cluster, the consumer instances and the paths that use it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from ottla.server.admin.http.routes import Request, Response
from ottla.server.rest.api import RestApi, content_type
from ottla.server.rest.client.cluster import KafkaCluster
from ottla.server.rest.client.producer import KafkaProducer
from ottla.server.rest.errors import RestError
from ottla.server.rest.v2.consumers import Consumers
from ottla.server.rest.v2.instances import Instances
from ottla.server.rest.v2.topics import TopicsV2
from ottla.server.rest.v3.acls import Acls
from ottla.server.rest.v3.clusters import Clusters
from ottla.server.rest.v3.groups import Groups
from ottla.server.rest.v3.records import Records
from ottla.server.rest.v3.resources import Scoped
from ottla.server.rest.v3.topics import Topics

if TYPE_CHECKING:
    from ottla.server.rest.schemas.schemas import Schemas

logger = logging.getLogger("ottla.rest")


class Backend:
    """Client of the brokers with one login, and the request handlers for this login. `run` must run meanwhile."""

    def __init__(
        self, cluster: KafkaCluster, api: RestApi, instances: Instances, value_bytes_max: int, schemas: Schemas | None
    ) -> None:
        self.cluster, self.api, self.instances = cluster, api, instances
        producer, scoped = KafkaProducer(cluster), Scoped(api, cluster)
        TopicsV2(cluster, producer, schemas).add_to(api)
        Consumers(cluster, instances).add_to(api)
        Clusters(cluster).add_to(api, scoped)
        Topics(cluster).add_to(scoped)
        Acls(cluster).add_to(scoped)
        Groups(cluster).add_to(scoped)
        Records(producer, value_bytes_max, schemas).add_to(scoped)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the client and the consumer instances until cancelled; then leave all groups."""
        # Instances leave their groups at the end, for which the cluster has to be there until then.
        last = trio.CancelScope(shield=True)

        async def carry(task_status: trio.TaskStatus[None]) -> None:
            with last:
                await self.cluster.run(task_status)

        async with trio.open_nursery() as nursery:
            await nursery.start(carry)
            try:
                task_status.started()
                await self.instances.run()
            finally:
                last.cancel()

    async def handle(self, request: Request) -> Response:
        """Handle a request. If no broker has accepted the login yet, first let one check it.

        Some paths send no request to a broker. Without the check, a client with an invented login could create a
        consumer instance, or reach the schema registry, to which the proxy logs in with its own credentials.
        """
        if not self.cluster.has_connected:
            try:
                await self.cluster.refreshed(())
            except RestError as error:
                return Response(error.body, error.status, content_type(request))
        return await self.api.handle(request)

    async def greet(self) -> None:
        """Log the cluster's id and brokers, or why the cluster cannot be reached."""
        try:
            await self.cluster.refreshed(())
            logger.info("the cluster is %s, with brokers %s", self.cluster.cluster_id, self.cluster.known_brokers)
        except RestError as error:
            logger.warning("the cluster cannot be reached yet: %s", error)
