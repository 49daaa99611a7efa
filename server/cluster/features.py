"""The features that clients and tools ask for by level (KIP-584, KIP-1022): the one place that lists them.

A feature is *supported* by the software up to a level, and *finalized* at the level that the cluster uses. Levels are in the
node /feature, where Kafka 3.9 keeps them. What has no meaning here is not listed: metadata.version and kraft.version are about
Kafka's own metadata log.

eligible.leader.replicas.version (KIP-966) is supported by a single broker only. The feature means that min.insync.replicas is a setting
of all brokers, which cannot be taken away or set for one broker. If each partition has one replica, no replica outside the
ISR is eligible to lead. The members of a cluster elect by ZooKeeper's rules, so they support no level of it.

    the node                        a broker that is alone           a member of a cluster
    is missing                      uses the newest levels           uses what can be used without the others
    names a feature as set          uses the level that was set      the same
    has the feature's level         uses the newest level            uses this level

In a cluster the active controller writes the node (`controller/finalized_levels.py`) and each member watches it. A single
broker writes the node when a client sets a level. A broker that does not support a finalized level does not start.

Clients of a member hear of features once the node is there and is one of Ottla's. A cluster with brokers of Kafka 3.9 has a
node of Kafka's, which names no feature: all its brokers tell of none.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import CoordinationError
from ottla.server.cluster.config_notifications import Signal, follow
from ottla.server.cluster.session import JoinProblem
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import Coordination, Node

logger = logging.getLogger("ottla.features")

GROUP_VERSION, SHARE_VERSION = "group.version", "share.version"
STREAMS_VERSION, TRANSACTION_VERSION = "streams.version", "transaction.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
UPGRADE_TYPES = (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE)
UNKNOWN_EPOCH = -1


class Feature(NamedTuple):
    """Feature with versioned levels (KIP-584). `is_alone_only`: only lone brokers support the feature.

    `keys`: API keys that a broker must serve to advertise the feature. `unfinalized`: level in a cluster that has not
    finalized one; 0 if every broker has to support the feature first.
    """

    name: str
    latest: int
    keys: tuple[int, ...]
    unfinalized: int
    is_alone_only: bool = False


FEATURES = (
    # ConsumerGroupHeartbeat, ConsumerGroupDescribe
    Feature(GROUP_VERSION, 1, (68, 69), 1),
    # ShareGroupHeartbeat, ShareGroupDescribe, ShareFetch, ShareAcknowledge
    Feature(SHARE_VERSION, 2, (76, 77, 78, 79), 2),
    # StreamsGroupHeartbeat, StreamsGroupDescribe
    Feature(STREAMS_VERSION, 1, (88, 89), 1),
    # InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit
    Feature(TRANSACTION_VERSION, 2, (22, 24, 25, 26, 28), 0),
    # DescribeTopicPartitions
    Feature(ELIGIBLE_LEADER_REPLICAS_VERSION, 1, (75,), 0, is_alone_only=True),
)
KINDS_OF_GROUPS = {"consumer": GROUP_VERSION, "streams": STREAMS_VERSION}
"""The names in group.coordinator.rebalance.protocols that count, with the features that they turn off where they are missing."""


def supported_levels(*, is_alone: bool = False) -> dict[str, int]:
    """Return the newest supported level of each feature, as a broker registers it."""
    return {each.name: each.latest for each in FEATURES if is_alone or not each.is_alone_only}


_ALONE_ONLY = frozenset(each.name for each in FEATURES if each.is_alone_only)


class Levels(NamedTuple):
    """Feature levels in the node /feature. `finalized`: the levels above 0.

    `settled`: features whose level a client has set; the controller does not change these. `is_ours`: Ottla wrote the
    node, so the controller may raise the other levels; if Kafka wrote it, only the operator may.
    """

    finalized: Mapping[str, int] = {}
    settled: frozenset[str] = frozenset()
    is_ours: bool = True

    def unsupported(self, supported: Mapping[str, int]) -> dict[str, int]:
        """Return those finalized levels that are higher than a broker's levels in `supported`."""
        lacking = {name: level for name, level in self.finalized.items() if level > supported.get(name, 0)}
        # A broker that was alone may have left its own here. The others mean nothing by it.
        return {name: level for name, level in lacking.items() if name not in _ALONE_ONLY}


class Update(NamedTuple):
    """One update of an UpdateFeatures request."""

    name: str
    level: int
    upgrade_type: int


class InvalidUpdate(KafkaError):
    """Error for an invalid feature update, with Kafka's text. It rejects all updates in the request."""

    def __init__(self, update: Update, reason: str) -> None:
        message = f"Invalid update version {update.level} for feature {update.name}. {reason}"
        super().__init__(ErrorCode.INVALID_UPDATE_VERSION, message)


class Features:
    """Finalized feature levels as this broker knows them. `read` is called at every start."""

    def __init__(
        self,
        coordination: Coordination,
        *,
        is_alone: bool,
        kinds_of_groups: Iterable[str] = KINDS_OF_GROUPS,
        beside_kafka: str | None = None,
    ) -> None:
        """Create this broker's feature levels. `kinds_of_groups`: group types that this broker serves.

        `beside_kafka`: release of the cluster's Apache Kafka brokers, None if there are none.
        """
        served = [each.lower() for each in kinds_of_groups]
        self._not_served = frozenset(name for kind, name in KINDS_OF_GROUPS.items() if kind not in served)
        self.supported_levels = supported_levels(is_alone=is_alone) if beside_kafka is None else {}
        self._beside_kafka, self._coordination, self._is_alone = beside_kafka, coordination, is_alone
        self._node: Node | None = None
        self._finalized: dict[str, int] = {}
        self._in_use: dict[str, int] = {}
        self._are_announced = is_alone
        self._problem, self._has_problem = "", trio.Event()
        self._take_up(None, Levels())

    # ------------------------------------------------------------------ asking

    def level(self, name: str) -> int:
        """Return the level of feature `name` in use on this broker, even if the feature is not advertised."""
        return self._in_use[name]

    def is_served(self, name: str) -> bool:
        """Return True if the feature's level is above 0 and no setting disables the feature on this broker.

        As in Kafka, features that a setting disables are still advertised.
        """
        return self._in_use[name] > 0 and name not in self._not_served

    def supported(self, served_keys: Container[int]) -> list[Feature]:
        """Return the features to advertise: those whose API keys are all in `served_keys`. Their lowest level is 0."""
        if not self._are_announced:
            return []
        possible = (each for each in FEATURES if self._is_alone or not each.is_alone_only)
        return [each for each in possible if all(key in served_keys for key in each.keys)]

    def finalized(self, served_keys: Container[int]) -> dict[str, int]:
        """Return the finalized feature levels; features at level 0 are omitted."""
        levels = self._in_use if self._is_alone else self._finalized
        return {each.name: levels[each.name] for each in self.supported(served_keys) if levels.get(each.name)}

    @property
    def epoch(self) -> int:
        """Epoch of the finalized levels; it grows with every change of a level."""
        if self._node is None:
            return 0 if self._is_alone else UNKNOWN_EPOCH
        return self._node.version + 1 if self._is_alone else self._node.version

    # ------------------------------------------------------------------ reading

    async def read(self) -> None:
        """Load the levels. Raises CoordinationError, or JoinProblem if this release does not support a level."""
        (node,) = await self._coordination.get_all([znodes.FEATURE])
        known = self._node
        # A server of the tree may be behind the one that was asked before.
        if (
            node is not None
            and known is not None
            and node.creation_id == known.creation_id
            and node.version < known.version
        ):
            return
        levels = Levels() if node is None else decode_levels(node.data)
        if unknown := levels.unsupported(self.supported_levels):
            raise JoinProblem(self._refusal(unknown))
        self._take_up(node, levels)

    def _take_up(self, node: Node | None, levels: Levels) -> None:
        before = self._in_use
        self._node, self._finalized = node, dict(levels.finalized)
        self._in_use = {each.name: self._level_of(each, levels) for each in FEATURES}
        self._are_announced = self._is_alone or (node is not None and levels.is_ours)
        if before and before != self._in_use:
            logger.info("Levels of features in use: %s", in_words(self._in_use))

    def _level_of(self, feature: Feature, levels: Levels) -> int:
        level = levels.finalized.get(feature.name, 0)
        if feature.is_alone_only and not self._is_alone:
            return 0
        if feature.name in levels.settled:
            return level
        return feature.latest if self._is_alone else level or feature.unfinalized

    def _refusal(self, unknown: Mapping[str, int]) -> str:
        who = "this release" if self._beside_kafka is None else f"inter.broker.protocol.version={self._beside_kafka}"
        lower = " ".join(f"{name}={self.supported_levels.get(name, 0)}" for name in sorted(unknown))
        return (
            f"the cluster uses {in_words(unknown)}, which {who} does not support: start a newer release, or first lower it with"
            f" `ottla features downgrade {lower}`"
        )

    async def catch_up(self) -> None:
        """Load levels just written by the controller; `run` loads them later if the tree is unavailable."""
        with suppress(CoordinationError, JoinProblem):
            await self.read()

    async def run(self) -> None:
        """Apply other brokers' changes of levels until the session ends. Raises SessionExpired."""
        changed = Signal()
        ends = [self._coordination.watch_node(znodes.FEATURE, changed.set)]
        reads = (self._read_or_break, self._read_or_break)
        await follow(self._coordination, changed, ends, *reads, task_status=trio.TASK_STATUS_IGNORED)

    async def _read_or_break(self) -> None:
        try:
            await self.read()
        except JoinProblem as problem:
            self._problem = str(problem)
            self._has_problem.set()

    async def until_broken(self, until_other: Callable[[], Awaitable[str]]) -> str:
        """Wait until this release does not support a finalized level, or `until_other` returns; return the reason."""
        if self._is_alone:
            return await until_other()
        reasons: list[str] = []
        async with trio.open_nursery() as nursery:

            async def wait(until: Callable[[], Awaitable[Any]]) -> None:
                reasons.append(await until() or self._problem)
                nursery.cancel_scope.cancel()

            nursery.start_soon(wait, until_other)
            await wait(self._has_problem.wait)
        return reasons[0]


def in_words(levels: Mapping[str, int]) -> str:
    """Format feature levels for a log line."""
    return ", ".join(f"{name}={level}" for name, level in sorted(levels.items())) or "none"


# ------------------------------------------------------------------ the node


def encode_levels(levels: Levels) -> bytes:
    """Encode levels as FeatureZNode of Kafka 3.3 or later; Kafka ignores `set`, the features set by an operator."""
    features = {name: {"max_version_level": level} for name, level in sorted(levels.finalized.items()) if level > 0}
    node = {"version": 2, "status": 1, "features": features, "set": sorted(levels.settled)}
    return json.dumps(node, separators=(",", ":")).encode()


def decode_levels(data: bytes) -> Levels:
    """Decode the levels in a node. For an unreadable node, return no levels; only the operator can repair it."""
    try:
        node = json.loads(data)
        features: dict[str, Any] = dict(node["features"]) if node["status"] == 1 else {}
        # Before clusters had features a broker that was alone wrote plain numbers, zeros among them, once a level was set.
        plain = [name for name, each in features.items() if isinstance(each, int)]
        levels = {name: each if name in plain else each["max_version_level"] for name, each in features.items()}
        settled = frozenset(map(str, node.get("set", plain)))
        return Levels(
            {str(name): int(each) for name, each in levels.items() if each > 0}, settled, bool(plain) or "set" in node
        )
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        logger.error("Left aside levels of features that cannot be read: %r", error)
        return Levels(is_ours=False)
