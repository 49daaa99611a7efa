"""The parts of a shard, and how each says what it takes over.

A part is one kind of groups, or what serves groups of all kinds (their offsets, their deletion). The shell `Shard` knows
parts only by what they register:

    PartKind   once, as a constant: the formats of its records, and which of its requests may overlap with appends
    Part       for each shard: its requests, reads, records and deadlines, by type, each with the function that takes it

A request belongs to the part that registers it in `requests`. A kind of groups may *adopt* requests of others: it then
gets those that name a group of its own kind (a consumer group takes the JoinGroup of a classic member). Everything else,
also for groups that do not exist, goes to the owner, who has to look which kind of group it has found.

A living group of a new kind is always what its records say: `Effects.put` appends a record and puts it in force in one
step. Such a part registers its records in `loads` only. A part whose records come into force when they are committed
registers them in `commits`, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.effects import Effects, TimerKey
from ottla.groupcoord.group import Group
from ottla.groupcoord.group_settings import GroupSettingsSource
from ottla.groupcoord.records import RecordFormat
from ottla.groupcoord.runtime.coordinator_shard import Caller
from ottla.groupcoord.topic_images import TopicImages

Handler = Callable[[Any, Caller], None]
Read = Callable[[Any], Any]
Replay = Callable[[Any, int, int], None]
"""Takes over a record of the log: the record, its offset, and the id of the producer whose transaction it is part of, or -1."""


@dataclass(frozen=True)
class Host:
    """State that the parts of one shard share."""

    config: GroupConfig
    effects: Effects
    groups: dict[str, Group]
    """All groups by their ids. A part puts in and takes out groups of its own kind."""
    topics: TopicImages
    settings_of: GroupSettingsSource
    """What is in force for a group, by its id. Asked at every heartbeat, so that a change counts from the next one on."""


class Part:
    """One part of one shard. All its tables may be left empty."""

    group_type = ""
    """The `Group.group_type` of its groups, if it is a kind of groups."""

    def __init__(self) -> None:
        self.requests: Mapping[type, Handler] = {}
        """May change the shard. By the type of the request, which has a `group_id`."""
        self.adopted: Mapping[type, Handler] = {}
        """Requests of other parts, if they name a group of this kind."""
        self.reads: Mapping[type, Read] = {}
        """Change nothing but sessions, and are answered at once."""
        self.adopted_reads: Mapping[type, Read] = {}
        self.loads: Mapping[type, Replay] = {}
        """Replay of a record while the shard is loaded. By the type of the record's key."""
        self.commits: Mapping[type, Replay] = {}
        """Replay of a record of this shard's own when it is committed."""
        self.timers: Mapping[str, Callable[[TimerKey], None]] = {}
        """What to do when a deadline has passed. By `TimerKey.kind`, which is nobody else's."""
        self.lone_timers: tuple[TimerKey, ...] = ()
        """Those that look at what records leave behind at their commit: nothing may be uncommitted then."""

    def loaded(self) -> None:
        """All records were replayed. Sessions are started by the shell."""

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """Take over the end of a transaction."""


@dataclass(frozen=True)
class PartKind:
    """Description of a part before there is a shard."""

    make: Callable[[Host], Part]
    formats: tuple[RecordFormat, ...] = ()
    overlapping: frozenset[type] = field(default_factory=frozenset)
    """Requests that may be handled while records are uncommitted: they look at nothing that is in force only at the commit."""
    gathered: frozenset[type] = field(default_factory=frozenset)
    """Those of them whose records may go into one append with those of others like them."""
