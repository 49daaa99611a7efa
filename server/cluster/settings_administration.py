"""Changing the settings of topics, groups and brokers, and knowing them as the coordination tree has them.

Any broker changes those of topics, groups and of all brokers, each broker its own. A change is written first, on the
version that was read, and then put into force here. The same write adds a notification below /config/changes for the other
brokers (`config_notifications.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    ANY_VERSION,
    BadVersion,
    Check,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    SetData,
)
from ottla.replication.keyed_lock import KeyedLock
from ottla.server.cluster.entity_configs import EntityConfigs
from ottla.server.config.changes import (
    check_broker,
    check_group,
    check_min_insync_replicas,
    check_subscription,
    check_topic,
    check_with_listeners,
)
from ottla.server.config.repository import NO_OVERRIDES, ConfigRepository, Overrides, Texts
from ottla.server.network.sliced_work import computed
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from ottla.replication.cluster.coordination import Coordination, Node
    from ottla.replication.cluster.metadata_cache import MetadataCache
    from ottla.replication.replica_manager.manager import ReplicaManager
    from ottla.server.config.passwords import KeptPasswords

logger = logging.getLogger("ottla.administration")

CONFIG_CHANGE_PREFIX = f"{znodes.CONFIG_CHANGES}/config_change_"
CHECKED_AT_ONCE = 1_000  # settings; a request has room for a hundred thousand
TOPICS_PER_SLICE = 50  # told of new defaults before others get a turn on the event loop

SettingsChange = Callable[[Texts], Texts]


class OutdatedSettings(KafkaError):
    """Error: another writer has changed the settings since they were read."""


class _Kind(NamedTuple):
    """Kind of settings, such as those of groups. `above`: parent of the settings' nodes; each change writes it."""

    above: str
    path: Callable[[str], str]
    names: Callable[[], Iterable[str]]
    overrides: Callable[[str], Overrides]
    check: Callable[[ConfigRepository, str, Texts], None]
    put: Callable[[str, Overrides], None]


class SettingsAdministration:
    """Service that changes settings of topics, brokers, groups and client metrics. `refusal` converts write errors."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        cluster: MetadataCache,
        configs: ConfigRepository,
        partitions: ReplicaManager,
        refusal: Callable[[CoordinationError], KafkaError],
        has_readers: bool,
        passwords: KeptPasswords | None = None,
    ) -> None:
        """Create the service; `has_readers`: other brokers read the same tree and must be notified of changes.

        `passwords` encrypts passwords for the tree; None: they are stored in clear text.
        """
        self.configs, self._coordination, self._cluster = configs, coordination, cluster
        self._partitions, self._refusal = partitions, refusal
        self._has_readers, self._passwords = has_readers, passwords
        self._own_node: Node | None = None  # as it was read last, with the settings that are in it
        self._own_texts: Texts = {}
        self._node_id = configs.started_with.node_id
        self._locks = KeyedLock()
        groups, subscriptions = configs.groups, configs.client_metrics
        self._groups = _Kind(
            znodes.GROUP_CONFIGS, znodes.group_config_path, lambda: groups, groups.overrides, check_group, groups.put
        )
        self._subscriptions = _Kind(
            znodes.CLIENT_METRICS_CONFIGS,
            znodes.client_metrics_path,
            lambda: subscriptions,
            lambda name: subscriptions.get(name, NO_OVERRIDES),
            check_subscription,
            configs.put_client_metrics,
        )
        self.entities = EntityConfigs(coordination, refusal, has_readers=has_readers)
        """Stored settings of users, clients and addresses."""

    # ------------------------------------------------------------------ changing

    async def alter_topic(
        self, name: str, change: SettingsChange, *, validate_only: bool = False, in_thread: bool = False
    ) -> None:
        """Change a topic's settings. `in_thread`: compute a slow change in a thread."""

        async def read() -> None:
            if name in self._cluster.topics:
                await self.read_topics([name])

        alter = partial(self._alter_topic, name, change, validate_only=validate_only, in_thread=in_thread)
        await self._until_altered(read, alter)

    async def _until_altered(self, read: Callable[[], Awaitable[None]], alter: Callable[[], Awaitable[None]]) -> None:
        # The write names the version that is read here. If another broker is faster, the change is worked out again.
        while True:
            await self._up_to_date(read)
            try:
                return await alter()
            except OutdatedSettings:
                continue

    async def _alter_topic(self, name: str, change: SettingsChange, *, validate_only: bool, in_thread: bool) -> None:
        async with self._locks.hold([name]):
            # Read while the turn is held. A change that is worked out from older settings would undo another one.
            known, topic = self.configs.topic_overrides(name), self._cluster.topics.get(name)
            texts = await computed(partial(change, known.texts), in_thread=in_thread)
            check_topic(self.configs, texts)
            if topic is None or (present := self._cluster.topics.get(name)) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            # Another topic has the name by now. Its settings may have the same version in the tree, and the retention of the
            # former topic would delete its records.
            if present.topic_id != topic.topic_id:
                raise OutdatedSettings(ErrorCode.UNKNOWN_SERVER_ERROR)
            if validate_only or texts == known.texts:
                return
            path = znodes.topic_config_path(name)
            # Else the next topic of that name would find these settings.
            exists = Check(znodes.topic_path(name), ANY_VERSION)
            # Written first: what is in force here has to be in the tree, or it would be gone after a restart.
            self.apply_topic(name, await self._write([exists, *self._notice(path)], path, known, texts))

    async def alter_broker(
        self,
        change: SettingsChange,
        *,
        for_all: bool,
        validate_only: bool = False,
        in_thread: bool = False,
        refusal: KafkaError | None = None,
        names_min_insync_replicas: bool = False,
    ) -> None:
        """Change this broker's settings or, if `for_all`, all brokers' defaults. `in_thread`: as in `alter_topic`.

        `refusal`: error to raise even if the change is valid by itself; then only the names and values are checked.
        """
        path = znodes.broker_config_path(None if for_all else self._node_id)

        async def alter() -> None:
            known = self.configs.broker_overrides(for_all=for_all)
            texts = await computed(partial(change, known.texts), in_thread=in_thread)
            check_words = partial(check_broker, self.configs, texts, for_all=for_all)
            await computed(check_words, in_thread=len(texts) > CHECKED_AT_ONCE)
            if refusal is not None:
                raise refusal
            if names_min_insync_replicas:
                check_min_insync_replicas(self.configs, known.texts, texts, for_all=for_all)
            check = partial(check_with_listeners, self.configs, texts, for_all=for_all)
            await computed(check, in_thread=self.configs.has_checkers)
            if validate_only:
                return
            if texts == known.texts:
                if texts and not for_all:
                    self.configs.announce()  # as in Kafka, naming a file again causes it to be read again
                return
            kept = await self._kept(texts, for_all=for_all)
            await self.apply_broker(await self._write(self._notice(path), path, known, texts, kept), for_all=for_all)

        async def alter_in_turn() -> None:
            async with self._locks.hold([path]):
                await alter()

        await self._until_altered(partial(self.read_broker, for_all=for_all), alter_in_turn)

    async def alter_group(
        self, group_id: str, change: SettingsChange, *, validate_only: bool = False, in_thread: bool = False
    ) -> None:
        """Change a group's settings; the group need not exist. `in_thread`: compute a slow change in a thread."""
        alter = partial(self._alter_named, self._groups, group_id, change, validate_only, in_thread)
        await self._until_altered(partial(self.read_groups, [group_id]), alter)

    async def alter_client_metrics(
        self, name: str, change: SettingsChange, *, validate_only: bool = False, in_thread: bool = False
    ) -> None:
        """Change a client metrics subscription. `in_thread`: compute a slow change in a thread."""
        alter = partial(self._alter_named, self._subscriptions, name, change, validate_only, in_thread)
        await self._until_altered(partial(self._read_named, self._subscriptions, [name]), alter)

    async def _alter_named(
        self, kind: _Kind, name: str, change: SettingsChange, validate_only: bool, in_thread: bool
    ) -> None:
        path = kind.path(name)
        async with self._locks.hold([path]):
            known = kind.overrides(name)
            texts = await computed(partial(change, known.texts), in_thread=in_thread)
            kind.check(self.configs, name, texts)
            if validate_only or texts == known.texts:
                return
            # See `znodes.OWN_PATHS`.
            notice = [SetData(kind.above, b"")] if self._has_readers else []
            # What has no settings of its own has no node.
            kind.put(name, await self._write(notice, path, known, texts, keeps_empty=False))

    async def _kept(self, texts: Texts, *, for_all: bool) -> Texts:
        """Return broker settings in the form for the tree: with encrypted passwords, if the store encrypts them."""
        if self._passwords is None:
            return texts
        from ottla.server.config.passwords import has_passwords  # here, because most brokers are alone

        node_id = None if for_all else self._node_id
        return await computed(partial(self._passwords.to_keep, texts, node_id), in_thread=has_passwords(texts))

    async def _write(
        self,
        notice: Sequence[Operation],
        path: str,
        known: Overrides,
        texts: Texts,
        kept: Texts | None = None,
        *,
        keeps_empty: bool = True,
    ) -> Overrides:
        """Write settings and their notification in one multi (an atomic write); return the settings written.

        `kept`: the settings in the form for the tree; None: as in `texts`. Raises OutdatedSettings if another broker
        has changed the settings meanwhile.
        """
        written = Overrides(dict(texts), 0 if known.version is None else known.version + 1)
        data = znodes.encode_config(texts if kept is None else kept)
        write: Operation = Create(path, data) if known.version is None else SetData(path, data, known.version)
        if known.version is not None and not texts and not keeps_empty:
            written, write = NO_OVERRIDES, Delete(path, known.version)
        try:
            await self._coordination.multi([write, *notice])
        except CoordinationError as error:
            if error.path == path and isinstance(error, (NodeExists, NoNode, BadVersion)):
                # Another broker has changed the settings since they were read here.
                raise OutdatedSettings(ErrorCode.UNKNOWN_SERVER_ERROR) from None
            logger.error("the settings in %s cannot be written: %r", path, error)
            raise self._refusal(error) from None
        return written

    def _notice(self, path: str) -> list[Operation]:
        entity = path.removeprefix("/config/")
        notice = Create(CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity), sequential=True)
        return [notice] if self._has_readers else []

    # ------------------------------------------------------------------ putting into force

    def apply_topic(self, name: str, overrides: Overrides) -> None:
        """Apply a topic's settings on this broker."""
        self.configs.put_topic(name, overrides)
        self._partitions.update_topic_config(name, self.configs.log_config(name))

    async def apply_broker(self, overrides: Overrides, *, for_all: bool) -> None:
        """Apply the settings of this broker, or (`for_all`) the defaults of all brokers. Raises InvalidSetting."""
        log_before = self.configs.current.log
        self.configs.put_broker(overrides, for_all=for_all)
        # Telling all partitions takes time, so it is done only if the defaults did change.
        if self.configs.current.log != log_before:
            await self._spread_defaults()

    async def _spread_defaults(self) -> None:
        """Apply changed topic defaults to the partitions of every topic."""
        for number, name in enumerate(list(self._cluster.topics), 1):
            self._partitions.update_topic_config(name, self.configs.log_config(name))
            if number % TOPICS_PER_SLICE == 0:
                await trio.lowlevel.checkpoint()

    # ------------------------------------------------------------------ reading

    async def refresh(self, topics: Sequence[str], groups: Sequence[str] = ()) -> None:
        """Load the current settings of `topics`, `groups` and this broker from the tree. Raises KafkaError."""
        await self._up_to_date(partial(self.read_topics, topics))
        await self._up_to_date(partial(self.read_groups, groups))
        for for_all in (True, False):
            await self._up_to_date(partial(self.read_broker, for_all=for_all))

    async def _up_to_date(self, read: Callable[[], Awaitable[None]]) -> None:
        """Call `read`, which loads settings from the tree, and convert its CoordinationError to KafkaError."""
        try:
            await read()
        except CoordinationError as error:
            raise self._refusal(error) from None

    async def read_all(self) -> None:
        """Load all settings from the coordination tree and apply them. Raises CoordinationError."""
        # Before those of topics, whose defaults they are.
        for for_all in (True, False):
            await self.read_broker(for_all=for_all)
        nodes = await self._coordination.children_data(znodes.TOPIC_CONFIGS)
        found = {znodes.entity_name(element): node for element, node in nodes.items()}
        # A topic without a node has no settings of its own any more.
        for name in [name for name in self.configs.topics if name not in found]:
            self._take_topic(name, None)
        for number, (name, node) in enumerate(found.items(), 1):
            self._take_topic(name, node)
            if number % TOPICS_PER_SLICE == 0:
                await trio.lowlevel.checkpoint()
        await self.read_all_below(znodes.GROUP_CONFIGS)
        await self.entities.read_all()
        await self.read_all_below(znodes.CLIENT_METRICS_CONFIGS)

    async def read_all_below(self, above: str) -> None:
        """Load and apply all settings below node `above`: those of groups, or client metrics subscriptions."""
        kind = self._groups if above == znodes.GROUP_CONFIGS else self._subscriptions
        nodes = await self._coordination.children_data(above)
        found = {znodes.name_of_config(element): node for element, node in nodes.items()}
        for name in [each for each in kind.names() if each not in found]:
            kind.put(name, NO_OVERRIDES)
        for number, (name, node) in enumerate(found.items(), 1):
            kind.put(name, Overrides(_settings(node), node.version))
            if number % TOPICS_PER_SLICE == 0:
                await trio.lowlevel.checkpoint()

    async def read_groups(self, group_ids: Sequence[str]) -> None:
        """Load and apply the settings of these groups."""
        await self._read_named(self._groups, group_ids)

    async def _read_named(self, kind: _Kind, names: Sequence[str]) -> None:
        found = await self._coordination.get_all([kind.path(each) for each in names])
        for name, node in zip(names, found, strict=True):
            kind.put(name, NO_OVERRIDES if node is None else Overrides(_settings(node), node.version))

    async def read_topics(self, names: Sequence[str]) -> None:
        """Load and apply the settings of these topics."""
        found = await self._coordination.get_all([znodes.topic_config_path(name) for name in names])
        for name, node in zip(names, found, strict=True):
            self._take_topic(name, node)

    def _take_topic(self, name: str, node: Node | None) -> None:
        if node is None:
            self.configs.remove_topic(name)
            # Its logs, if there are any, go on with the defaults.
            self._partitions.update_topic_config(name, self.configs.log_config(name))
        else:
            self.apply_topic(name, Overrides(_settings(node), node.version))

    async def read_broker(self, *, for_all: bool) -> None:
        """Load and apply the settings of this broker, or (`for_all`) the defaults of all brokers."""
        (node,) = await self._coordination.get_all([znodes.broker_config_path(None if for_all else self._node_id)])
        found = NO_OVERRIDES
        if node is not None:
            # Brokers of Kafka may have written settings that Ottla does not take.
            texts = _settings(node) if for_all else await self._own_settings(node)
            found = Overrides(self.configs.takeable(texts, for_all=for_all), node.version)
        if found != self.configs.broker_overrides(for_all=for_all):
            await self.apply_broker(found, for_all=for_all)

    async def _own_settings(self, node: Node) -> Texts:
        texts = _settings(node)
        if self._passwords is None:
            return texts
        from ottla.server.config.passwords import has_passwords

        if not has_passwords(texts):
            return texts
        # Decrypted once, although every client that asks has the node read again.
        if node != self._own_node:
            read = await computed(partial(self._passwords.read, texts), in_thread=True)
            self._own_node, self._own_texts = node, read.texts
            if read.is_outdated:
                await self._encrypt_anew(node, read.texts)
        return self._own_texts

    async def _encrypt_anew(self, node: Node, texts: Texts) -> None:
        kept = await self._kept(texts, for_all=False)
        path = znodes.broker_config_path(self._node_id)
        try:
            await self._coordination.multi([SetData(path, znodes.encode_config(kept), node.version)])
        except BadVersion:
            return  # somebody has changed them meanwhile; they are read again
        logger.info("Passwords that were kept with password.encoder.old.secret are kept with the new secret")


def _settings(node: Node) -> dict[str, str]:
    try:
        return znodes.decode_config(node.data)
    except znodes.MalformedNode as error:
        logger.error("Left aside settings that cannot be read: %s", error)
        return {}
