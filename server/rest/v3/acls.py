"""Rules of the cluster's authorizer."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any
from urllib.parse import urlencode

from ottla.server.dispatch.access import AclOperation, ResourceType
from ottla.server.rest.api import Answer
from ottla.server.rest.bodies import member
from ottla.server.rest.client.cluster import KafkaCluster
from ottla.server.rest.errors import bad_request, check
from ottla.server.rest.v3.resources import Json, Scope, Scoped
from ottla.server.security.acls import PatternType, Permission
from ottla.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)

RULES_MAX = 1_000
_FIELDS = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
_KINDS: Mapping[str, type[IntEnum]] = {
    "resource_type": ResourceType,
    "pattern_type": PatternType,
    "operation": AclOperation,
    "permission": Permission,
}


class Acls:
    """Handlers of /acls."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def add_to(self, scoped: Scoped) -> None:
        scoped.add("GET", "/acls", self._list)
        scoped.add("POST", "/acls", self._create)
        scoped.add("POST", "/acls:batch", self._create_many)
        scoped.add("DELETE", "/acls", self._delete)

    async def _list(self, scope: Scope) -> Any:
        request = DescribeAclsRequest(**_filter(scope))

        def take(answer: Any) -> list[Json]:
            check(answer.error_code, answer.error_message)
            return [_rule_json(scope, resource, rule) for resource in answer.resources for rule in resource.acls]

        data = await self._cluster.ask_any(request, take)
        found = scope.listed("KafkaAclList", ("acls",), data)
        query = {name: scope.call.query[name] for name in _FIELDS if name in scope.call.query}
        if query:
            found["metadata"]["self"] += f"?{urlencode(query)}"
        return found

    async def _create(self, scope: Scope) -> Any:
        await self._created([_creation(scope.body())])
        return Answer(None, 201)

    async def _create_many(self, scope: Scope) -> Any:
        data = member(scope.body(), "data", list, is_needed=True)
        if not data or len(data) > RULES_MAX:
            raise bad_request(f"data: a list of 1 to {RULES_MAX} rules")
        await self._created([_creation(each) for each in data])
        return Answer(None, 201)

    async def _created(self, rules: list[AclCreation]) -> None:
        def take(answer: Any) -> None:
            for each in answer.results:
                check(each.error_code, each.error_message)

        await self._cluster.ask_controller(CreateAclsRequest(creations=rules), take)

    async def _delete(self, scope: Scope) -> Any:
        wanted = _filter(scope)
        # A filter without anything would delete all rules.
        if not scope.call.query.keys() & set(_FIELDS):
            raise bad_request("A filter is needed: resource_type, resource_name, pattern_type, principal, ...")
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(**wanted)])

        def take(answer: Any) -> list[Json]:
            [result] = answer.filter_results
            check(result.error_code, result.error_message)
            for each in result.matching_acls:
                check(each.error_code, each.error_message)
            return [_rule_json(scope, each, each) for each in result.matching_acls]

        return {"data": await self._cluster.ask_controller(request, take)}


def _filter(scope: Scope) -> dict[str, Any]:
    """Return the fields of an ACL filter, parsed from the query. Raises RestError."""
    query = scope.call.query
    return {
        "resource_type_filter": _coded("resource_type", query.get("resource_type", "ANY")),
        "resource_name_filter": query.get("resource_name"),
        "pattern_type_filter": _coded("pattern_type", query.get("pattern_type", "ANY")),
        "principal_filter": query.get("principal"),
        "host_filter": query.get("host"),
        "operation": _coded("operation", query.get("operation", "ANY")),
        "permission_type": _coded("permission", query.get("permission", "ANY")),
    }


def _coded(name: str, text: str) -> int:
    kind = _KINDS[name]
    try:
        return kind[text.upper()].value
    except KeyError:
        raise bad_request(f"{name}: {text[:50]!r} is none of {', '.join(kind.__members__)}") from None


def _creation(entry: Any) -> AclCreation:
    if not isinstance(entry, dict):
        raise bad_request("data: a list of objects")
    texts = {name: member(entry, name, str, is_needed=True) for name in _FIELDS}
    return AclCreation(
        resource_type=_coded("resource_type", texts["resource_type"]),
        resource_name=texts["resource_name"],
        resource_pattern_type=_coded("pattern_type", texts["pattern_type"]),
        principal=texts["principal"],
        host=texts["host"],
        operation=_coded("operation", texts["operation"]),
        permission_type=_coded("permission", texts["permission"]),
    )


def _shown(name: str, number: int) -> str:
    kind = _KINDS[name]
    return kind(number).name if number in set(kind) else "UNKNOWN"


def _rule_json(scope: Scope, resource: Any, rule: Any) -> Json:
    content = {
        "resource_type": _shown("resource_type", resource.resource_type),
        "resource_name": resource.resource_name,
        "pattern_type": _shown("pattern_type", resource.pattern_type),
        "principal": rule.principal,
        "host": rule.host,
        "operation": _shown("operation", rule.operation),
        "permission": _shown("permission", rule.permission_type),
    }
    metadata = {"self": f"{scope.url('acls')}?{urlencode(content)}"}
    return {"kind": "KafkaAcl", "metadata": metadata, "cluster_id": scope.cluster_id, **content}
