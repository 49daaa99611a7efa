"""The features that clients and tools ask for by level (KIP-584, KIP-1022): the one place that lists them.

A feature is *supported* by the software up to a level, and *finalized* at the level that the cluster uses. It is told to
clients once all requests that it is about are served. What has no meaning here is not told: metadata.version,
kraft.version and eligible.leader.replicas.version are about Kafka's own metadata log.

A broker that is alone uses the newest levels until somebody changes one. Then all are written into the node /feature, and
stay what they are when a newer Ottla supports more. The version of that node counts the changes.

The members of a cluster tell what brokers of Kafka 3.9 tell in ZooKeeper mode: nothing. Transactions are then what such
brokers know (level 0). What only concerns one coordinator is used at its newest level.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import CoordinationError, Create, Operation, SetData
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import Coordination

logger = logging.getLogger("ottla.features")

GROUP_VERSION, SHARE_VERSION = "group.version", "share.version"
STREAMS_VERSION, TRANSACTION_VERSION = "streams.version", "transaction.version"

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
UPGRADE_TYPES = (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE)
UNKNOWN_EPOCH = -1


class Feature(NamedTuple):
    """`keys`: the requests that have to be served for the feature to be one."""

    name: str
    latest: int
    keys: tuple[int, ...]
    latest_in_cluster: int


FEATURES = (
    # ConsumerGroupHeartbeat, ConsumerGroupDescribe
    Feature(GROUP_VERSION, 1, (68, 69), 1),
    # ShareGroupHeartbeat, ShareGroupDescribe, ShareFetch, ShareAcknowledge
    Feature(SHARE_VERSION, 2, (76, 77, 78, 79), 2),
    # StreamsGroupHeartbeat, StreamsGroupDescribe
    Feature(STREAMS_VERSION, 1, (88, 89), 1),
    # InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit
    Feature(TRANSACTION_VERSION, 2, (22, 24, 25, 26, 28), 0),
)
KINDS_OF_GROUPS = {"consumer": GROUP_VERSION, "streams": STREAMS_VERSION}
"""The names in group.coordinator.rebalance.protocols that count, with the features that they turn off where they are missing."""

_BY_NAME = {feature.name: feature for feature in FEATURES}


class Update(NamedTuple):
    """One line of an UpdateFeatures request."""

    name: str
    level: int
    upgrade_type: int


class InvalidUpdate(KafkaError):
    """A change that is refused, and with it all others of its request; the text is Kafka's."""

    def __init__(self, update: Update, reason: str) -> None:
        message = f"Invalid update version {update.level} for feature {update.name}. {reason}"
        super().__init__(ErrorCode.INVALID_UPDATE_VERSION, message)


class Features:
    """See the module's docstring. `read` is called at every start."""

    def __init__(
        self, coordination: Coordination, node_id: int, *, is_alone: bool, kinds_of_groups: Iterable[str] = KINDS_OF_GROUPS
    ) -> None:
        """`kinds_of_groups`: those that this broker serves."""
        served = [each.lower() for each in kinds_of_groups]
        self._not_served = frozenset(name for kind, name in KINDS_OF_GROUPS.items() if kind not in served)
        self._coordination = coordination
        self._node_id = node_id
        self._is_alone = is_alone
        self._levels = {each.name: each.latest if is_alone else each.latest_in_cluster for each in FEATURES}
        self._version: int | None = None  # of the node; None: there is none
        self._turn = trio.Lock()

    # ------------------------------------------------------------------ asking

    def level(self, name: str) -> int:
        """The level that is in use here, whether it is told or not."""
        return self._levels[name]

    def is_served(self, name: str) -> bool:
        """Whether this broker answers what the feature is about: it is in use, and not turned off by a setting.

        What a setting turns off is told to clients as before, as in Kafka.
        """
        return self._levels[name] > 0 and name not in self._not_served

    def supported(self, served_keys: Container[int]) -> list[Feature]:
        """What is told to clients of a broker that serves these requests; each is supported from level 0 on."""
        return [each for each in FEATURES if self._is_alone and all(key in served_keys for key in each.keys)]

    def finalized(self, served_keys: Container[int]) -> dict[str, int]:
        """The levels of the same; 0 is told as nothing."""
        levels = {each.name: self._levels[each.name] for each in self.supported(served_keys)}
        return {name: level for name, level in levels.items() if level}

    @property
    def epoch(self) -> int:
        """Grows with every change of a level."""
        if self._version is None:
            return 0 if self._is_alone else UNKNOWN_EPOCH
        return self._version + 1 if self._is_alone else self._version

    # ------------------------------------------------------------------ changing

    async def update(self, updates: Sequence[Update], served_keys: Container[int], *, validate_only: bool) -> None:
        """Change levels, all or none. KafkaError: none."""
        async with self._turn:
            levels = dict(self._levels)
            for each in updates:
                levels[each.name] = self._checked(each, served_keys)
            if validate_only or levels == self._levels:
                return
            await self._write(levels)

    def _checked(self, update: Update, served_keys: Container[int]) -> int:
        """The new level of a feature; raises InvalidUpdate."""
        if update.upgrade_type not in UPGRADE_TYPES:
            raise InvalidUpdate(update, "The controller does not support the given upgrade type.")
        if update.level < 0:
            raise InvalidUpdate(update, "A feature version cannot be less than 0.")
        feature = next((each for each in self.supported(served_keys) if each.name == update.name), None)
        if update.level > (0 if feature is None else feature.latest):
            only = "does not support this feature." if feature is None else f"only supports versions 0-{feature.latest}"
            raise InvalidUpdate(update, f"Local controller {self._node_id} {only}")
        if feature is None:
            raise InvalidUpdate(update, f"Feature {update.name} not found.")
        self._check_direction(update)
        return update.level

    def _check_direction(self, update: Update) -> None:
        present = self._levels[update.name]
        if update.level < present and update.upgrade_type == UPGRADE:
            raise InvalidUpdate(
                update,
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or"
                " unsafe downgrade.",
            )
        if update.level > present and update.upgrade_type != UPGRADE:
            raise InvalidUpdate(update, "Can't downgrade to a newer version.")

    async def _write(self, levels: dict[str, int]) -> None:
        data = encode_features(levels)
        write: Operation = Create(znodes.FEATURE, data)
        if self._version is not None:
            write = SetData(znodes.FEATURE, data, self._version)
        try:
            await self._coordination.multi([write])
        except CoordinationError as error:
            logger.error("The levels of features cannot be written: %r", error)
            raise KafkaError(ErrorCode.FEATURE_UPDATE_FAILED) from None
        logger.info("Levels of features: %s", ", ".join(f"{name}={level}" for name, level in sorted(levels.items())))
        self._levels, self._version = levels, 0 if self._version is None else self._version + 1

    # ------------------------------------------------------------------ reading

    async def read(self) -> None:
        """Take up what is written. Raises CoordinationError."""
        (node,) = await self._coordination.get_all([znodes.FEATURE])
        self._version = None if node is None else node.version
        if node is not None and self._is_alone:
            for name, level in decode_features(node.data).items():
                if name in _BY_NAME:
                    self._levels[name] = min(level, _BY_NAME[name].latest)


def encode_features(levels: Mapping[str, int]) -> bytes:
    """As Kafka's FeatureZNode has it from release 3.3 on."""
    node = {"version": 2, "status": 1, "features": dict(sorted(levels.items()))}
    return json.dumps(node, separators=(",", ":")).encode()


def decode_features(data: bytes) -> dict[str, int]:
    """The levels; what cannot be read is left aside."""
    try:
        node = json.loads(data)
        features: Iterable[tuple[object, object]] = node["features"].items() if node["status"] == 1 else ()
        return {str(name): int(level) for name, level in features if isinstance(level, int) and level >= 0}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        logger.error("Left aside levels of features that cannot be read: %r", error)
        return {}
