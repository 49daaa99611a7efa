"""Finalized levels of features, as the active controller decides them (KIP-584).

Automatic levels: the controller raises a feature that no client has set to the highest level that all registered brokers
support. A broker that is stopped while its cluster is upgraded may come back as the release before, so this waits until
every broker that holds a replica is registered. A node that a controller of Apache Kafka has written is left to the
operator, as Kafka itself leaves it.

Set by UpdateFeatures: such a level stays, even if brokers support higher ones.

A registered broker that does not support a finalized level is left out, as if it were not registered. One that registers no
features is an Ottla from before clusters had any, which supports the levels that need no other broker (`Feature.unfinalized`); or
a Kafka 3.9, which looks at the node itself, and ends.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import BadVersion, Create, NodeExists, NoNode, SetData, WriteRefused
from ottla.server.cluster.features import (
    FEATURES,
    UPGRADE,
    UPGRADE_TYPES,
    InvalidUpdate,
    Levels,
    Update,
    decode_levels,
    encode_levels,
    in_words,
    supported_levels,
)
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import Node
    from ottla.replication.cluster.metadata_cache import BrokerRegistration
    from ottla.replication.controller.partition_states import PartitionStates
    from ottla.server.cluster.controller.tree import ControllerTree

logger = logging.getLogger("ottla.controller")

PARTITIONS_PER_STEP = 500


class FinalizedLevels:
    """Finalized feature levels, as read and written by the controller. Methods raise Deposed and SessionExpired."""

    def __init__(self, tree: ControllerTree, states: PartitionStates, node_id: int, *, is_alone: bool) -> None:
        self._tree, self._states = tree, states
        self._node_id, self._is_alone = node_id, is_alone
        self._node: Node | None = None
        self._levels = Levels()
        self._left_out: set[tuple[int, int]] = set()
        self._waits_for: set[int] = set()
        self._lacking: set[int] = set()

    async def load(self) -> None:
        """Read the node /feature."""
        self._node = await self._tree.get(znodes.FEATURE)
        self._levels = Levels() if self._node is None else decode_levels(self._node.data)

    # ------------------------------------------------------------------ brokers

    def admitted(self, registrations: Mapping[int, BrokerRegistration]) -> dict[int, BrokerRegistration]:
        """Return the brokers that support all finalized feature levels. Each rejected broker is logged once."""
        return {node_id: each for node_id, each in registrations.items() if self._is_admitted(each)}

    def _is_admitted(self, broker: BrokerRegistration) -> bool:
        supported = broker.features or {each.name: each.unfinalized for each in FEATURES}
        lacking = self._levels.unsupported(supported)
        incarnation = (broker.node_id, broker.epoch)
        if lacking and incarnation not in self._left_out:
            self._left_out.add(incarnation)
            logger.error(
                "Broker %d is left out: its release does not support %s, which this cluster uses. Start a newer release there,"
                " or lower the level (ottla features downgrade)",
                broker.node_id,
                in_words(lacking),
            )
        return not lacking

    # ------------------------------------------------------------------ raised by itself

    async def raise_newest(self) -> None:
        """Raise features to the highest level that all brokers support, except those whose level an operator set."""
        while not self._is_alone and self._levels.is_ours:
            self._log_who_lacks()
            raised = self._raised()
            if raised == self._levels.finalized or await self._is_anybody_away():
                return
            try:
                if await self._write(self._levels._replace(finalized=raised)):
                    return
            except WriteRefused as error:
                logger.warning(
                    "The levels of features cannot be raised (%r); the next broker that comes or goes is the next try",
                    error,
                )
                return

    def _raised(self) -> Mapping[str, int]:
        levels = dict(self._levels.finalized)
        for name, latest in self._wanted().items():
            told = (broker.features.get(name, 0) for broker in self._states.brokers.values())
            level = min(latest, *told) if self._states.brokers else 0
            if level > levels.get(name, 0):
                levels[name] = level
        return levels

    def _wanted(self) -> dict[str, int]:
        """Return this release's newest level of each feature that no operator has set."""
        return {name: latest for name, latest in supported_levels().items() if name not in self._levels.settled}

    def _log_who_lacks(self) -> None:
        wanted = self._wanted()
        lacking = {
            broker.node_id
            for broker in self._states.brokers.values()
            if any(broker.features.get(name, 0) < latest for name, latest in wanted.items())
        }
        if lacking - self._lacking:
            logger.info("Levels of features are not raised before brokers %s support them", sorted(lacking))
        self._lacking = lacking

    async def _is_anybody_away(self) -> bool:
        """Return True if any broker with replicas is not registered. Each such broker is logged once."""
        time_slice, holders = TimeSlice(), set[int]()
        for number, (_, state) in enumerate(self._states.partitions(), 1):
            holders.update(state.replicas)
            if number % PARTITIONS_PER_STEP == 0:
                await time_slice.yield_if_over()
        away = holders - self._states.brokers.keys()
        if away - self._waits_for:
            logger.info(
                "Levels of features are not raised before brokers %s are back: they hold replicas", sorted(away)
            )
        self._waits_for = away
        return bool(away)

    # ------------------------------------------------------------------ set by somebody

    async def update(self, updates: Sequence[Update], *, validate_only: bool) -> None:
        """Set feature levels: apply all of `updates`, or raise KafkaError and apply none."""
        while True:
            levels, settled = dict(self._levels.finalized), set(self._levels.settled)
            for each in updates:
                levels[each.name] = self._checked(each)
                settled.add(each.name)
            new = Levels({name: level for name, level in levels.items() if level}, frozenset(settled))
            if validate_only or new == self._levels:
                return
            try:
                if await self._write(new):
                    return
            except WriteRefused as error:
                logger.error("The levels of features cannot be written: %r", error)
                raise KafkaError(ErrorCode.FEATURE_UPDATE_FAILED) from None

    def _checked(self, update: Update) -> int:
        """Return the new level of a feature. Raises InvalidUpdate."""
        if update.upgrade_type not in UPGRADE_TYPES:
            raise InvalidUpdate(update, "The controller does not support the given upgrade type.")
        if update.level < 0:
            raise InvalidUpdate(update, "A feature version cannot be less than 0.")
        supported = supported_levels(is_alone=self._is_alone)
        self._check_support(update, f"Local controller {self._node_id}", supported)
        if update.name not in supported:
            raise InvalidUpdate(update, f"Feature {update.name} not found.")
        for broker in self._states.brokers.values():
            self._check_support(update, f"Broker {broker.node_id}", broker.features)
        self._check_direction(update)
        return update.level

    @staticmethod
    def _check_support(update: Update, who: str, supported: Mapping[str, int]) -> None:
        latest = supported.get(update.name)
        if update.level > (latest or 0):
            only = "does not support this feature." if latest is None else f"only supports versions 0-{latest}"
            raise InvalidUpdate(update, f"{who} {only}")

    def _check_direction(self, update: Update) -> None:
        present = self._present(update.name)
        if update.level < present and update.upgrade_type == UPGRADE:
            raise InvalidUpdate(
                update,
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or"
                " unsafe downgrade.",
            )
        if update.level > present and update.upgrade_type != UPGRADE:
            raise InvalidUpdate(update, "Can't downgrade to a newer version.")

    def _present(self, name: str) -> int:
        # A broker that is alone uses the newest level of what nobody has set.
        if self._is_alone and name not in self._levels.settled:
            return supported_levels(is_alone=True)[name]
        return self._levels.finalized.get(name, 0)

    async def _write(self, levels: Levels) -> bool:
        """Write the levels; if another writer was faster, load its levels and return False. Raises WriteRefused."""
        data = encode_levels(levels)
        write = (
            Create(znodes.FEATURE, data) if self._node is None else SetData(znodes.FEATURE, data, self._node.version)
        )
        try:
            await self._tree.write([write], can_be_refused=True)
        except (BadVersion, NodeExists, NoNode):
            await self.load()
            return False
        await self.load()
        settled = f", set by somebody: {', '.join(sorted(levels.settled))}" if levels.settled else ""
        logger.info("Finalized levels of features: %s%s", in_words(levels.finalized), settled)
        return True
