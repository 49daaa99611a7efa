"""Requests of `ottla acls`: rules of the authorizer."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.server.cli.client.cluster import failed
from ottla.server.cli.client.output import RequestFailed
from ottla.server.dispatch.access import AclOperation, ResourceType
from ottla.server.security.acls import Acl, Entry, Pattern, PatternType, Permission, coded
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster

RULES_AT_ONCE_MAX = 10_000
"""Number of rules that a broker adds or removes by one request, all or none."""
SHOWN_MAX = 5


class Filter(NamedTuple):
    """Filter of rules; None, and ANY of an enum, match anything."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY


def word_of(value: IntEnum) -> str:
    """Return the word for a member of an enum, such as describe-configs."""
    return value.name.lower().replace("_", "-")


def rule_words(acl: Acl) -> str:
    """Describe a rule, such as "allow User:alice read topic orders from *"."""
    pattern, entry = acl
    prefix = " (prefix)" if pattern.pattern_type is PatternType.PREFIXED else ""
    return (
        f"{word_of(entry.permission)} {entry.principal} {word_of(entry.operation)}"
        f" {word_of(pattern.resource_type)} {pattern.name}{prefix} from {entry.host}"
    )


def some_rules(rules: Sequence[Acl]) -> str:
    """Describe the first few rules, and tell how many more there are."""
    told = "; ".join(map(rule_words, rules[:SHOWN_MAX]))
    return f"{told}; and {len(rules) - SHOWN_MAX} more" if len(rules) > SHOWN_MAX else told


def matching(cluster: Cluster, filters: Sequence[Filter]) -> list[Acl]:
    """Request the rules that match one of the filters, sorted. Raises RequestFailed."""
    found: dict[Acl, None] = {}
    for each in filters:
        found.update(dict.fromkeys(cluster.patiently(partial(_described, cluster, each))))
    return sorted(found)


def _described(cluster: Cluster, wanted: Filter) -> list[Acl]:
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
    answer = cluster.ask_any(lambda broker: broker.ask(request))
    _check(cluster, answer.error_code, answer.error_message)
    return [
        Acl(
            Pattern(
                coded(ResourceType, resource.resource_type),
                coded(PatternType, resource.pattern_type),
                resource.resource_name,
            ),
            Entry(
                each.principal, each.host, coded(AclOperation, each.operation), coded(Permission, each.permission_type)
            ),
        )
        for resource in answer.resources
        for each in resource.acls
    ]


def _check(cluster: Cluster, code: int, message: str | None) -> None:
    if code == ErrorCode.SECURITY_DISABLED:
        raise failed("rules", code, "the brokers have no authorizer; authorizer.class.name names one")
    cluster.check("rules", code, message)


def _check_count(answers: Sequence[object], rules: Sequence[Acl]) -> None:
    if len(answers) != len(rules):
        raise RequestFailed(f"the broker gives {len(answers)} answers for {len(rules)} rules; is it a Kafka broker?")


def create_rules(cluster: Cluster, rules: Sequence[Acl]) -> None:
    """Add rules. Raises RequestFailed, which says how many were added all the same."""
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=each.pattern.resource_type,
                resource_name=each.pattern.name,
                resource_pattern_type=each.pattern.pattern_type,
                principal=each.entry.principal,
                host=each.entry.host,
                operation=each.entry.operation,
                permission_type=each.entry.permission,
            )
            for each in rules
        ]
    )

    def ask() -> None:
        results = cluster.ask_any(lambda broker: broker.ask(request)).results
        _check_count(results, rules)
        _check_each(
            cluster,
            "added",
            [(rule, each.error_code, each.error_message) for rule, each in zip(rules, results, strict=True)],
        )

    cluster.patiently(ask)


def delete_rules(cluster: Cluster, rules: Sequence[Acl]) -> None:
    """Remove exactly these rules: others that match by now were not shown. Raises RequestFailed."""
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=each.pattern.resource_type,
                resource_name_filter=each.pattern.name,
                pattern_type_filter=each.pattern.pattern_type,
                principal_filter=each.entry.principal,
                host_filter=each.entry.host,
                operation=each.entry.operation,
                permission_type=each.entry.permission,
            )
            for each in rules
        ]
    )

    def ask() -> None:
        results = cluster.ask_any(lambda broker: broker.ask(request)).filter_results
        _check_count(results, rules)
        worst = [
            next(
                ((one.error_code, one.error_message) for one in (each, *each.matching_acls) if one.error_code),
                (0, None),
            )
            for each in results
        ]
        _check_each(cluster, "removed", [(rule, *each) for rule, each in zip(rules, worst, strict=True)])

    cluster.patiently(ask)


def _check_each(cluster: Cluster, done: str, results: Sequence[tuple[Acl, int, str | None]]) -> None:
    """Raise for the first rule that was refused, and say which rules were not."""
    refused = next((each for each in results if each[1]), None)
    if refused is None:
        return
    rule, code, message = refused
    others = [each for each, error, _ in results if not error]
    if not others:
        _check(cluster, code, message)
    raise RequestFailed(f"{failed(rule_words(rule), code, message)}; {done}: {some_rules(others)}")
