"""Rules of the authorizer (ACLs), users of SCRAM, and quotas in the console: lists of them, and changes with `http.console.write`.

The parts of a rule are spelled as by `ottla acls`: topic, prefixed, allow, describe-configs. A new password is salted here, and only the
result is passed on.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from ottla.server.admin.console import requests
from ottla.server.admin.console.requests import (
    Wanted,
    ask,
    body_number,
    body_text,
    change,
    check_error,
    done,
    first_page,
)
from ottla.server.admin.http.routes import PacedTimeSlice, Refused
from ottla.server.dispatch.access import CLUSTER_NAME, AclOperation, ResourceType
from ottla.server.security.acls import PatternType, Permission, coded
from ottla.server.security.scram_credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BITS,
    SCRAM_512,
    TYPES,
    salted_password,
)
from ottla.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from ottla.wire.messages.client_quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla.wire.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

if TYPE_CHECKING:
    from ottla.server.admin.console.requests import Option
    from ottla.server.admin.http.routes import Pace, Request
    from ottla.server.broker import Broker

PER_PAGE = 100
PASSWORD_BYTES_MAX = 4_096
QUOTA_KINDS = {"user": "user", "client-id": "client", "ip": "ip"}
"""Types of entities, and the beginning of the option of `ottla quotas` for those without a name."""
_NUMBERS = {name: number for number, name in TYPES.items()}
EnumT = TypeVar("EnumT", bound=IntEnum)


def word_of(value: IntEnum) -> str:
    """Return the word for a member of an enum, such as describe-configs."""
    return value.name.lower().replace("_", "-")


def _member(kind: type[EnumT], body: Mapping[str, Any], name: str) -> EnumT:
    """Read a word of an enum from a request's body. Raises Refused."""
    word = body_text(body, name)
    known = {word_of(each): each for each in kind if each.name not in ("UNKNOWN", "ANY", "MATCH")}
    if word not in known:
        raise Refused(400, f"{name} must be one of {', '.join(known)}.")
    return known[word]


class AccessView:
    """Handlers of the console's requests for rules, users and quotas."""

    def __init__(self, broker: Broker, pace: Pace) -> None:
        self._broker, self._pace = broker, pace

    # ------------------------------------------------------------------ rules

    async def acls(self, request: Request) -> dict[str, Any]:
        """Return a page of rules sorted by resource. `isOn` false: the broker has no authorizer.

        Parameters: as in `ClusterView.topics`.
        """
        query = DescribeAclsRequest(
            resource_type_filter=ResourceType.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=AclOperation.ANY,
            permission_type=Permission.ANY,
        )
        if self._broker.authorizer is None:
            return {"isOn": False, "acls": [], "next": None}
        answer = await ask(self._broker, query, query.versions.last)
        check_error(answer.error_code, answer.error_message)
        rules = (_rule(resource, each) for resource in answer.resources for each in resource.acls)
        time_slice = PacedTimeSlice(self._pace)
        page, following = await first_page(rules, _key, Wanted.by(request), PER_PAGE, time_slice)
        return {"isOn": True, "acls": page, "next": following}

    async def add_acl(self, request: Request) -> dict[str, Any]:
        """Add one rule: `resource`, `name`, `pattern`, `principal`, `host`, `operation` and `permission`."""
        rule = _given_rule(request)
        creation = AclCreation(
            resource_type=rule["resource"],
            resource_name=rule["name"],
            resource_pattern_type=rule["pattern"],
            principal=rule["principal"],
            host=rule["host"],
            operation=rule["operation"],
            permission_type=rule["permission"],
        )
        [result] = (await change(self._broker, CreateAclsRequest(creations=[creation]))).results
        check_error(result.error_code, result.error_message)
        return done(self._broker, "The rule is added.", "acls add", (), _options(rule))

    async def remove_acl(self, request: Request) -> dict[str, Any]:
        """Remove one rule, which has exactly these parts."""
        rule = _given_rule(request)
        wanted = DeleteAclsFilter(
            resource_type_filter=rule["resource"],
            resource_name_filter=rule["name"],
            pattern_type_filter=rule["pattern"],
            principal_filter=rule["principal"],
            host_filter=rule["host"],
            operation=rule["operation"],
            permission_type=rule["permission"],
        )
        [result] = (await change(self._broker, DeleteAclsRequest(filters=[wanted]))).filter_results
        check_error(result.error_code, result.error_message)
        for each in result.matching_acls:
            check_error(each.error_code, each.error_message)
        if not result.matching_acls:
            raise Refused(404, "There is no such rule any more.")
        return done(self._broker, "The rule is removed.", "acls remove", (), _options(rule))

    # ------------------------------------------------------------------ users

    async def users(self, request: Request) -> dict[str, Any]:
        """Return a page of the users of SCRAM, sorted by name, with their mechanisms.

        Parameters: as in `ClusterView.topics`.
        """
        answer = await ask(self._broker, DescribeUserScramCredentialsRequest(users=None), 0)
        check_error(answer.error_code, answer.error_message)
        time_slice = PacedTimeSlice(self._pace)
        page, following = await first_page(
            answer.results, lambda each: each.user, Wanted.by(request), PER_PAGE, time_slice
        )
        return {
            "users": [
                {
                    "name": each.user,
                    "mechanisms": [
                        {"name": TYPES.get(info.mechanism, "unknown"), "iterations": info.iterations}
                        for info in each.credential_infos
                    ],
                }
                for each in page
            ],
            "next": following,
        }

    async def set_user(self, request: Request) -> dict[str, Any]:
        """Set the password of the user `name` for `mechanism`; the user is added if there is none."""
        body = requests.posted(request)
        name, password = body_text(body, "name"), body_text(body, "password", PASSWORD_BYTES_MAX)
        mechanism = self._mechanism(body)
        iterations = body_number(body, "iterations", ITERATIONS_MIN, ITERATIONS_MIN, ITERATIONS_MAX)
        if not password:
            raise Refused(400, "The password is empty.")
        known = await ask(self._broker, DescribeUserScramCredentialsRequest(users=[UserName(name=name)]), 0)
        is_new = all(info.mechanism != _NUMBERS[mechanism] for each in known.results for info in each.credential_infos)
        salt = secrets.token_bytes(math.ceil(SALT_BITS / 8))
        salted = await trio.to_thread.run_sync(salted_password, mechanism, password, salt, iterations)
        upsertion = ScramCredentialUpsertion(
            name=name, mechanism=_NUMBERS[mechanism], iterations=iterations, salt=salt, salted_password=salted
        )
        wanted = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
        [result] = (await change(self._broker, wanted)).results
        check_error(result.error_code, result.error_message)
        sentence = f"User {name} is added." if is_new else f"User {name} has another password."
        options = [] if mechanism == SCRAM_512 else [("--mechanism", mechanism)]
        options += [] if iterations == ITERATIONS_MIN else [("--iterations", str(iterations))]
        return done(self._broker, sentence, f"users {'add' if is_new else 'alter'}", [name], options)

    async def delete_user(self, request: Request) -> dict[str, Any]:
        """Delete the password of the user `name` for `mechanism`."""
        body = requests.posted(request)
        name, mechanism = body_text(body, "name"), self._mechanism(body)
        deletion = ScramCredentialDeletion(name=name, mechanism=_NUMBERS[mechanism])
        wanted = AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])
        [result] = (await change(self._broker, wanted)).results
        check_error(result.error_code, result.error_message)
        sentence = f"User {name} cannot log in by {mechanism} any more."
        return done(self._broker, sentence, "users delete", [name], [("--mechanism", mechanism)])

    def _mechanism(self, body: Mapping[str, Any]) -> str:
        mechanism = body_text(body, "mechanism")
        if mechanism not in _NUMBERS:
            raise Refused(400, f"mechanism must be one of {', '.join(_NUMBERS)}.")
        return mechanism

    # ------------------------------------------------------------------ quotas

    async def quotas(self, request: Request) -> dict[str, Any]:
        """Return a page of entities with their quotas. A name of null stands for those without a quota of their own."""
        query = DescribeClientQuotasRequest(components=[], strict=False)
        answer = await ask(self._broker, query, query.versions.last)
        check_error(answer.error_code, answer.error_message)
        time_slice = PacedTimeSlice(self._pace)
        page, following = await first_page(answer.entries or (), _entity_key, Wanted.by(request), PER_PAGE, time_slice)
        return {
            "quotas": [
                {
                    "entity": {of.entity_type: of.entity_name for of in each.entity},
                    "values": {of.key: of.value for of in each.values},
                }
                for each in page
            ],
            "next": following,
        }

    async def set_quota(self, request: Request) -> dict[str, Any]:
        """Set one quota of an entity; `value` null removes it. `entity`: names by type, null for those without a quota."""
        body = requests.posted(request)
        entity, key, value = _given_entity(body), body_text(body, "quota"), body.get("value")
        if value is not None and (type(value) not in (int, float) or not 0 < value < 2**63):
            raise Refused(400, "value must be a number above 0, or null.")
        change_of = OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
        entry = EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()], ops=[change_of]
        )
        [result] = (await change(self._broker, AlterClientQuotasRequest(entries=[entry], validate_only=False))).entries
        check_error(result.error_code, result.error_message)
        who = [
            f"--{QUOTA_KINDS[kind]}-defaults" if name is None else (f"--{kind}", name) for kind, name in entity.items()
        ]
        if value is None:
            return done(self._broker, f"{key} is removed.", "quotas remove", [key], who)
        return done(self._broker, f"{key} is set.", "quotas set", [f"{key}={value}"], who)


def _rule(resource: Any, entry: Any) -> dict[str, str]:
    return {
        "resource": word_of(coded(ResourceType, resource.resource_type)),
        "name": resource.resource_name,
        "pattern": word_of(coded(PatternType, resource.pattern_type)),
        "principal": entry.principal,
        "host": entry.host,
        "operation": word_of(coded(AclOperation, entry.operation)),
        "permission": word_of(coded(Permission, entry.permission_type)),
    }


def _key(rule: Mapping[str, str]) -> str:
    return " ".join(rule.values())


def _given_rule(request: Request) -> dict[str, Any]:
    body = requests.posted(request)
    resource = _member(ResourceType, body, "resource")
    is_cluster = resource is ResourceType.CLUSTER
    return {
        "resource": resource,
        "name": CLUSTER_NAME if is_cluster else body_text(body, "name"),
        "pattern": PatternType.LITERAL if is_cluster else _member(PatternType, body, "pattern"),
        "principal": body_text(body, "principal"),
        "host": body_text(body, "host"),
        "operation": _member(AclOperation, body, "operation"),
        "permission": _member(Permission, body, "permission"),
    }


def _options(rule: Mapping[str, Any]) -> list[Option]:
    """Return the options of `ottla acls` that name a rule."""
    resource = rule["resource"]
    options: list[Option] = [(f"--{word_of(rule['permission'])}", rule["principal"])]
    options += [("--operation", word_of(rule["operation"]))]
    is_cluster = resource is ResourceType.CLUSTER
    options += ["--cluster"] if is_cluster else [(f"--{word_of(resource)}", rule["name"])]
    options += [] if rule["pattern"] is PatternType.LITERAL else [("--pattern", word_of(rule["pattern"]))]
    return [*options, *([] if rule["host"] == "*" else [("--host", rule["host"])])]


def _entity_key(entry: Any) -> str:
    parts = sorted((each.entity_type, each.entity_name) for each in entry.entity)
    return " ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in parts)


def _given_entity(body: Mapping[str, Any]) -> dict[str, str | None]:
    given = body.get("entity")
    if not isinstance(given, dict) or not given or not given.keys() <= QUOTA_KINDS.keys():
        raise Refused(400, f"entity must have names by type: {', '.join(QUOTA_KINDS)}.")
    return {kind: None if given[kind] is None else body_text(given, kind) for kind in given}
