"""The rules of the authorizer as the coordination tree has them, and their changes (Kafka 3.9's AclAuthorizer over ZkAclStore).

Any broker changes rules. A change is written on condition of the version read, with a notification for other brokers, and
then applied on this broker. If another broker was faster, the rules are read and the change is worked out again, ten times
at most. One request's changes are written in as few multis as the tree takes. A broker that is alone keeps the same nodes
and needs no notices.

At the start of every session all rules are read. After that only those that a notice names are, which takes a round trip
to the tree. A broker that sees a notice older than 15 minutes removes it. While the tree is out of reach the rules that are
known go on to be in force, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.replication.cluster.coordination import (
    BadVersion,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    SetData,
)
from ottla.replication.cluster.znodes import MalformedNode
from ottla.server.cluster.config_notifications import ChangeNotices, Signal, follow, persistently
from ottla.server.cluster.session import make_missing
from ottla.server.security import acl_znodes
from ottla.server.security.acls import Acl, AclFilter, Entry, Pattern, PatternType
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import Coordination, Node
    from ottla.server.security.authorizer import AclAuthorizer

logger = logging.getLogger("ottla.acls")

TRIES = 11  # Kafka's maxUpdateRetries is 10
RETRY_S = 0.1
PATTERNS_PER_MULTI = 200
BYTES_PER_MULTI = 256 * 1024  # ZooKeeper by default takes no request of more than about a megabyte
NODES_PER_SLICE = 200  # read, and decoded, before others get a turn on the event loop
ACLS_MAX = 100_000  # of all together; Kafka has no limit
REPETITIONS_MAX = 3  # how often the rules that one request removes may be found on average; Kafka has no limit

NO_ENTRIES: frozenset[Entry] = frozenset()
EntriesChange = Callable[[Pattern, frozenset[Entry]], frozenset[Entry]]


class _Known(NamedTuple):
    """ACL rules of one pattern as last read from the tree. `version`: version of its node, None without a node."""

    entries: frozenset[Entry]
    version: int | None
    """None if there is no node."""


class AclStore:
    """Store of the authorizer's ACLs in the coordination tree. `refusal` converts write errors for the client."""

    def __init__(
        self,
        authorizer: AclAuthorizer,
        coordination: Coordination,
        *,
        refusal: Callable[[CoordinationError], KafkaError],
        has_readers: bool,
        clock_ms: Callable[[], int],
    ) -> None:
        """Create the store; `has_readers`: other brokers read the same tree and must be notified of changes."""
        self._authorizer, self._coordination = authorizer, coordination
        self._refusal, self._has_readers = refusal, has_readers
        # Whoever reads or writes rules does so alone: what was read before a write must not come into force after it.
        self._lock = trio.Lock()
        self._notices = {
            kind: ChangeNotices(coordination, parent, acl_znodes.CHANGE_PREFIX, clock_ms)
            for kind, parent in acl_znodes.CHANGES.items()
        }
        self._changed = Signal()

    # ------------------------------------------------------------------ what there is

    async def matching(self, acl_filter: AclFilter) -> dict[Pattern, list[Entry]]:
        """Return the rules that `acl_filter` matches, by pattern."""
        known = self._authorizer.index.entries
        patterns: Collection[Pattern] = acl_filter.patterns.only or list(known)
        found: dict[Pattern, list[Entry]] = {}
        time_slice = TimeSlice()  # by the clock, because a pattern may have thousands of entries
        for pattern in patterns:
            if acl_filter.patterns.matches(pattern):
                entries = sorted(each for each in known.get(pattern, ()) if acl_filter.entries.matches(each))
                if entries:
                    found[pattern] = entries
            await time_slice.yield_if_over()
        return found

    # ------------------------------------------------------------------ changing

    async def add(self, acls: Sequence[Acl]) -> list[KafkaError | None]:
        """Add ACL rules and return, for each, None or an error. Rules that exist already stay."""
        added: dict[Pattern, set[Entry]] = {}
        for acl in acls:
            added.setdefault(acl.pattern, set()).add(acl.entry)
        errors: dict[Pattern, KafkaError] = {}
        async with self._lock:
            if self._authorizer.index.count + len(acls) > ACLS_MAX:
                error = KafkaError(ErrorCode.POLICY_VIOLATION, f"There can be no more than {ACLS_MAX} ACLs")
                return [error] * len(acls)
            for patterns in _pieces({each: self._entries(each) | more for each, more in added.items()}):
                error_of_all = await self._change(patterns, lambda pattern, known: known | added[pattern])
                if error_of_all is not None:
                    errors |= dict.fromkeys(patterns, error_of_all)
        return [errors.get(acl.pattern) for acl in acls]

    async def remove(self, filters: Sequence[AclFilter], limit: int) -> list[list[tuple[Acl, KafkaError | None]]]:
        """Remove the rules that `filters` match; return the removed rules by filter, each rule with None or an error.

        Raises KafkaError if the filters match more than `limit` different rules, or the same rules too many times.
        """
        removed: list[list[tuple[Acl, KafkaError | None]]] = [[] for _ in filters]
        async with self._lock:
            wanted = await self._meant_by(filters, limit)
            for patterns in _pieces({each: self._entries(each) for each in wanted}):
                found: list[tuple[int, Acl]] = []

                def without(
                    pattern: Pattern, known: frozenset[Entry], found: list[tuple[int, Acl]] = found
                ) -> frozenset[Entry]:
                    kept = []
                    for entry in sorted(known):
                        finders = [each for each in wanted[pattern] if filters[each].entries.matches(entry)]
                        found.extend([(each, Acl(pattern, entry)) for each in finders])
                        if not finders:
                            kept.append(entry)
                    return frozenset(kept)

                error = await self._change(patterns, without, forget=found.clear)
                for number, acl in found:
                    removed[number].append((acl, error))
        return removed

    async def _meant_by(self, filters: Sequence[AclFilter], limit: int) -> dict[Pattern, list[int]]:
        """Return the patterns that `filters` select, with those filters' indexes. Raises KafkaError if too many."""
        meant: dict[Pattern, list[int]] = {}
        matched: set[Acl] = set()
        known: dict[AclFilter, Mapping[Pattern, list[Entry]]] = {}
        told, time_slice = 0, TimeSlice()
        for number, acl_filter in enumerate(filters):
            is_new = acl_filter not in known
            if is_new:
                known[acl_filter] = await self.matching(acl_filter)
            found = known[acl_filter]
            count = sum(map(len, found.values()))
            told += count
            if is_new and count <= limit:
                matched.update([Acl(pattern, entry) for pattern, entries in found.items() for entry in entries])
            await time_slice.yield_if_over()
            if max(count, len(matched)) > limit or told > limit * REPETITIONS_MAX:
                text = f"Cannot remove more than {limit} acls in a single delete operation."
                raise KafkaError(ErrorCode.INVALID_REQUEST, text)
            # A pattern that is named may have rules that this broker has not heard of yet.
            for pattern in acl_filter.patterns.only or found:
                meant.setdefault(pattern, []).append(number)
        return meant

    def _entries(self, pattern: Pattern) -> frozenset[Entry]:
        return self._authorizer.index.entries.get(pattern, NO_ENTRIES)

    async def _change(
        self, patterns: Sequence[Pattern], change: EntriesChange, forget: Callable[[], None] = lambda: None
    ) -> KafkaError | None:
        """Change the rules of `patterns` in one multi (an atomic write); return None or an error.

        `change` returns a pattern's new rules. `forget` is called before each try, to discard results of the last try.
        """
        for attempt in range(TRIES):
            if attempt:
                await trio.sleep(RETRY_S)
            try:
                known = await self._read(patterns)
                forget()
                wanted = {pattern: change(pattern, known[pattern].entries) for pattern in patterns}
                await self._write(known, wanted)
            except (BadVersion, NodeExists, NoNode):
                continue  # another broker was faster
            except MalformedNode as error:
                logger.error("ACLs cannot be changed, because their node cannot be read: %s", error)
                return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The ACLs of a resource cannot be read")
            except CoordinationError as error:
                logger.error("ACLs cannot be written: %r", error)
                return self._refusal(error)
            for pattern, entries in wanted.items():
                self._authorizer.put(pattern, entries)
            return None
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Failed to update ACLs after trying {TRIES} times")

    async def _read(self, patterns: Sequence[Pattern]) -> dict[Pattern, _Known]:
        nodes = await self._coordination.get_all([acl_znodes.path_of(each) for each in patterns])
        return {
            pattern: _Known(NO_ENTRIES, None)
            if node is None
            else _Known(acl_znodes.decode_entries(node.data), node.version)
            for pattern, node in zip(patterns, nodes, strict=True)
        }

    async def _write(self, known: Mapping[Pattern, _Known], wanted: Mapping[Pattern, frozenset[Entry]]) -> None:
        operations: list[Operation] = []
        for pattern, entries in wanted.items():
            before, version = known[pattern]
            if entries == before:
                continue
            path, data = acl_znodes.path_of(pattern), acl_znodes.encode_entries(entries)
            if version is None:
                operations.append(Create(path, data))
            elif entries:
                operations.append(SetData(path, data, version))
            else:
                operations.append(Delete(path, version))
            if self._has_readers:
                operations.append(self._notices[pattern.pattern_type].of(acl_znodes.encode_change(pattern)))
        if operations:
            await self._coordination.multi(operations)

    # ------------------------------------------------------------------ reading, and hearing of changes

    async def read_all(self) -> None:
        """Load all rules. Raises CoordinationError, and MalformedNode for an unreadable rule (it may be a deny)."""
        await make_missing(self._coordination, acl_znodes.all_paths())
        async with self._lock:
            found: set[Pattern] = set()
            for kind in acl_znodes.ROOTS:
                for resource_type in acl_znodes.TYPES:
                    nodes = await self._coordination.children_data(acl_znodes.type_path(kind, resource_type))
                    patterns = [Pattern(resource_type, kind, name) for name in nodes]
                    found.update(patterns)
                    await self._take_all(patterns, nodes)
            for pattern in [each for each in self._authorizer.index.entries if each not in found]:
                self._authorizer.put(pattern, NO_ENTRIES)

    async def _take_all(self, patterns: Sequence[Pattern], nodes: Mapping[str, Node]) -> None:
        decoded: dict[bytes, frozenset[Entry]] = {}  # thousands of patterns have the same rules
        time_slice = TimeSlice()
        for pattern in patterns:
            data = nodes[pattern.name].data
            entries = decoded.get(data)
            if entries is None:
                entries = decoded[data] = _decoded(pattern, data)
            self._put(pattern, entries)
            await time_slice.yield_if_over()

    def _put(self, pattern: Pattern, entries: frozenset[Entry]) -> None:
        if entries != self._entries(pattern):
            self._authorizer.put(pattern, entries)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Apply other brokers' rule changes; report `started` after all are read. Raises SessionExpired at the end."""
        await persistently(self._coordination, lambda: make_missing(self._coordination, acl_znodes.all_paths()))
        # Before anything is read, so that no notice is missed in between.
        ends = [self._coordination.watch_children(path, self._changed.set) for path in acl_znodes.CHANGES.values()]
        reads = (self._read_everything, self._read_what_changed)
        await follow(self._coordination, self._changed, ends, *reads, task_status=task_status)

    async def _read_everything(self) -> None:
        # First: what is changed while the rules are read is then read once more, and not missed.
        for notices in self._notices.values():
            await notices.pass_over()
        await self.read_all()

    async def _read_what_changed(self) -> None:
        for kind, notices in self._notices.items():
            held, number = await notices.read()
            patterns = dict.fromkeys([_named_by(kind, each) for each in held])
            await self._read_again([each for each in patterns if each is not None])
            # Only now: if reading fails, the same rules are read again.
            await notices.heeded(number)

    async def _read_again(self, patterns: Sequence[Pattern]) -> None:
        for start in range(0, len(patterns), NODES_PER_SLICE):
            some = patterns[start : start + NODES_PER_SLICE]
            async with self._lock:
                nodes = await self._coordination.get_all([acl_znodes.path_of(each) for each in some])
                for pattern, node in zip(some, nodes, strict=True):
                    try:
                        self._put(pattern, NO_ENTRIES if node is None else _decoded(pattern, node.data))
                    except MalformedNode as error:
                        logger.error("ACLs cannot be read; the former ones stay in force: %s", error)


def _decoded(pattern: Pattern, data: bytes) -> frozenset[Entry]:
    """Decode an ACL node. Raises MalformedNode, whose text names the node."""
    try:
        return acl_znodes.decode_entries(data)
    except MalformedNode as error:
        raise MalformedNode(f"{acl_znodes.path_of(pattern)}: {error}") from None


def _named_by(kind: PatternType, notice: bytes) -> Pattern | None:
    try:
        return acl_znodes.decode_change(kind, notice)
    except MalformedNode as error:
        logger.error("Left aside a notice of changed ACLs: %s", error)
        return None


def _pieces(nodes: Mapping[Pattern, Iterable[Entry]]) -> Iterator[list[Pattern]]:
    """Split `nodes` into groups small enough for one multi (an atomic write of several nodes)."""
    piece: list[Pattern] = []
    size = 0
    for pattern, entries in nodes.items():
        piece.append(pattern)
        size += 300 + sum([100 + len(entry.principal) + len(entry.host) for entry in entries])
        if len(piece) >= PATTERNS_PER_MULTI or size >= BYTES_PER_MULTI:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
