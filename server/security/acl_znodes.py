"""Paths and contents of the nodes of ACLs in the coordination tree, as Kafka 3.9 has them (its ZkAclStore and AclEntry).

    /kafka-acl/<type>/<name>                     rules about a literal name
    /kafka-acl-extended/prefixed/<type>/<name>   rules about names that begin so
    /kafka-acl-changes/acl_changes_<seq>         which literal name has other rules now: `TOPIC:name`
    /kafka-acl-extended-changes/acl_changes_<seq>   the same for prefixes, as JSON

A node is {"version":1,"acls":[{"principal":..,"permissionType":..,"operation":..,"host":..}]}. Names of types, operations and
permissions are written as `TransactionalId`; they are read whatever their case.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, TypeVar

from ottla.replication.cluster.znodes import MalformedNode
from ottla.server.dispatch.access import AclOperation, ResourceType
from ottla.server.security.acls import Entry, Pattern, PatternType, Permission

EnumT = TypeVar("EnumT", bound=IntEnum)

_VERSION = 1
CHANGE_PREFIX = "acl_changes_"
ROOTS = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGES = {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}
TYPES = tuple(each for each in ResourceType if each > ResourceType.ANY)
# ZooKeeper takes no path with these, and `.` and `..` lead elsewhere. It sees characters above 16 bits as two surrogates.
_NODE_NAME = re.compile("[^\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff/]*")


def type_path(kind: PatternType, resource_type: ResourceType) -> str:
    return f"{ROOTS[kind]}/{_name(resource_type)}"


def path_of(pattern: Pattern) -> str:
    return f"{type_path(pattern.pattern_type, pattern.resource_type)}/{pattern.name}"


def can_be_stored(name: str) -> bool:
    """Return True if ACLs for a resource with this name can be stored: if the name can be a node's name."""
    return name not in (".", "..") and _NODE_NAME.fullmatch(name) is not None


def all_paths() -> list[str]:
    """Return the paths of all nodes that must exist before ACLs can be stored, parents first."""
    paths = ["/kafka-acl", "/kafka-acl-extended", ROOTS[PatternType.PREFIXED], *CHANGES.values()]
    return paths + [type_path(kind, each) for kind in ROOTS for each in TYPES]


def encode_entries(entries: Iterable[Entry]) -> bytes:
    acls = [
        {
            "principal": entry.principal,
            "permissionType": _name(entry.permission),
            "operation": _name(entry.operation),
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    # As Kafka writes them: names of any script in UTF-8, which are half as long so.
    return json.dumps({"version": _VERSION, "acls": acls}, separators=(",", ":"), ensure_ascii=False).encode()


def decode_entries(data: bytes) -> frozenset[Entry]:
    """Decode the node of a resource pattern into its ACL entries. Raises MalformedNode."""
    if not data:
        return frozenset()
    try:
        node = json.loads(data)
        if node["version"] != _VERSION:
            raise MalformedNode(f"version {node['version']!r} of ACLs is not known")
        return frozenset([_entry(each) for each in node["acls"]])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise error if isinstance(error, MalformedNode) else MalformedNode(f"no ACLs: {error!r}") from None


def _entry(item: dict[str, Any]) -> Entry:
    principal, host = item["principal"], item["host"]
    if not isinstance(principal, str) or not isinstance(host, str) or ":" not in principal:
        raise MalformedNode(f"no principal and host: {principal!r}, {host!r}")
    # As Kafka spells them, or else in any other way that it understands.
    operation = _OPERATIONS.get(item["operation"]) or _member(AclOperation, item["operation"])
    permission = _PERMISSIONS.get(item["permissionType"]) or _member(Permission, item["permissionType"])
    if operation <= AclOperation.ANY or permission <= Permission.ANY:
        raise MalformedNode("a rule is about something")
    # Thousands of rules are about a few principals.
    return Entry(sys.intern(principal), sys.intern(host), operation, permission)


# ------------------------------------------------------------------ notices of changes


def encode_change(pattern: Pattern) -> bytes:
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    node = {
        "version": _VERSION,
        "resourceType": pattern.resource_type.name,
        "name": pattern.name,
        "patternType": pattern.pattern_type.name,
    }
    return json.dumps(node, separators=(",", ":"), ensure_ascii=False).encode()


def decode_change(kind: PatternType, data: bytes) -> Pattern:
    """Decode a notification into the resource pattern whose ACLs have changed. Raises MalformedNode."""
    try:
        if kind is PatternType.LITERAL:
            type_name, separator, name = data.decode().partition(":")
            if not separator:
                raise MalformedNode("expected a string in format ResourceType:ResourceName")
            return _pattern(type_name, kind, name)
        node = json.loads(data)
        if node["version"] > _VERSION:
            raise MalformedNode(f"version {node['version']!r} of a change of ACLs is not known")
        return _pattern(node["resourceType"], _member(PatternType, node["patternType"]), node["name"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise error if isinstance(error, MalformedNode) else MalformedNode(f"no change of ACLs: {error!r}") from None


def _pattern(type_name: str, kind: PatternType, name: str) -> Pattern:
    resource_type = _member(ResourceType, type_name)
    if resource_type <= ResourceType.ANY or kind not in ROOTS or not name or not can_be_stored(name):
        raise MalformedNode(f"no resource: {type_name!r}, {kind!r}, {name!r}")
    return Pattern(resource_type, kind, name)


# ------------------------------------------------------------------ names


def _name(member: IntEnum) -> str:
    return _NAMES[member.__class__, member]


def _member(kind: type[EnumT], name: str) -> EnumT:
    """Return the enum member called `name`; case and underscores do not matter. Raises KeyError."""
    member: EnumT = _MEMBERS[kind][name.upper().replace("_", "")]
    return member


_ENUMS: tuple[type[IntEnum], ...] = (ResourceType, PatternType, AclOperation, Permission)
_NAMES = {(kind, each): each.name.title().replace("_", "") for kind in _ENUMS for each in kind}
_MEMBERS: dict[type, dict[str, Any]] = {kind: {each.name.replace("_", ""): each for each in kind} for kind in _ENUMS}
_OPERATIONS = {_name(each): each for each in AclOperation}
_PERMISSIONS = {_name(each): each for each in Permission}
