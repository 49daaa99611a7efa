"""ACLs as clients name them: what a rule says, which rules a filter means, and which rules Kafka does not take.

Kafka's AclBinding, AclBindingFilter, and `AclControlManager.validateNewAcl`, whose words these refusals have.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeVar

from ottla.server.auth.hosts import InvalidNetwork, Network
from ottla.server.gate.access import CLUSTER_NAME
from ottla.server.gate.authorized_operations import AclOperation, ResourceType

EnumT = TypeVar("EnumT", bound=IntEnum)

WILDCARD = "*"
WILDCARD_PRINCIPAL = "User:*"

# No limit of Kafka's. Names of topics have at most 249 characters; those of groups and transactional ids any number.
TEXT_CHARACTERS_MAX = 4_096


class PatternType(IntEnum):
    """How a rule names resources. ANY and MATCH stand in filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Kafka's AclPermissionType. ANY stands in filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


def coded(kind: type[EnumT], code: int) -> EnumT:
    """The member of a number that a client sent; UNKNOWN for numbers that Kafka has no member for."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


class Pattern(NamedTuple):
    """The resources that a rule is about: those of a name, or of all names that begin so."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str


class Entry(NamedTuple):
    """Who may, or may not, do what to them, from where (Kafka's AccessControlEntry)."""

    principal: str
    host: str
    operation: AclOperation
    permission: Permission


class Acl(NamedTuple):
    """A rule."""

    pattern: Pattern
    entry: Entry


class PatternFilter(NamedTuple):
    """Which patterns are meant; `name` None: whatever their name."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str | None

    def matches(self, pattern: Pattern) -> bool:
        """Kafka's ResourcePatternFilter. MATCH: patterns that the resource of this name falls under."""
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.LITERAL:
            return pattern.name in (self.name, WILDCARD)
        return self.name.startswith(pattern.name)

    @property
    def only(self) -> tuple[Pattern, ...]:
        """The patterns that can match, if they can be named; nothing if one has to look at all."""
        if self.resource_type is ResourceType.ANY or self.name is None:
            return ()
        kinds: tuple[PatternType, ...] = (self.pattern_type,)
        if self.pattern_type is PatternType.ANY:
            kinds = (PatternType.LITERAL, PatternType.PREFIXED)
        elif self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            return ()
        return tuple(Pattern(self.resource_type, kind, self.name) for kind in kinds)


class EntryFilter(NamedTuple):
    """Which entries are meant; None: whatever is there (Kafka's AccessControlEntryFilter)."""

    principal: str | None
    host: str | None
    operation: AclOperation
    permission: Permission

    def matches(self, entry: Entry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )


class AclFilter(NamedTuple):
    """Which rules are meant. What is UNKNOWN in one matches nothing."""

    patterns: PatternFilter
    entries: EntryFilter

    @classmethod
    def of_codes(
        cls,
        resource: tuple[int, str | None, int],
        *,
        principal: str | None,
        host: str | None,
        operation: int,
        permission: int,
    ) -> AclFilter:
        """`resource`: the number of its type, a name, the number of a type of patterns."""
        resource_type, name, pattern_type = resource
        return cls(
            PatternFilter(coded(ResourceType, resource_type), coded(PatternType, pattern_type), name),
            EntryFilter(principal, host, coded(AclOperation, operation), coded(Permission, permission)),
        )

    @property
    def problem(self) -> str | None:
        """Why rules cannot be removed by this filter (Kafka's `AclControlManager.validateFilter`)."""
        if not (self.patterns.resource_type and self.patterns.pattern_type):
            return "Unknown patternFilter."
        if not (self.entries.operation and self.entries.permission):
            return "Unknown entryFilter."
        return None

    def matches(self, acl: Acl) -> bool:
        return self.patterns.matches(acl.pattern) and self.entries.matches(acl.entry)


def problem_with(acl: Acl) -> str | None:
    """Why a client may not make such a rule; None if it may."""
    return _problem_with_pattern(acl.pattern) or _problem_with_entry(acl.entry)


def _problem_with_pattern(pattern: Pattern) -> str | None:
    # This comes first in Kafka (AclApis), whatever else is wrong.
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not pattern.name:
        return "Invalid empty resource name"
    if pattern.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"Invalid resourceType {pattern.resource_type.name}"
    if pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {pattern.pattern_type.name}"
    if len(pattern.name) > TEXT_CHARACTERS_MAX:
        return f"The resource name is longer than {TEXT_CHARACTERS_MAX} characters"
    return None


def _problem_with_entry(entry: Entry) -> str | None:
    if entry.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return f"Invalid operation {entry.operation.name}"
    if entry.permission not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {entry.permission.name}"
    if len(entry.principal) > TEXT_CHARACTERS_MAX or len(entry.host) > TEXT_CHARACTERS_MAX:
        return f"The principal or the host is longer than {TEXT_CHARACTERS_MAX} characters"
    if ":" not in entry.principal:
        return (
            f"Could not parse principal from `{entry.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    if not entry.host:
        return "Host pattern cannot be null or empty"
    if "/" in entry.host:
        try:
            Network.parse(entry.host)
        except InvalidNetwork as error:
            return f"Invalid CIDR notation '{entry.host}': {error}"
    return None
