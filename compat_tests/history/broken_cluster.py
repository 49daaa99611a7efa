"""Three replicas in memory, with one switch for each kind of wrong that only a cluster can do.

One partition of records and one of committed offsets, both replicated in the same way: the leader appends, followers copy
and first cut off what their leader does not have, the high watermark follows the slowest replica in sync, and another replica
in sync leads when the leader is gone. A leader that is cut off goes on believing that it leads. What a `Flaw` breaks is broken
at every occasion. What a single broker can do wrong is in `broken.py`.
"""

from dataclasses import dataclass, field, replace
from enum import Enum

from ottla.server.testing.history.replica_logs import Replicas
from ottla.server.testing.history.rules import Rule
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

NODES = 3
MIN_IN_SYNC = 2
RECORDS, OFFSETS = "records", "offsets"


class Flaw(Enum):
    """What goes wrong; the rule under which it has to be reported, and which others may be, because of what comes of it."""

    ACKNOWLEDGES_ALONE = (
        "the high watermark does not wait for followers",
        Rule.LOST, Rule.OFFSET_LOST, Rule.SHOWN_THEN_GONE,
    )  # fmt: skip
    WATERMARK_SKIPS_THE_SLOWEST = (
        "a replica counts as in sync that lags behind the high watermark",
        Rule.LOST, Rule.OFFSET_LOST, Rule.SHOWN_THEN_GONE,
    )  # fmt: skip
    SHOWS_BEYOND_THE_WATERMARK = "readers are shown what is not replicated", Rule.SHOWN_THEN_GONE
    JOINS_TOO_EARLY = (
        "a follower counts as in sync before it has caught up",
        Rule.LOST, Rule.OFFSET_LOST, Rule.SHOWN_THEN_GONE,
    )  # fmt: skip
    ELECTS_OUT_OF_SYNC = (
        "a replica leads that was not in sync",
        Rule.LOST, Rule.OFFSET_LOST, Rule.SHOWN_THEN_GONE,
    )  # fmt: skip
    DOES_NOT_TRUNCATE = (
        "a follower keeps what its new leader does not have",
        Rule.REPLICAS_DIFFER, Rule.LOST, Rule.MOVED, Rule.TWO_VALUES, Rule.DUPLICATE, Rule.REORDERED,
        Rule.SHOWN_THEN_GONE, Rule.OFFSET_LOST,
    )  # fmt: skip
    TRUNCATES_TO_ITS_WATERMARK = (
        "a follower that starts again drops what is above its own high watermark, and may then lead",
        Rule.LOST, Rule.OFFSET_LOST, Rule.SHOWN_THEN_GONE,
    )  # fmt: skip
    DEPOSED_LEADER_ACKNOWLEDGES = (
        "a leader that is cut off takes the others out of sync by itself",
        Rule.LOST, Rule.SHOWN_THEN_GONE,
    )  # fmt: skip
    NEW_LEADER_FORGETS_PRODUCERS = "sequence numbers are not known after a failover", Rule.DUPLICATE, Rule.REORDERED
    EPOCH_STAYS = (
        "a new leader has the epoch of the one before, so that its followers keep what it does not have",
        Rule.END_BACK, Rule.REPLICAS_DIFFER, Rule.LOST, Rule.MOVED, Rule.TWO_VALUES, Rule.DUPLICATE, Rule.REORDERED,
        Rule.SHOWN_THEN_GONE, Rule.OFFSET_LOST,
    )  # fmt: skip
    ELECTS_NOBODY = "when a leader has gone nobody else leads until all are back", Rule.AWAY
    OFFSETS_ARE_NOT_REPLICATED = "committed offsets are acknowledged when the leader has them", Rule.OFFSET_LOST
    COPIES_TWICE = (
        "a follower appends again what it has",
        Rule.REPLICAS_DIFFER, Rule.DUPLICATE, Rule.TWO_VALUES, Rule.MOVED, Rule.LOST, Rule.REORDERED,
        Rule.SHOWN_THEN_GONE, Rule.OFFSET_LOST,
    )  # fmt: skip
    CHANGES_A_COPY = (
        "a follower's copy is not the leader's record",
        Rule.REPLICAS_DIFFER, Rule.INVENTED, Rule.CHANGED, Rule.TWO_VALUES, Rule.LOST, Rule.SHOWN_THEN_GONE,
        Rule.OFFSET_LOST,
    )  # fmt: skip

    @property
    def rule(self) -> Rule:
        return self.value[1]

    @property
    def rules(self) -> set[Rule]:
        return set(self.value[1:])


@dataclass(frozen=True)
class Entry:
    value: str
    producer: str
    sequence: int
    leader_epoch: int = 0


@dataclass
class Log:
    """Offsets are places in the list."""

    entries: list[Entry] = field(default_factory=list)
    high_watermark: int = 0

    @property
    def end(self) -> int:
        return len(self.entries)


@dataclass
class Node:
    number: int
    logs: dict[str, Log] = field(default_factory=lambda: {RECORDS: Log(), OFFSETS: Log()})
    alive: bool = True
    leads_in: int | None = None
    """The epoch in which it believes that it leads."""

    in_sync: set[int] = field(default_factory=set)
    """As it last heard of it while it led."""

    fetched: dict[int, dict[str, int]] = field(default_factory=dict)
    """While it leads: up to where each follower holds its logs, as its fetches in this epoch say."""

    known_from: int = 0
    """Where the producers' sequence numbers begin that it knows; only with the flaw that it forgets them."""


class Cluster:
    def __init__(self, flaw: Flaw | None = None) -> None:
        self._flaw = flaw
        self.nodes = [Node(number) for number in range(NODES)]
        self.epoch = 0
        self.in_sync = set(range(NODES))
        self.leader: Node | None = None
        self.cut_off: Node | None = None
        """A leader that nobody but clients can reach."""

        self._lead(self.nodes[0])

    @property
    def is_whole(self) -> bool:
        return self.cut_off is None and all(node.alive for node in self.nodes)

    # --- who leads ----------------------------------------------------------------------------------------------------

    def _lead(self, node: Node) -> None:
        if self._flaw is not Flaw.EPOCH_STAYS:
            self.epoch += 1
        self.leader = node
        node.leads_in, node.in_sync, node.fetched = self.epoch, set(self.in_sync), {}
        if self._flaw is Flaw.NEW_LEADER_FORGETS_PRODUCERS:
            node.known_from = node.logs[RECORDS].end

    def _elect(self, choice: int) -> None:
        """When there is no leader: somebody who is in sync, if one can be reached."""
        if self._flaw is Flaw.ELECTS_NOBODY and not self.is_whole:
            self.leader = None
            return
        reachable = [node for node in self.nodes if node.alive and node is not self.cut_off]
        fit = [node for node in reachable if node.number in self.in_sync]
        if self._flaw is Flaw.ELECTS_OUT_OF_SYNC:
            fit = [node for node in reachable if node.number not in self.in_sync] or fit
        self.leader = None
        if fit:
            chosen = fit[choice % len(fit)]
            self.in_sync |= {chosen.number}
            self._lead(chosen)

    def _leave(self, node: Node, choice: int) -> None:
        """It is not reachable: out of sync, if others are in sync, and no leader any more."""
        if len(self.in_sync) > 1:
            self._set_in_sync(self.in_sync - {node.number})
        if self.leader is node:
            self._elect(choice)

    def _set_in_sync(self, numbers: set[int]) -> None:
        self.in_sync = numbers
        if self.leader is not None:
            self.leader.in_sync = set(numbers)

    def kill(self, number: int, choice: int) -> None:
        node = self.nodes[number]
        if node.alive:
            node.alive, node.leads_in = False, None
            if self.cut_off is node:
                self.cut_off = None
            else:
                self._leave(node, choice)

    def start(self, number: int, choice: int) -> None:
        node = self.nodes[number]
        if not node.alive:
            node.alive = True
            self._truncate_to_watermark(node)
            if self.leader is None:
                self._elect(choice)

    def bounce(self, number: int, choice: int) -> None:
        """A follower is killed and back before anybody has missed it, so it stays in sync; and then the leader dies."""
        node = self.nodes[number]
        if node.alive and node is not self.leader and node is not self.cut_off:
            self._truncate_to_watermark(node)
            if self.leader is not None:
                self.kill(self.leader.number, choice)

    def _truncate_to_watermark(self, node: Node) -> None:
        if self._flaw is Flaw.TRUNCATES_TO_ITS_WATERMARK:
            for log in node.logs.values():
                del log.entries[log.high_watermark :]

    def cut(self, choice: int) -> None:
        """The leader is cut off from the others, who elect another; it does not notice."""
        if self.leader is not None and self.cut_off is None:
            self.cut_off = self.leader
            self._leave(self.leader, choice)

    def mend(self, choice: int) -> None:
        """Whoever was cut off hears that it leads no more."""
        if (node := self.cut_off) is not None:
            self.cut_off = None
            if self.leader is not node:
                node.leads_in = None
            if self.leader is None:
                self._elect(choice)

    def shrink(self, number: int) -> None:
        """A follower is too slow."""
        if self.leader is not None and number != self.leader.number and len(self.in_sync) > 1:
            self._set_in_sync(self.in_sync - {number})
            self._raise_watermarks(self.leader)

    # --- replication --------------------------------------------------------------------------------------------------

    def fetch(self, number: int) -> None:
        """A follower asks its leader: cuts off what differs, takes what is new, and may so come into sync."""
        leader, node = self.leader, self.nodes[number]
        if leader is None or not node.alive or node is leader or node is self.cut_off:
            return
        if self._flaw is Flaw.JOINS_TOO_EARLY and number not in self.in_sync:
            leader.fetched[number] = {name: log.end for name, log in leader.logs.items()}
        else:
            for name, log in node.logs.items():
                self._copy(leader.logs[name], log, may_sin=name == RECORDS)
            leader.fetched[number] = {name: log.end for name, log in node.logs.items()}
        self._set_in_sync(self.in_sync | {number})
        self._raise_watermarks(leader)

    def _copy(self, theirs: Log, ours: Log, may_sin: bool) -> None:
        if self._flaw is not Flaw.DOES_NOT_TRUNCATE:
            same = self._common_end(theirs, ours)
            del ours.entries[same:]
        new = theirs.entries[ours.end :]
        if self._flaw is Flaw.CHANGES_A_COPY and new and may_sin:
            new = [*new[:-1], replace(new[-1], value=f"not {new[-1].value}")]
        if self._flaw is Flaw.COPIES_TWICE and len(new) > 1:
            new = [new[0], *new]
        ours.entries += new
        ours.high_watermark = max(ours.high_watermark, min(theirs.high_watermark, ours.end))

    @staticmethod
    def _common_end(theirs: Log, ours: Log) -> int:
        """Up to where two logs were written by the same leaders, as leader epochs tell it: never by looking at values."""
        for offset, (one, other) in enumerate(zip(theirs.entries, ours.entries, strict=False)):
            if one.leader_epoch != other.leader_epoch:
                return offset
        return min(theirs.end, ours.end)

    def _raise_watermarks(self, leader: Node) -> None:
        followers = leader.in_sync - {leader.number}
        for name, log in leader.logs.items():
            ends = sorted([log.end, *(leader.fetched.get(number, {}).get(name, 0) for number in followers)])
            safe = ends[0]
            if self._flaw is Flaw.ACKNOWLEDGES_ALONE:
                safe = log.end
            if self._flaw is Flaw.WATERMARK_SKIPS_THE_SLOWEST:
                safe = ends[min(1, len(ends) - 1)]
            if self._flaw is Flaw.OFFSETS_ARE_NOT_REPLICATED and name == OFFSETS:
                safe = log.end
            log.high_watermark = max(log.high_watermark, min(safe, log.end))

    # --- clients ------------------------------------------------------------------------------------------------------

    def led(self, is_misled: bool) -> Node | None:
        """Who a client takes for the leader: the one that is cut off, if it is misled and there is one."""
        return self.cut_off if is_misled and self.cut_off is not None else self.leader

    def append(self, node: Node, name: str, sent: Entry) -> bool:
        """Whether it is in the log of this leader now."""
        if len(node.in_sync) < MIN_IN_SYNC:
            return False
        log = node.logs[name]
        known = [entry.sequence for entry in log.entries if entry.producer == sent.producer]
        if self._flaw is Flaw.NEW_LEADER_FORGETS_PRODUCERS and name == RECORDS:
            known = [each.sequence for each in log.entries[node.known_from :] if each.producer == sent.producer]
        elif sent.sequence != (known[-1] + 1 if known else 0) and sent.sequence not in known:
            return False
        if sent.sequence not in known:
            assert node.leads_in is not None
            log.entries.append(replace(sent, leader_epoch=node.leads_in))
        if node is self.leader:
            self._raise_watermarks(node)
        elif self._flaw is Flaw.DEPOSED_LEADER_ACKNOWLEDGES:
            log.high_watermark = log.end
        return True

    def acknowledged(self, node: Node, name: str, sent: Entry) -> int | None:
        """The offset at which this leader has it, if it is below the high watermark."""
        log = node.logs[name]
        for offset, entry in enumerate(log.entries[: log.high_watermark]):
            if (entry.producer, entry.sequence) == (sent.producer, sent.sequence):
                return offset
        return None

    def read(self, node: Node, position: int) -> list[tuple[int, str]]:
        log = node.logs[RECORDS]
        limit = log.end if self._flaw is Flaw.SHOWS_BEYOND_THE_WATERMARK else min(log.high_watermark, log.end)
        return [(offset, log.entries[offset].value) for offset in range(position, limit)]

    # --- the end ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """All run, all reach each other, and all catch up."""
        self.mend(0)
        for number in range(NODES):
            self.start(number, 0)
        for _ in range(2):
            for number in range(NODES):
                self.fetch(number)

    def replicas(self) -> Replicas:
        assert self.leader is not None
        nodes = sorted(self.nodes, key=lambda node: node is not self.leader)
        logs = {f"broker {node.number}": _encoded(node.logs[RECORDS]) for node in nodes}
        return Replicas(RECORDS, 0, self.leader.logs[RECORDS].high_watermark, logs)


def _encoded(log: Log) -> bytes:
    return b"".join(
        encode_batch([Record(offset, 0, None, entry.value.encode())], base_offset=offset)
        for offset, entry in enumerate(log.entries)
    )
