"""Settings of topics, of brokers, and of all brokers: the same paths below each of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from ottla.server.rest import admin
from ottla.server.rest.api import NO_CONTENT
from ottla.server.rest.bodies import member
from ottla.server.rest.client.cluster import KafkaCluster
from ottla.server.rest.errors import bad_request, check, unprocessable
from ottla.server.rest.v3.resources import Json, Scope, Scoped, not_found
from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.messages.describe_configs import DescribeConfigsResourceResult

_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
}
_DEFAULT = 5
SET, DELETE = 0, 1
CHANGES_MAX = 5_000


class Owner(NamedTuple):
    """Resource that has settings: a topic, a broker, or all brokers."""

    type: int
    name: str
    kind: str
    segments: tuple[object, ...]
    crn: str
    content: Json
    parts: int
    """How many parts of the path it takes."""


Find = Callable[[Scope], Awaitable[Owner]]
"""Find the owner that a path names. Raises RestError."""


def add_configs(scoped: Scoped, cluster: KafkaCluster, path: str, find: Find) -> None:
    """Register handlers for the settings of one kind of owner. `find` returns the owner for a request's path."""

    async def listed(scope: Scope) -> Any:
        of = await find(scope)
        found = await admin.describe_configs(cluster, of.type, of.name)
        return scope.listed(f"{of.kind}List", of.segments, [config_json(scope, of, each) for each in found])

    async def one(scope: Scope) -> Any:
        of = await find(scope)
        name = scope.parts[of.parts]
        found = await admin.describe_configs(cluster, of.type, of.name, [name])
        for each in found:
            if each.name == name:
                return config_json(scope, of, each)
        raise not_found(f"Config {name[:200]} cannot be found.")

    async def put(scope: Scope) -> Any:
        of = await find(scope)
        change = Change(scope.parts[of.parts], SET, member(scope.body(), "value", str))
        await alter(cluster, of, [change])
        return NO_CONTENT

    async def delete(scope: Scope) -> Any:
        of = await find(scope)
        await alter(cluster, of, [Change(scope.parts[of.parts], DELETE, None)])
        return NO_CONTENT

    async def many(scope: Scope) -> Any:
        of, body = await find(scope), scope.body()
        await alter(cluster, of, _changes(body), only_checks=bool(member(body, "validate_only", bool)))
        return NO_CONTENT

    scoped.add("GET", path, listed)
    scoped.add("POST", f"{path}:alter", many)
    scoped.add("GET", path + "/{}", one)
    scoped.add("PUT", path + "/{}", put)
    scoped.add("DELETE", path + "/{}", delete)


class Change(NamedTuple):
    """Change of a setting: set to a value, or deleted."""

    name: str
    operation: int
    value: str | None


def _changes(body: Json) -> list[Change]:
    data = member(body, "data", list, is_needed=True)
    if len(data) > CHANGES_MAX:
        raise bad_request(f"data: a list of at most {CHANGES_MAX}")
    return [_change(each) for each in data]


def _change(entry: Any) -> Change:
    if not isinstance(entry, dict):
        raise bad_request("data: a list of objects")
    operation = member(entry, "operation", str) or "SET"
    if operation not in ("SET", "DELETE"):
        raise bad_request(f"operation: {operation[:50]!r} is neither SET nor DELETE")
    is_set = operation == "SET"
    name = member(entry, "name", str, is_needed=True)
    return Change(name, SET if is_set else DELETE, member(entry, "value", str) if is_set else None)


async def alter(cluster: KafkaCluster, of: Owner, changes: Sequence[Change], *, only_checks: bool = False) -> None:
    """Change the settings of `of`, or only validate the changes (`only_checks`). Raises RestError."""
    if any(each.operation == SET and each.value is None for each in changes):
        raise unprocessable("value must not be null")
    resource = IncrementalConfigsResource(
        resource_type=of.type,
        resource_name=of.name,
        configs=[
            IncrementalConfig(name=each.name, config_operation=each.operation, value=each.value) for each in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=only_checks)

    def take(answer: Any) -> None:
        for each in answer.responses:
            check(each.error_code, each.error_message)

    if of.type == admin.BROKER and of.name:
        await cluster.ask(int(of.name), request, take)
    else:
        await cluster.ask_controller(request, take)


def config_json(scope: Scope, of: Owner, found: DescribeConfigsResourceResult) -> Json:
    """Make the resource of one setting."""
    content = {
        **of.content,
        "name": found.name,
        "value": found.value,
        "is_default": found.config_source == _DEFAULT,
        "is_read_only": found.read_only,
        "is_sensitive": found.is_sensitive,
        "source": _source(found.config_source),
        "synonyms": [
            {"name": each.name, "value": each.value, "source": _source(each.source)} for each in found.synonyms
        ],
    }
    return scope.resource(of.kind, (*of.segments, found.name), f"{of.crn}/config={found.name}", content)


def _source(number: int) -> str:
    return _SOURCES.get(number, "UNKNOWN")
