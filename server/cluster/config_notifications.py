"""Listener for settings that another broker has changed (Kafka's ZkConfigManager and ZkNodeChangeNotificationListener).

A broker that changes settings leaves a notice below /config/changes. The notice names their topic or broker only: the
settings are always read from /config. At the start of every session a broker reads all settings, and passes over the
notices from before (`ChangeNotices`).

Settings of groups and subscriptions to metrics of clients have no notices there: the node above them is written with every
change (`znodes.OWN_PATHS`). Then those of all groups, or all subscriptions, are read.

Topics are created and deleted without a notice. Their settings are read when the cluster begins to show them.

What is kept of users, clients and addresses is read in the same way (`entity_configs.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    AccessDenied,
    Coordination,
    CoordinationUnavailable,
    Create,
    Delete,
    NoNode,
)

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from ottla.replication.cluster.metadata_cache import MetadataCache
    from ottla.server.cluster.settings_administration import SettingsAdministration

logger = logging.getLogger("ottla.cluster.config")

EXPIRATION_MS = 15 * 60 * 1000
_DIGITS_MAX = 19

T = TypeVar("T")


async def persistently(coordination: Coordination, action: Callable[[], Awaitable[T]]) -> T:
    """Return the result of an idempotent `action`. Retry it while the tree is unavailable. Raises SessionExpired."""
    while True:
        try:
            return await action()
        except CoordinationUnavailable:
            await coordination.until_available()


class Signal:
    """Event for one waiting task; it can be set again and again. `set` fits as the callback of a watch."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self, _: str = "") -> None:
        self._event.set()

    async def wait(self) -> None:
        """Wait until the signal has been set since the last call of `wait`."""
        await self._event.wait()
        self._event = trio.Event()


async def follow(
    coordination: Coordination,
    changed: Signal,
    ends: Iterable[Callable[[], None]],
    read_everything: Callable[[], Awaitable[None]],
    read_what_changed: Callable[[], Awaitable[None]],
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    """Call `read_everything` once, then `read_what_changed` after each change. Raises SessionExpired at the end.

    At the end, call each function in `ends`; these functions cancel the watches.
    """
    try:
        await persistently(coordination, read_everything)
        task_status.started()
        while True:
            await changed.wait()
            await persistently(coordination, read_what_changed)
    finally:
        for end in ends:
            end()


class ChangeNotices:
    """Change notifications between brokers: sequential nodes below `parent` in the coordination tree.

    A notification names an entity; the broker that reads the notification then reads the entity (as Kafka's
    ZkNodeChangeNotificationListener). Any broker deletes notifications after 15 minutes. *Heeded*: processed by this
    broker. Times are in ms.
    """

    def __init__(self, coordination: Coordination, parent: str, prefix: str, clock_ms: Callable[[], int]) -> None:
        self._coordination, self._parent = coordination, parent
        self._prefix, self._clock_ms = prefix, clock_ms
        self._heeded = -1
        self._created_ms: dict[str, int] = {}  # of those that were read

    def of(self, data: bytes) -> Create:
        """Return the operation that creates a notification with this content."""
        return Create(f"{self._parent}/{self._prefix}", data, sequential=True)

    async def pass_over(self) -> None:
        """Mark all existing notifications as processed. Raises CoordinationError."""
        self._heeded = max((await self._numbers()).values(), default=-1)

    async def read(self) -> tuple[list[bytes], int]:
        """Return the unprocessed notifications, and the number to pass to `heeded`. Raises CoordinationError."""
        numbers = await self._numbers()
        self._created_ms = {name: self._created_ms[name] for name in numbers if name in self._created_ms}
        # Those from before are read once, too, to know their age.
        unread = [name for name in numbers if name not in self._created_ms or numbers[name] > self._heeded]
        nodes = await self._coordination.get_all([self._path(name) for name in unread])
        held = []
        for name, node in zip(unread, nodes, strict=True):
            if node is not None:
                self._created_ms[name] = node.created_ms
                if numbers[name] > self._heeded:
                    held.append(node.data)
        return held, max(numbers.values(), default=self._heeded)

    async def heeded(self, number: int) -> None:
        """Mark notifications up to `number` as processed, and delete expired ones. Raises CoordinationError."""
        self._heeded = max(number, self._heeded)
        oldest = self._clock_ms() - EXPIRATION_MS
        # Those whose age is not known stay.
        for name in [each for each, created_ms in self._created_ms.items() if 0 < created_ms < oldest]:
            try:
                await self._coordination.multi([Delete(self._path(name))])
            except (NoNode, AccessDenied):
                continue  # another broker was faster, or made the notice for itself only

    async def _numbers(self) -> Mapping[str, int]:
        names = await self._coordination.children(self._parent)
        found = {}
        for name in names:
            digits = name.removeprefix(self._prefix)
            if digits != name and digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS_MAX:
                found[name] = int(digits)
        return found

    def _path(self, name: str) -> str:
        return f"{self._parent}/{name}"


PREFIX = "config_change_"
TOPICS, BROKERS = "topics/", "brokers/"


class ConfigNotifications:
    """Listener for changes of settings in the coordination tree; it applies them to this broker.

    `on_unclean_allowed` gets the topics (None: all) whose offline partitions may now elect out-of-sync leaders. A lone
    broker (`is_alone`) reads a topic's settings before the topic becomes visible.
    """

    def __init__(
        self,
        *,
        coordination: Coordination,
        cluster: MetadataCache,
        settings: SettingsAdministration,
        on_unclean_allowed: Callable[[Iterable[str] | None], None],
        is_alone: bool = False,
        clock_ms: Callable[[], int],
    ) -> None:
        self._coordination, self._cluster, self._settings = coordination, cluster, settings
        self._on_unclean_allowed, self._is_alone = on_unclean_allowed, is_alone
        self._notices = ChangeNotices(coordination, znodes.CONFIG_CHANGES, PREFIX, clock_ms)
        self._shown: dict[str, bytes] = {}  # topics whose settings were read, with their ids
        self._unread: set[str] = set()
        self._unread_below: set[str] = set()  # paths of `znodes.OWN_PATHS` with changes below them
        self._changed = Signal()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Apply changes until the session ends; report `started` after all settings are read. Raises SessionExpired."""
        # Before anything is read, so that no notice is missed in between.
        ends = [
            self._coordination.watch_children(znodes.CONFIG_CHANGES, self._changed.set),
            self._coordination.watch_node(znodes.GROUP_CONFIGS, self._on_change_below),
            self._coordination.watch_node(znodes.CLIENT_METRICS_CONFIGS, self._on_change_below),
            self._cluster.on_topic_change(self._on_topic_change),
        ]
        reads = (self._read_everything, self._read_what_changed)
        await follow(self._coordination, self._changed, ends, *reads, task_status=task_status)

    def _on_change_below(self, path: str) -> None:
        self._unread_below.add(path)
        self._changed.set()

    def _on_topic_change(self, name: str) -> None:
        topic = self._cluster.topics.get(name)
        if topic is None:
            self._shown.pop(name, None)
            self._unread.discard(name)
            self._settings.configs.remove_topic(name)
        # A topic that was made again under the same name has settings of its own.
        elif self._shown.get(name) != topic.topic_id and not self._is_alone:
            self._shown[name] = topic.topic_id
            self._unread.add(name)
            self._changed.set()

    # ------------------------------------------------------------------ reading

    async def _read_everything(self) -> None:
        # First: what is changed while the settings are read is then read once more, and not missed.
        await self._notices.pass_over()
        self._shown = {name: topic.topic_id for name, topic in self._cluster.topics.items()}
        self._unread.clear()
        await self._settings.read_all()
        # Between two sessions any topic may have been allowed unclean elections.
        self._on_unclean_allowed(None)

    async def _read_what_changed(self) -> None:
        await self._read_below()
        held, number = await self._notices.read()
        entities = {_entity(data) for data in held}
        # Others may show while these are read; they have their turn after it.
        unread = set(self._unread)
        topics = {znodes.entity_name(each.removeprefix(TOPICS)) for each in entities if each.startswith(TOPICS)}
        # In order, so that a run of a simulation is the same whatever order Python gives to sets of texts.
        await self._read_topics(sorted(unread | topics))
        await self._read_broker(entities)
        await self._settings.entities.read(sorted(entities))
        # Only now: if reading fails, the same topics are read again.
        self._unread.difference_update(unread)
        await self._notices.heeded(number)

    async def _read_below(self) -> None:
        while self._unread_below:
            path = min(self._unread_below)
            self._unread_below.discard(path)
            try:
                await self._settings.read_all_below(path)
            except CoordinationUnavailable:
                self._unread_below.add(path)  # they are read again when the tree answers
                raise

    async def _read_topics(self, names: Sequence[str]) -> None:
        if not names:
            return
        await self._settings.read_topics(names)
        configs = self._settings.configs
        unclean = [name for name in names if configs.log_config(name).unclean_leader_election_enable]
        if unclean:
            self._on_unclean_allowed(unclean)

    async def _read_broker(self, entities: Container[str]) -> None:
        configs = self._settings.configs
        was_unclean = configs.current.log.unclean_leader_election_enable
        if BROKERS + znodes.DEFAULT_ENTITY in entities:
            await self._settings.read_broker(for_all=True)
        if f"{BROKERS}{configs.started_with.node_id}" in entities:
            await self._settings.read_broker(for_all=False)
        # It is the default of every topic.
        if configs.current.log.unclean_leader_election_enable and not was_unclean:
            self._on_unclean_allowed(None)


def _entity(notice: bytes) -> str:
    try:
        return znodes.decode_config_change(notice)
    except znodes.MalformedNode as error:
        logger.error("Left aside a notice of changed settings: %s", error)
        return ""
