"""Managers of a shard: the base of those of each group type and of offsets, and their registration.

A manager looks after the groups of one type, or after what groups of all types share (their offsets, their deletion). In
Kafka these are GroupMetadataManager and OffsetMetadataManager. The `Shard` knows managers only by what they register:

    GroupType         once, as a constant: the formats of records, and the requests that may overlap with appends
    MetadataManager   for each shard: requests, reads, records and deadlines, by type, each with the function that takes it

A request belongs to the manager that registers it in `requests`. Another manager may *adopt* it: it then gets those that
name a group of its own type (a consumer group takes the JoinGroup of a classic member). All other requests, also for
missing groups, go to the registering manager, which must check the type of the group found.

A living group whose assignments the broker makes is always what its records say: `Effects.put` appends a record and puts it
in force in one step. Such a manager registers its records in `loads` only. A manager whose records come into force when they
are committed registers them in `commits`, too.
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
from ottla.groupcoord.runtime.answers import Caller
from ottla.groupcoord.topic_images import TopicImages

Handler = Callable[[Any, Caller], None]
Read = Callable[[Any], Any]
Replay = Callable[[Any, int, int], None]
"""Takes over a record of the log: the record, its offset, and the id of the producer whose transaction it is part of, or -1."""

NOTHING: Mapping[Any, Any] = {}


@dataclass(frozen=True)
class ShardContext:
    """State that the managers of one shard share."""

    config: GroupConfig
    effects: Effects
    groups: dict[str, Group]
    """All groups by their ids. A manager puts in and takes out groups of its own type."""
    topics: TopicImages
    settings_of: GroupSettingsSource
    """Asked at every heartbeat, so that a change counts from the next one on."""


class MetadataManager:
    """Base class of a shard's managers, with tables of handlers. Each table may be empty."""

    group_type = ""
    """The `Group.group_type` of its groups, if it has any."""

    requests: Mapping[type, Handler] = NOTHING
    """May change the shard. By the type of the request, which has a `group_id`."""
    adopted: Mapping[type, Handler] = NOTHING
    """Requests of other managers, if they name a group of this type."""
    reads: Mapping[type, Read] = NOTHING
    """Change nothing but sessions, and are answered at once."""
    adopted_reads: Mapping[type, Read] = NOTHING
    loads: Mapping[type, Replay] = NOTHING
    """Replay of a record while the shard is loaded. By the type of the record's key."""
    commits: Mapping[type, Replay] = NOTHING
    """Replay of a record of this shard's own when it is committed."""
    timers: Mapping[str, Callable[[TimerKey], None]] = NOTHING
    """Actions for deadlines that have passed, by `TimerKey.kind`. Each kind belongs to one manager."""
    lone_timers: tuple[TimerKey, ...] = ()
    """Timers that need the state that records leave at their commit: they run when nothing is uncommitted."""

    def forget_tables(self) -> None:
        """Empty the tables, once the shard has them: they hold this manager's own methods, and so all of its groups."""
        self.requests = self.adopted = self.reads = self.adopted_reads = NOTHING
        self.loads = self.commits = self.timers = NOTHING

    def loaded(self) -> None:
        """Finish the load after all records are replayed. The runtime then starts the members' sessions."""

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """Apply the end of a producer's transaction."""


@dataclass(frozen=True)
class GroupType:
    """Registration of a group type: facts about its manager that are needed before a shard exists."""

    make: Callable[[ShardContext], MetadataManager]
    formats: tuple[RecordFormat, ...] = ()
    overlapping: frozenset[type] = field(default_factory=frozenset)
    """Requests that may be handled while records are uncommitted: they look at nothing that is in force only at the commit."""
    gathered: frozenset[type] = field(default_factory=frozenset)
    """Overlapping requests whose records may go into one append with those of others like them."""
