"""Quotas and credentials of users, clients and addresses, kept in the coordination tree as Kafka 3.9 does.

An entity is named by its path below /config: users/alice, clients/<default>, users/alice/clients/c, ips/10.0.0.1; names are
encoded (`znodes.entity_element`). One node holds what several features keep of an entity. Each changes the keys that it
knows, and leaves the others as they are.

A change is first written on condition of the version read, with a notification below /config/changes for other brokers
(`config_notifications.py`). A node with nothing in it is removed. Values may be secret: none is logged.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    BadVersion,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SetData,
)
from ottla.replication.keyed_lock import KeyedLock
from ottla.server.config.repository import NO_OVERRIDES, Overrides, Texts
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import Coordination, Node

logger = logging.getLogger("ottla.administration")

ENTITIES_MAX = 20_000
"""Anybody who may change settings can make one with a few bytes, and every broker keeps all of them in memory."""
USERS_AT_ONCE = 50  # of those with clients of their own, read at a time
ENTITIES_PER_SLICE = 200

_KINDS = (znodes.USERS, znodes.CLIENTS, znodes.IPS)
_ENTITY = re.compile(r"(?:users|clients|ips)/[^/]+|users/[^/]+/clients/[^/]+")
_CLIENTS_OF_USER = f"/{znodes.CLIENTS}"

Listener = Callable[[str, Texts], None]


class EntityConfigs:
    """Settings of users, clients and addresses in the coordination tree. `refusal` converts write errors."""

    def __init__(
        self, coordination: Coordination, refusal: Callable[[CoordinationError], KafkaError], *, has_readers: bool
    ) -> None:
        """Create the store; `has_readers`: other brokers read the same tree and must be notified of changes."""
        self._coordination, self._refusal, self._has_readers = coordination, refusal, has_readers
        self._known: dict[str, Overrides] = {}  # those that have anything
        self._listeners: list[Listener] = []
        self._locks = KeyedLock()

    def on_change(self, listener: Listener) -> None:
        """Call `listener` with each entity's settings, now and after every change. Removed settings come as empty."""
        self._listeners.append(listener)
        for entity, overrides in self._known.items():
            listener(entity, overrides.texts)

    def texts(self, entity: str) -> Texts:
        """Return the settings of an entity; empty if it has none."""
        return self._known.get(entity, NO_OVERRIDES).texts

    def __len__(self) -> int:
        return len(self._known)

    # ------------------------------------------------------------------ changing

    async def alter(self, entity: str, change: Callable[[Texts], Texts]) -> None:
        """Change an entity's settings. `change` gets the present settings and returns the new ones.

        Raises KafkaError if `change` does, or if the write fails. `change` is called again if another broker wrote
        meanwhile.
        """
        while True:
            async with self._locks.hold([entity]):
                try:
                    known = await self._read_anew(entity)
                    texts = change(known.texts)
                    if texts == known.texts:
                        return
                    if not known.texts and len(self._known) >= ENTITIES_MAX:
                        message = f"There are {ENTITIES_MAX} users, clients and addresses with settings of their own."
                        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
                    written = await self._write(entity, known, texts)
                except CoordinationError as error:
                    logger.error("the settings of an entity cannot be written in %s: %r", error.path, error)
                    raise self._refusal(error) from None
                if written is not None:
                    self._take(entity, written)
                    return

    async def _read_anew(self, entity: str) -> Overrides:
        (node,) = await self._coordination.get_all([znodes.entity_path(entity)])
        return _overrides(node)

    async def _write(self, entity: str, known: Overrides, texts: Texts) -> Overrides | None:
        """Write settings; return None if another broker has changed the node or a parent since it was read."""
        path = znodes.entity_path(entity)
        try:
            if not texts and known.version is not None:
                with suppress(NotEmpty):
                    await self._coordination.multi([Delete(path, known.version), *self._notice(entity)])
                    await self._tidy_above(entity)
                    return NO_OVERRIDES
            data = znodes.encode_config(texts)
            if known.version is not None:
                await self._coordination.multi([SetData(path, data, known.version), *self._notice(entity)])
                return Overrides(dict(texts), known.version + 1)
            above = await self._missing_above(entity)
            await self._coordination.multi([*above, Create(path, data), *self._notice(entity)])
            return Overrides(dict(texts), 0)
        except (NodeExists, NoNode, BadVersion) as error:
            kind = znodes.entity_path(entity.partition("/")[0])
            if error.path.startswith(f"{kind}/"):
                return None
            raise

    def _notice(self, entity: str) -> list[Operation]:
        prefix = f"{znodes.CONFIG_CHANGES}/config_change_"
        return [Create(prefix, znodes.encode_config_change(entity), sequential=True)] if self._has_readers else []

    async def _missing_above(self, entity: str) -> list[Operation]:
        user, separator, _ = entity.partition(f"{_CLIENTS_OF_USER}/")
        if not separator:
            return []
        paths = [znodes.entity_path(user), znodes.entity_path(user) + _CLIENTS_OF_USER]
        nodes = await self._coordination.get_all(paths)
        return [Create(path) for path, node in zip(paths, nodes, strict=True) if node is None]

    async def _tidy_above(self, entity: str) -> None:
        """Delete parent nodes that became empty because the last client entity of a user was removed."""
        user, separator, _ = entity.partition(f"{_CLIENTS_OF_USER}/")
        if not separator:
            return
        # What another broker does with these nodes meanwhile goes first.
        with suppress(NotEmpty, NoNode, BadVersion):
            await self._coordination.multi([Delete(znodes.entity_path(user) + _CLIENTS_OF_USER)])
            (node,) = await self._coordination.get_all([znodes.entity_path(user)])
            if node is not None and not _overrides(node).texts:
                await self._coordination.multi([Delete(znodes.entity_path(user), node.version)])

    # ------------------------------------------------------------------ reading

    async def read_all(self) -> None:
        """Load all entities' settings from the coordination tree. Raises CoordinationError."""
        found: dict[str, Node] = {}
        for kind in _KINDS:
            nodes = await self._coordination.children_data(znodes.entity_path(kind))
            found |= {f"{kind}/{element}": node for element, node in nodes.items()}
        users = [entity for entity in found if entity.startswith(f"{znodes.USERS}/")]
        above = [znodes.entity_path(user) + _CLIENTS_OF_USER for user in users]
        with_clients = [
            user for user, node in zip(users, await self._coordination.get_all(above), strict=True) if node is not None
        ]
        failures: list[CoordinationError] = []
        for start in range(0, len(with_clients), USERS_AT_ONCE):
            async with trio.open_nursery() as nursery:
                for user in with_clients[start : start + USERS_AT_ONCE]:
                    nursery.start_soon(self._read_clients, user, found, failures)
            if failures:
                raise failures[0]
        await self._take_all({entity: found.get(entity) for entity in {**self._known, **found}})

    async def _read_clients(self, user: str, found: dict[str, Node], failures: list[CoordinationError]) -> None:
        try:
            nodes = await self._coordination.children_data(znodes.entity_path(user) + _CLIENTS_OF_USER)
            found |= {f"{user}{_CLIENTS_OF_USER}/{element}": node for element, node in nodes.items()}
        except NoNode:
            pass  # removed meanwhile
        except CoordinationError as failure:
            failures.append(failure)

    async def read(self, entities: Iterable[str]) -> None:
        """Load the settings of notified entities; names that are not entities are skipped. Raises CoordinationError."""
        named = [entity for entity in entities if _ENTITY.fullmatch(entity)]
        nodes = await self._coordination.get_all([znodes.entity_path(entity) for entity in named])
        await self._take_all(dict(zip(named, nodes, strict=True)))

    async def _take_all(self, nodes: Mapping[str, Node | None]) -> None:
        for number, (entity, node) in enumerate(nodes.items(), 1):
            self._take(entity, _overrides(node))
            if number % ENTITIES_PER_SLICE == 0:
                await trio.lowlevel.checkpoint()

    def _take(self, entity: str, overrides: Overrides) -> None:
        before = self.texts(entity)
        if overrides.texts:
            self._known[entity] = overrides
        else:
            self._known.pop(entity, None)
        if overrides.texts != before:
            for listener in self._listeners:
                listener(entity, overrides.texts)


def _overrides(node: Node | None) -> Overrides:
    if node is None:
        return NO_OVERRIDES
    try:
        return Overrides(znodes.decode_config(node.data), node.version)
    except znodes.MalformedNode:
        logger.error("Left aside settings of a user, a client or an address that cannot be read")
        return Overrides({}, node.version)
