"""Shapes of the third version: resources with their addresses, lists, and links to what is related."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import quote

from ottla.server.rest.api import JSON, Call, RestApi, media_type
from ottla.server.rest.bodies import parse_object
from ottla.server.rest.client.cluster import KafkaCluster
from ottla.server.rest.errors import Code, RestError

CLUSTER = "/v3/clusters/{}"
Json = dict[str, Any]


class Scope:
    """Context of a request to one cluster. It makes the URLs and names of resources."""

    def __init__(self, call: Call, cluster_id: str) -> None:
        self.call, self.cluster_id = call, cluster_id
        self.parts = call.parts[1:]
        """What varies in the path after the cluster."""

    def url(self, *segments: object) -> str:
        path = "".join(f"/{quote(str(each), safe='-:')}" for each in segments)
        return f"{self.call.base_url}/v3/clusters/{quote(self.cluster_id, safe='')}{path}"

    def related(self, *segments: object) -> Json:
        return {"related": self.url(*segments)}

    def resource(self, kind: str, segments: Sequence[object], name: str, content: Json) -> Json:
        """Make a resource. `name`: name within the cluster, such as "/topic=a"."""
        metadata = {"self": self.url(*segments), "resource_name": f"crn:///kafka={self.cluster_id}{name}"}
        return {"kind": kind, "metadata": metadata, "cluster_id": self.cluster_id, **content}

    def listed(self, kind: str, segments: Sequence[object], data: list[Json]) -> Json:
        """Make a list of resources."""
        return {"kind": kind, "metadata": {"self": self.url(*segments), "next": None}, "data": data}

    def body(self) -> Json:
        """Parse the request's body. Raises RestError."""
        if self.call.request.body:
            check_content_type(self.call)
        return parse_object(self.call.request.body)


def check_content_type(call: Call) -> None:
    """Raise RestError if the content type is not JSON. Browsers let no page of another site send JSON."""
    if media_type(call.request.headers.get("content-type", "")) != JSON:
        raise RestError(Code.UNSUPPORTED_MEDIA_TYPE, "HTTP 415 Unsupported Media Type")


def not_found(message: str = "HTTP 404 Not Found") -> RestError:
    return RestError(Code.NOT_FOUND, message)


Handler = Callable[[Scope], Awaitable[Any]]


class Scoped:
    """Registrar of handlers for paths below a cluster."""

    def __init__(self, api: RestApi, cluster: KafkaCluster) -> None:
        self._api, self._cluster = api, cluster

    def add(self, method: str, path: str, handler: Handler) -> None:
        async def handle(call: Call) -> Any:
            return await handler(Scope(call, await self.checked_id(call)))

        self._api.add(method, CLUSTER + path, handle)

    async def checked_id(self, call: Call) -> str:
        """Return the cluster's id. Raises RestError if the path names another cluster."""
        cluster_id = await known_id(self._cluster)
        if call.parts and call.parts[0] != cluster_id:
            raise not_found(f"Cluster {call.parts[0][:200]} cannot be found.")
        return cluster_id


async def known_id(cluster: KafkaCluster) -> str:
    """Return the cluster's id; request it only the first time. Raises RestError."""
    if not cluster.cluster_id:
        await cluster.refreshed(())
    return cluster.cluster_id or ""
