"""All rules, so arranged that a decision looks only at those that can matter (what Kafka's StandardAuthorizerData decides).

A decision about the resource `name` for one principal and address:

    the rules that concern it   those of the literal `name`, those of the literal `*`, those of each prefix of `name`
    of these                    the entries of the principal and of `User:*`, for the address, for `*`, for its networks
    allowed                     what they allow, and what that implies, less what they deny
    no rule concerns it         everything or nothing, as allow.everyone.if.no.acl.found says

It is made for all operations at once: allowed and denied operations are bits, and ALL sets all of them. READ, WRITE,
DELETE and ALTER imply DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS, if they are allowed. What is denied implies nothing.

Prefixes are looked up by the lengths that there are, so ten thousand of them cost as much as ten of the same lengths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from ottla.server.auth.acls import WILDCARD, WILDCARD_PRINCIPAL, Entry, Pattern, PatternType, Permission
from ottla.server.auth.hosts import Address, InvalidNetwork, Network
from ottla.server.gate.authorized_operations import AclOperation, ResourceType

SHARED_RIGHTS_MAX = 1_000
SHARED_ENTRIES_MAX = 10
_DENIED = 16  # bits from this one on are of operations that are denied
EVERYTHING = (1 << _DENIED) - 1  # all operations that Kafka has numbers for
_DESCRIBE = 1 << AclOperation.DESCRIBE
_IMPLY_DESCRIBE = sum(
    1 << each for each in (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
)
_DESCRIBE_CONFIGS = 1 << AclOperation.DESCRIBE_CONFIGS
_IMPLY_DESCRIBE_CONFIGS = 1 << AclOperation.ALTER_CONFIGS


Who = tuple[str, str]
"""A principal and a host, as a rule names them."""


class _Rights:
    """What the rules of one pattern allow and deny; `networks` are of (principal, network, bits)."""

    __slots__ = ("bits", "networks")

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.bits: dict[Who, int] = {}
        self.networks: list[tuple[str, Network, int]] = []
        for entry in entries:
            bits = EVERYTHING if entry.operation is AclOperation.ALL else 1 << entry.operation
            if entry.permission is Permission.DENY:
                bits <<= _DENIED
            if "/" in entry.host:
                self._add_network(entry, bits)
            else:
                who = (entry.principal, entry.host)
                self.bits[who] = self.bits.get(who, 0) | bits

    def _add_network(self, entry: Entry, bits: int) -> None:
        try:
            self.networks.append((entry.principal, Network.parse(entry.host), bits))
        except InvalidNetwork:
            return  # as in Kafka such a rule is for nobody

    def of(self, asking: Asking) -> int:
        """The bits of whoever asks: what is allowed, and shifted by `_DENIED` what is denied."""
        get, bits = self.bits.get, 0
        for who in asking.whos:
            bits |= get(who, 0)
        if self.networks:
            for principal, network, more in self.networks:
                if principal in asking.principals and network.holds(asking.address):
                    bits |= more
        return bits


class Asking:
    """A principal at an address, with the names that rules may have for it."""

    __slots__ = ("address", "principals", "whos")

    def __init__(self, principal: str, address: Address) -> None:
        self.address = address
        self.principals = (principal, WILDCARD_PRINCIPAL)
        self.whos = tuple([(who, host) for who in self.principals for host in (address.text, WILDCARD)])


class _Rules:
    """The rules about resources of one type."""

    __slots__ = ("lengths", "literal", "patterns_of", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Rights] = {}
        self.prefixed: dict[str, _Rights] = {}
        self.lengths: Counter[int] = Counter()  # of the prefixes
        self.patterns_of: dict[str, set[Pattern]] = {}  # by principal

    def put(
        self, pattern: Pattern, before: Collection[Entry], after: Collection[Entry], rights: _Rights | None
    ) -> None:
        """`rights`: what `after` gives, None if that is nothing."""
        if before:
            self._leave_out(pattern, before)
        for principal in {entry.principal for entry in after}:
            patterns = self.patterns_of.get(principal)
            if patterns is None:
                patterns = self.patterns_of[principal] = set()
            patterns.add(pattern)
        is_prefix = pattern.pattern_type is PatternType.PREFIXED
        place = self.prefixed if is_prefix else self.literal
        if rights is not None:
            place[pattern.name] = rights
        else:
            place.pop(pattern.name, None)
        if is_prefix:
            self._count(len(pattern.name), bool(after) - bool(before))

    def _leave_out(self, pattern: Pattern, before: Iterable[Entry]) -> None:
        for principal in {entry.principal for entry in before}:
            patterns = self.patterns_of[principal]
            patterns.remove(pattern)
            if not patterns:
                del self.patterns_of[principal]

    def _count(self, length: int, change: int) -> None:
        self.lengths[length] += change
        if not self.lengths[length]:
            del self.lengths[length]

    def concerning(self, name: str) -> list[_Rights]:
        """The rules that concern a resource, by the patterns that it falls under."""
        literal, prefixed, size = self.literal, self.prefixed, len(name)
        found = [literal.get(name), literal.get(WILDCARD)]
        for length in self.lengths:
            if length <= size:
                found.append(prefixed.get(name[:length]))
        return [rights for rights in found if rights is not None]

    def rights(self, pattern: Pattern) -> _Rights:
        return (self.prefixed if pattern.pattern_type is PatternType.PREFIXED else self.literal)[pattern.name]


class AclIndex:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._entries: dict[Pattern, frozenset[Entry]] = {}
        self._rules: dict[ResourceType, _Rules] = {}
        self._rights: dict[frozenset[Entry], _Rights] = {}  # those that patterns may have in common
        self.count = 0

    @property
    def entries(self) -> Mapping[Pattern, frozenset[Entry]]:
        """All rules, by what they are about."""
        return self._entries

    def put(self, pattern: Pattern, entries: frozenset[Entry]) -> None:
        """From now on these are the rules about a pattern."""
        before = self._entries.pop(pattern, frozenset())
        if entries:
            self._entries[pattern] = entries
        self.count += len(entries) - len(before)
        rules = self._rules.get(pattern.resource_type)
        if rules is None:
            rules = self._rules[pattern.resource_type] = _Rules()
        rules.put(pattern, before, entries, self._rights_of(entries) if entries else None)

    def _rights_of(self, entries: frozenset[Entry]) -> _Rights:
        """Nobody changes them, and thousands of patterns have the same few rules each."""
        if len(entries) > SHARED_ENTRIES_MAX:
            return _Rights(entries)
        rights = self._rights.get(entries)
        if rights is None:
            if len(self._rights) >= SHARED_RIGHTS_MAX:
                self._rights.clear()
            rights = self._rights[entries] = _Rights(entries)
        return rights

    def allowed(self, asking: Asking, resource_type: ResourceType, name: str) -> int | None:
        """The operations that are allowed, as bits; None if no rule concerns the resource."""
        rules = self._rules.get(resource_type)
        concerning = () if rules is None else rules.concerning(name)
        if not concerning:
            return None
        bits = 0
        for rights in concerning:
            bits |= rights.of(asking)
        allowed = bits & EVERYTHING
        if allowed & _IMPLY_DESCRIBE:
            allowed |= _DESCRIBE
        if allowed & _IMPLY_DESCRIBE_CONFIGS:
            allowed |= _DESCRIBE_CONFIGS
        return allowed & ~(bits >> _DENIED)

    def allows_on_any(self, asking: Asking, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether a rule allows this to some resource of the type, and no rule takes all of that back.

        Kafka's `Authorizer.authorizeByResourceType`: nothing is implied, a deny of all names comes first, then an allow of
        all names. Any other allow counts unless a deny has the same name or a prefix of it.
        """
        rules = self._rules.get(resource_type)
        if rules is None:
            return False
        allowed: set[Pattern] = set()
        denied: set[Pattern] = set()
        for who in set(asking.principals):
            for pattern in rules.patterns_of.get(who, ()):
                bits = rules.rights(pattern).of(asking)
                if bits >> operation & 1:
                    allowed.add(pattern)
                if bits >> _DENIED >> operation & 1:
                    denied.add(pattern)
        wildcard = Pattern(resource_type, PatternType.LITERAL, WILDCARD)
        if wildcard in denied:
            return False
        if wildcard in allowed or not denied:
            return bool(allowed)
        prefixes = {each.name for each in denied if each.pattern_type is PatternType.PREFIXED}
        lengths = set(map(len, prefixes))
        return not all(_is_taken_back(each, denied, prefixes, lengths) for each in allowed)


def _is_taken_back(pattern: Pattern, denied: set[Pattern], prefixes: set[str], lengths: set[int]) -> bool:
    if pattern.pattern_type is PatternType.LITERAL and pattern in denied:
        return True
    name = pattern.name
    return any(name[:length] in prefixes for length in lengths if length <= len(name))
