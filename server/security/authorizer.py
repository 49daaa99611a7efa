"""Authorization by Kafka's rules (its StandardAuthorizer, and AclAuthorizer of Kafka 3.9).

Super users may do everything. For everybody else `AclIndex` decides. Verdicts are kept until a rule changes: a verdict has
the bits of all operations that a client may do to a resource. The cache has a young and an old generation. A verdict that
is used moves to the young generation. When the young generation is full it replaces the old one, whose verdicts are
dropped.

A decision of the index (Kafka's StandardAuthorizerData) about the resource `name` for one principal and address:

    the rules that concern it   those of the literal `name`, those of the literal `*`, those of each prefix of `name`
    of these                    the entries of the principal and of `User:*`, for the address, for `*`, for its networks
    allowed                     what they allow, and what that implies, less what they deny
    no rule concerns it         everything or nothing, as allow.everyone.if.no.acl.found says

The index decides on all operations at once: allowed and denied operations are bits, and ALL sets all of them. READ, WRITE,
DELETE and ALTER imply DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS, if they are allowed. What is denied implies
nothing.

Prefixes are looked up once for each distinct length, so ten thousand prefixes cost as much as ten of the same lengths.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ottla.replication.reminders import Reminders
from ottla.server.config.security_config import AuthorizerConfig
from ottla.server.dispatch.access import AclOperation, ResourceType
from ottla.server.dispatch.context import THIS_BROKER
from ottla.server.security.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Address,
    Entry,
    InvalidNetwork,
    Network,
    Pattern,
    PatternType,
    Permission,
    client_address,
)

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
    """Rights that the rules of one pattern grant and deny: a bit for each operation.

    `bits`: rights by (principal, host). `networks`: (principal, network, bits) of rules whose host is a network.
    """

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
            return  # as in Kafka such a rule matches no principal

    def of(self, requester: Requester) -> int:
        """Return the bits of operations allowed to a client; its denied operations are the bits from `_DENIED` on."""
        get, bits = self.bits.get, 0
        for who in requester.whos:
            bits |= get(who, 0)
        if self.networks:
            for principal, network, more in self.networks:
                if principal in requester.principals and network.holds(requester.address):
                    bits |= more
        return bits


class Requester:
    """Client that asks for access: principal, address, and each (principal, host) that a rule may name for it."""

    __slots__ = ("address", "principals", "whos")

    def __init__(self, principal: str, address: Address) -> None:
        self.address = address
        self.principals = (principal, WILDCARD_PRINCIPAL)
        self.whos = tuple([(who, host) for who in self.principals for host in (address.text, WILDCARD)])


class _Rules:
    """ACL rules for all resources of one type."""

    __slots__ = ("lengths", "literal", "patterns_of", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Rights] = {}
        self.prefixed: dict[str, _Rights] = {}
        self.lengths: Counter[int] = Counter()  # of the prefixes
        self.patterns_of: dict[str, set[Pattern]] = {}  # by principal

    def put(
        self, pattern: Pattern, before: Collection[Entry], after: Collection[Entry], rights: _Rights | None
    ) -> None:
        """Replace the entries of a pattern. `rights`: the rights that `after` grants; None if `after` is empty."""
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
        """Return the rights of each pattern that covers the resource called `name`."""
        literal, prefixed, size = self.literal, self.prefixed, len(name)
        found = [literal.get(name), literal.get(WILDCARD)]
        for length in self.lengths:
            if length <= size:
                found.append(prefixed.get(name[:length]))
        return [rights for rights in found if rights is not None]

    def rights(self, pattern: Pattern) -> _Rights:
        return (self.prefixed if pattern.pattern_type is PatternType.PREFIXED else self.literal)[pattern.name]


class AclIndex:
    """Index of all ACL rules. It finds the rules that can apply to a resource without reading all."""

    def __init__(self) -> None:
        self._entries: dict[Pattern, frozenset[Entry]] = {}
        self._rules: dict[ResourceType, _Rules] = {}
        self._rights: dict[frozenset[Entry], _Rights] = {}  # those that patterns may have in common
        self.count = 0

    @property
    def entries(self) -> Mapping[Pattern, frozenset[Entry]]:
        """Entries of all ACL rules, by pattern."""
        return self._entries

    def put(self, pattern: Pattern, entries: frozenset[Entry]) -> None:
        """Replace all entries of a pattern; with no entries, remove the pattern."""
        before = self._entries.pop(pattern, frozenset())
        if entries:
            self._entries[pattern] = entries
        self.count += len(entries) - len(before)
        rules = self._rules.get(pattern.resource_type)
        if rules is None:
            rules = self._rules[pattern.resource_type] = _Rules()
        rules.put(pattern, before, entries, self._rights_of(entries) if entries else None)

    def _rights_of(self, entries: frozenset[Entry]) -> _Rights:
        """Return the rights that result from these entries.

        Thousands of patterns often share a few sets of entries; equal sets share one object of rights.
        """
        if len(entries) > SHARED_ENTRIES_MAX:
            return _Rights(entries)
        rights = self._rights.get(entries)
        if rights is None:
            if len(self._rights) >= SHARED_RIGHTS_MAX:
                self._rights.clear()
            rights = self._rights[entries] = _Rights(entries)
        return rights

    def allowed(self, requester: Requester, resource_type: ResourceType, name: str) -> int | None:
        """Return the operations allowed on a resource, as bits; None if no rule applies to the resource."""
        rules = self._rules.get(resource_type)
        concerning = () if rules is None else rules.concerning(name)
        if not concerning:
            return None
        bits = 0
        for rights in concerning:
            bits |= rights.of(requester)
        allowed = bits & EVERYTHING
        if allowed & _IMPLY_DESCRIBE:
            allowed |= _DESCRIBE
        if allowed & _IMPLY_DESCRIBE_CONFIGS:
            allowed |= _DESCRIBE_CONFIGS
        return allowed & ~(bits >> _DENIED)

    def allows_on_any(self, requester: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Tell whether a client may do an operation on some resource of a type (Kafka's `authorizeByResourceType`).

        No operation implies another. A deny for all names wins, then an allow for all names. Any other allow counts
        unless a deny has the same name or a prefix of it.
        """
        rules = self._rules.get(resource_type)
        if rules is None:
            return False
        allowed: set[Pattern] = set()
        denied: set[Pattern] = set()
        for who in set(requester.principals):
            for pattern in rules.patterns_of.get(who, ()):
                bits = rules.rights(pattern).of(requester)
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


# ---------------------------------------------------------------------- log of refusals


logger = logging.getLogger("ottla.authorizer")

LINES_MAX = 200
QUOTED_CHARACTERS_MAX = 300


class RefusalLog:
    """Log of denied operations at INFO, as in Kafka, with a rate limit. `clock_s` returns seconds.

    Repetitions of a denial are counted, and logged once a minute; at most `LINES_MAX` different denials are logged a
    minute. Names come from clients, so they are quoted, and unprintable characters are escaped.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._reminders = Reminders(LINES_MAX, clock_s)

    def note(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """Log a denied operation, within the rate limit."""
        if not logger.isEnabledFor(logging.INFO):
            return
        self._reminders.tell(
            (principal, host, operation, resource_type, name[:QUOTED_CHARACTERS_MAX]),
            logger.info,
            "Principal = %s is Denied operation = %s from host = %s on resource = %s:LITERAL:%s",
            _quoted(principal),
            operation.name,
            host.removeprefix("/"),
            resource_type.name,
            _quoted(name),
            source=(principal, host),
        )


def _quoted(text: str) -> str:
    if len(text) > QUOTED_CHARACTERS_MAX:
        return f"{text[:QUOTED_CHARACTERS_MAX]!r}... ({len(text)} characters)"
    return repr(text)


# ---------------------------------------------------------------------- the authorizer


VERDICTS_PER_HALF = 5_000
# Longer names are decided again each time: strangers could fill the memory with them.
KEPT_CHARACTERS_MAX = 600
_SOME_NAME = "hardcode"  # Kafka's: may the client do this to a resource that no rule names?


class AclAuthorizer:
    """Authorizer by Kafka's ACL rules: an `Authorizer` of `server/dispatch/access.py`."""

    def __init__(self, config: AuthorizerConfig, clock_s: Callable[[], float]) -> None:
        self.index = AclIndex()
        self.version = 0
        self._super_users = config.super_users | {THIS_BROKER}
        self._allow_everyone = config.allow_everyone
        self._young: dict[tuple[str, str, int, str], int] = {}
        self._old: dict[tuple[str, str, int, str], int] = {}
        self._any: dict[tuple[str, str, int, int], bool] = {}
        self._log = RefusalLog(clock_s)

    def put(self, pattern: Pattern, entries: frozenset[Entry]) -> None:
        """Replace all entries of a pattern, and drop the cached decisions."""
        self.index.put(pattern, entries)
        self.version += 1
        self._young, self._old, self._any = {}, {}, {}

    # ------------------------------------------------------------------ questions

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str, quietly: bool
    ) -> bool:
        verdict = self._young.get((principal, host, resource_type, name))
        if verdict is None:
            verdict = self._verdict(principal, host, resource_type, name)
        if verdict >> operation & 1:
            return True
        if not quietly:
            self._log.note(principal, host, operation, resource_type, name)
        return False

    def operations(
        self, principal: str, host: str, candidates: Sequence[AclOperation], resource_type: ResourceType, name: str
    ) -> int:
        verdict = self._verdict(principal, host, resource_type, name)
        return sum([1 << each for each in candidates if verdict >> each & 1])

    def allows_on_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        key = (principal, host, operation, resource_type)
        allowed = self._any.get(key)
        if allowed is None:
            if len(self._any) >= VERDICTS_PER_HALF:
                self._any.clear()
            allowed = self._any[key] = self._decide_on_any(principal, host, operation, resource_type)
        return allowed

    def _decide_on_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        if self.allows(principal, host, operation, resource_type, _SOME_NAME, quietly=True):
            return True
        requester = Requester(principal, client_address(host))
        return self.index.allows_on_any(requester, operation, resource_type)

    # ------------------------------------------------------------------ verdicts

    def _verdict(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        """Return the bits of all operations that a client may do on a resource. Recent results are cached."""
        key = (principal, host, resource_type, name)
        verdict = self._young.get(key)
        if verdict is not None:
            return verdict
        verdict = self._old.get(key)
        if verdict is None:
            verdict = self._decide(principal, host, resource_type, name)
        if len(name) + len(principal) > KEPT_CHARACTERS_MAX:
            return verdict
        if len(self._young) >= VERDICTS_PER_HALF:
            self._old, self._young = self._young, {}
        self._young[key] = verdict
        return verdict

    def _decide(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        if principal in self._super_users:
            return EVERYTHING
        allowed = self.index.allowed(Requester(principal, client_address(host)), resource_type, name)
        if allowed is None:
            return EVERYTHING if self._allow_everyone else 0
        return allowed
