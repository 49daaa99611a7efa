"""ACLs as clients name them: rules, filters of rules, and the rules that Kafka refuses.

Kafka's AclBinding, AclBindingFilter, and `AclControlManager.validateNewAcl`, whose words these refusals have.

Rules name the address of a client by Java's text of it, or by a network in CIDR notation (since Kafka 4.3). Java writes an IPv6
address without the `::` that stands for zeros, `0:0:0:0:0:0:0:1`, and an IPv4 address that comes in an IPv6 one as IPv4. A rule
has to name it so, because Kafka compares texts. Networks are those of Kafka's CidrUtils, which uses the SubnetUtils of Apache
Commons Net: the first and the last address of a network belong to it, 0.0.0.0 to none.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, TypeVar

from ottla.server.dispatch.access import CLUSTER_NAME, AclOperation, ResourceType

# ---------------------------------------------------------------------- addresses of clients


_IPV4 = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})")
_IPV4_NETWORK = re.compile(_IPV4.pattern + "/([0-9]{1,2})")
_IPV4_BITS, _IPV6_BITS = 32, 128
_MAPPED = 0xFFFF  # what is before the 32 bits of an IPv4 address in an IPv6 one


class InvalidNetwork(ValueError):
    """Malformed text of a network. The message is that of Apache Commons Net."""


class Address(NamedTuple):
    """Address of a client. `text`: the address as Java writes it. `number` is None if the text is not an IP address."""

    text: str
    is_ipv6: bool
    number: int | None


class Network(NamedTuple):
    """IPv4 or IPv6 network: all addresses with the same first bits."""

    is_ipv6: bool
    bits: int
    shift: int

    @classmethod
    def parse(cls, text: str) -> Network:
        """Parse a network in CIDR notation. Raises InvalidNetwork."""
        return cls._parse_ipv6(text) if ":" in text else cls._parse_ipv4(text)

    @classmethod
    def _parse_ipv4(cls, text: str) -> Network:
        match = _IPV4_NETWORK.fullmatch(text)
        if match is None:
            raise InvalidNetwork(f"Could not parse [{text}]")
        *octets, length = map(int, match.groups())
        for value, limit in [*((octet, 255) for octet in octets), (length, _IPV4_BITS)]:
            if value > limit:
                raise InvalidNetwork(f"Value [{value}] not in range [0,{limit}]")
        shift = _IPV4_BITS - length
        return cls(False, int.from_bytes(octets, "big") >> shift, shift)

    @classmethod
    def _parse_ipv6(cls, text: str) -> Network:
        start, slash, length = text.partition("/")
        if not slash or not re.fullmatch("[0-9]{1,3}", length):
            raise InvalidNetwork(f"Could not parse [{text}]")
        if int(length) > _IPV6_BITS:
            raise InvalidNetwork(f"Could not parse [{text}] - prefix length must be between 0 and {_IPV6_BITS}")
        number = _ipv6(start)
        if number is None:
            raise InvalidNetwork(f"Could not parse [{start}]")
        shift = _IPV6_BITS - int(length)
        return cls(True, number >> shift, shift)

    def holds(self, address: Address) -> bool:
        if address.number is None or address.is_ipv6 is not self.is_ipv6:
            return False
        if not self.is_ipv6 and address.number == 0:
            return False
        return address.number >> self.shift == self.bits


@lru_cache(maxsize=1_000)
def client_address(host: str) -> Address:
    """Parse a client's host, with or without Java's leading slash, into an address."""
    text = host.removeprefix("/")
    if ":" not in text:
        return Address(text, False, _ipv4(text))
    number = _ipv6(text.partition("%")[0])
    if number is None:
        return Address(text, True, None)
    if number >> _IPV4_BITS == _MAPPED:
        octets = (number & 0xFFFFFFFF).to_bytes(4, "big")
        return Address(".".join(map(str, octets)), False, number & 0xFFFFFFFF)
    groups = [number >> shift & 0xFFFF for shift in range(_IPV6_BITS - 16, -1, -16)]
    return Address(":".join(f"{group:x}" for group in groups), True, number)


def _ipv4(text: str) -> int | None:
    match = _IPV4.fullmatch(text)
    if match is None:
        return None
    number = 0
    for octet in match.groups():
        if int(octet) > 255:
            return None
        number = number << 8 | int(octet)
    return number


def _ipv6(text: str) -> int | None:
    import ipaddress  # here, because most brokers never meet such an address

    try:
        return int(ipaddress.IPv6Address(text))
    except ValueError:
        return None


# ---------------------------------------------------------------------- rules


EnumT = TypeVar("EnumT", bound=IntEnum)

WILDCARD = "*"
WILDCARD_PRINCIPAL = "User:*"

# No limit of Kafka's. Names of topics have at most 249 characters; those of groups and transactional ids any number.
TEXT_CHARACTERS_MAX = 4_096


class PatternType(IntEnum):
    """Kafka's PatternType. ANY and MATCH are valid only in filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Kafka's AclPermissionType. ANY is valid only in filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


def coded(kind: type[EnumT], code: int) -> EnumT:
    """Return the enum member with a number from a request; UNKNOWN if the number has no member."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


class Pattern(NamedTuple):
    """Resource pattern: all resources of a type with one name, or with one prefix (Kafka's ResourcePattern)."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str


class Entry(NamedTuple):
    """Part of an ACL rule: allows or denies an operation to a principal from a host (Kafka's AccessControlEntry)."""

    principal: str
    host: str
    operation: AclOperation
    permission: Permission


class Acl(NamedTuple):
    """ACL rule: an entry that applies to all resources of a pattern (Kafka's AclBinding)."""

    pattern: Pattern
    entry: Entry


class PatternFilter(NamedTuple):
    """Filter of resource patterns; a `name` of None matches any name (Kafka's ResourcePatternFilter)."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str | None

    def matches(self, pattern: Pattern) -> bool:
        """Return True if this filter matches `pattern`. MATCH: if `pattern` covers the resource called `name`."""
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
        """The only patterns that this filter can match; empty if all patterns have to be checked."""
        if self.resource_type is ResourceType.ANY or self.name is None:
            return ()
        kinds: tuple[PatternType, ...] = (self.pattern_type,)
        if self.pattern_type is PatternType.ANY:
            kinds = (PatternType.LITERAL, PatternType.PREFIXED)
        elif self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            return ()
        return tuple(Pattern(self.resource_type, kind, self.name) for kind in kinds)


class EntryFilter(NamedTuple):
    """Filter of ACL entries; fields that are None match anything (Kafka's AccessControlEntryFilter)."""

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
    """Filter of ACL rules (Kafka's AclBindingFilter). UNKNOWN matches nothing."""

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
        """Create a filter from the codes in a request. `resource`: resource type, name and pattern type."""
        resource_type, name, pattern_type = resource
        return cls(
            PatternFilter(coded(ResourceType, resource_type), coded(PatternType, pattern_type), name),
            EntryFilter(principal, host, coded(AclOperation, operation), coded(Permission, permission)),
        )

    @property
    def problem(self) -> str | None:
        """Reason why this filter must not delete rules; None if it may (Kafka's `AclControlManager.validateFilter`)."""
        if not (self.patterns.resource_type and self.patterns.pattern_type):
            return "Unknown patternFilter."
        if not (self.entries.operation and self.entries.permission):
            return "Unknown entryFilter."
        return None

    def matches(self, acl: Acl) -> bool:
        return self.patterns.matches(acl.pattern) and self.entries.matches(acl.entry)


def problem_with(acl: Acl) -> str | None:
    """Return the reason why a client may not create this rule; None if the rule is valid."""
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
