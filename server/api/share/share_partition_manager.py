"""Kafka's SharePartitionManager: the share partitions that this broker leads, share sessions, and settings of groups."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import trio

from ottla.groupcoord.share.coordinator.records import SharePartitionKey
from ottla.groupcoord.share.partition.in_flight import DeadLetter
from ottla.groupcoord.share.partition.sessions import ShareSession, ShareSessions
from ottla.groupcoord.share.partition.state import ShareGroupSettings
from ottla.server.api.share.dead_letters import DeadLetterQueues
from ottla.server.api.share.persister import RoutedPersister
from ottla.server.api.share.share_partition_leader import SharePartitionLeader
from ottla.server.cluster.features import SHARE_VERSION
from ottla.server.ports import BrokerParts
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.server.api.share.persister import SharePersister
    from ottla.server.network.deadlines import Deadlines

logger = logging.getLogger("ottla.share")

SETTINGS_KEPT_MAX = 1_000
SHARES_AT_ONCE = 100
"""Greatest number of share partitions whose changes are stored in one step at the end of a session."""
DEAD_LETTERS_SINCE = 2  # the level of share.version that brought them (KIP-1191)


class SharePartitionManager:
    """Manager of the share partitions that this broker leads, and of the members' share sessions.

    It also runs background work for them.
    """

    def __init__(self, broker: BrokerParts, persister: SharePersister | None = None) -> None:
        """Create the manager. `persister`: client of the share coordinators; None: a new RoutedPersister."""
        self._broker = broker
        self._dead_letters = DeadLetterQueues(broker, self.start, self.settings_of)
        self.persister = persister or RoutedPersister(broker, self.start)
        self.sessions = ShareSessions(
            lambda: broker.config.share_partitions.group_share_max_share_sessions, self._on_session_end
        )
        self._shares: dict[str, dict[SharePartitionKey, SharePartitionLeader]] = {}  # by group
        self._settings: dict[str, ShareGroupSettings] = {}
        self._send, self._receive = trio.open_memory_channel[Callable[[], Awaitable[None]]](math.inf)
        broker.configs.groups.on_change(self._on_settings)

    @property
    def deadlines(self) -> Deadlines:
        return self._broker.deadlines

    def now_ms(self) -> int:
        return self._broker.now_ms()

    def start_in(self, nursery: trio.Nursery) -> None:
        """Run the background work in `nursery`."""
        nursery.start_soon(self._work)

    async def _work(self) -> None:
        async with trio.open_nursery() as nursery:
            async for work in self._receive:
                nursery.start_soon(_guarded, work)

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` in the background."""
        self._send.send_nowait(work)

    # ------------------------------------------------------------------ settings

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        """Return the group's settings that are in force."""
        settings = self._settings.get(group_id)
        if settings is None:
            if len(self._settings) >= SETTINGS_KEPT_MAX:
                self._settings.clear()
            settings = ShareGroupSettings.of(self._broker.configs.groups.in_force(group_id))
            self._settings[group_id] = settings
        if self._broker.member.features.level(SHARE_VERSION) < DEAD_LETTERS_SINCE:
            return replace(settings, dead_letter_topic="")
        return settings

    def _on_settings(self, group_id: str | None) -> None:
        """Drop the cached settings of a group; None: of all groups."""
        if group_id is None:
            self._settings.clear()
        else:
            self._settings.pop(group_id, None)

    # ------------------------------------------------------------------ share partitions

    def share(self, key: SharePartitionKey) -> SharePartitionLeader | None:
        """Return the share partition; None if it is not loaded here."""
        of_group = self._shares.get(key.group_id)
        return None if of_group is None else of_group.get(key)

    def lead(self, key: SharePartitionKey, topic: str) -> SharePartitionLeader:
        """Return the share partition, loaded if necessary. Raises KafkaError if this broker does not lead it."""
        share = self.share(key)
        if share is not None:
            share.keep()
            return share
        partition = self._broker.partition(topic, key.partition)
        if not partition.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if partition.topic_id not in (None, key.topic_id):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        share = SharePartitionLeader(self, key, partition)
        self._shares.setdefault(key.group_id, {})[key] = share
        share.load()
        if share.failure is not ErrorCode.NONE:
            raise KafkaError(share.failure)
        return share

    def send_dead_letter(self, share: SharePartitionLeader, letter: DeadLetter) -> None:
        """Send records to the group's dead-letter queue."""
        self._dead_letters.send(share, letter)

    def drop(self, share: SharePartitionLeader) -> None:
        """Remove a share partition that has ended."""
        of_group = self._shares.get(share.key.group_id, {})
        if of_group.get(share.key) is share:
            del of_group[share.key]
            if not of_group:
                del self._shares[share.key.group_id]

    def _on_session_end(self, session: ShareSession) -> None:
        """Release the records that the session's member has acquired."""
        group_id, member_id = session.key.member
        shares = [
            share
            for topic_id, index in session.partitions
            if (share := self.share(SharePartitionKey(group_id, topic_id, index))) is not None
        ]
        shares = [share for share in shares if share.machine.is_active]
        # In one step, so that no record is released that the member gets in its next session. Storing takes longer.
        for share in shares:
            share.machine.release(member_id)
        steps = self._give_up(group_id, shares)
        for _ in islice(steps, SHARES_AT_ONCE):
            pass
        if len(shares) + len(self._shares.get(group_id, ())) > SHARES_AT_ONCE:
            self.start(partial(_in_slices, steps))

    def _give_up(self, group_id: str, shares: list[SharePartitionLeader]) -> Iterator[None]:
        """Store released records, then retire the group's share partitions if the group has no sessions."""
        for share in shares:
            if share.machine.is_active:
                share.after()
            yield
        for share in tuple(self._shares.get(group_id, {}).values()):
            # A member may have begun a session meanwhile.
            if self.sessions.has_group(group_id):
                return
            share.retire()
            yield


async def _in_slices(steps: Iterator[None]) -> None:
    time_slice = TimeSlice()
    for _ in steps:
        await time_slice.yield_if_over()


async def _guarded(work: Callable[[], Awaitable[None]]) -> None:
    """Run `work`; log an exception, so that neither other work nor the broker ends."""
    try:
        await work()
    except Exception:
        logger.exception("bug: background work of share groups has failed")
