"""Verification of the controller's requests against the coordination tree.

Any process that reaches the inter-broker listener can claim to be the controller, of any epoch, and can name any topic and
partition. So a broker believes

* a controller epoch if /controller_epoch holds it, and the controller's id if /controller does not name another broker,
* that a broker has come, has moved or has gone if /brokers/ids says so: clients send their records to its address, and
  records that wait for it to be in sync are committed without it once it is gone,
* a new partition if /brokers/topics/<topic> has its number, under the topic's id,
* that a replica is to be deleted if its topic is gone or is being deleted, or the partition is to live elsewhere.

The broker reads the tree only where a request says something new, and keeps what it has verified: requests of a known
controller about known partitions read nothing, and requests that came before a look began share it. The server that answers
may lag behind the server that the controller wrote to. So a request is refused only after a second look behind a barrier, a
multi that changes nothing but has to pass through the leader of the ensemble. While the tree is out of reach, requests wait.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    ANY_VERSION,
    Check,
    Coordination,
    CoordinationError,
    CoordinationUnavailable,
    Node,
    NoNode,
)
from ottla.replication.cluster.metadata_cache import (
    NO_BROKER_EPOCH,
    NO_CONTROLLER,
    BrokerRegistration,
    topic_name_problem,
)
from ottla.replication.cluster.znodes import MalformedNode, TopicAssignment
from ottla.wire.errors import ErrorCode
from ottla.wire.schema import ZERO_UUID

logger = logging.getLogger("ottla.replication.controller")

T = TypeVar("T")

RETRY_S = 0.1
NODES_PER_LOOK = 500  # read in one call
TOPICS_KEPT_MAX = 100_000
NEVER = float("-inf")


class KnownTopic(NamedTuple):
    """A topic in the coordination tree: its id and number of partitions."""

    topic_id: bytes
    partition_count: int

    def refusal(self, topic_id: bytes, index: int) -> ErrorCode:
        """Return the error for a topic id and partition number; NONE if the tree has this partition."""
        # A side that knows no id contradicts nothing: topics from before Kafka 2.8 have none at first.
        if ZERO_UUID not in (topic_id, self.topic_id) and topic_id != self.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        return ErrorCode.NONE if 0 <= index < self.partition_count else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


NO_TOPIC = KnownTopic(ZERO_UUID, 0)


class Claim(NamedTuple):
    """Claim of a request about a topic: its id, and the highest partition number that the request names."""

    topic_id: bytes
    highest_index: int

    def agrees(self, known: KnownTopic) -> bool:
        return not known.refusal(self.topic_id, self.highest_index)


class ControllerFencing:
    """Verifier of controller requests: compares them with the coordination tree, one request at a time."""

    def __init__(self, coordination: Coordination, node_id: int) -> None:
        self._coordination = coordination
        self._node_id = node_id
        self._epoch = 0
        self._controller_id = NO_CONTROLLER
        # When the last looks began, without and with a barrier. A request that came before may rely on them.
        self._looked_at = self._looked_for_certain_at = NEVER
        self._topics: dict[str, KnownTopic] = {}
        self._brokers: Mapping[int, BrokerRegistration] = {}

    # ------------------------------------------------------------------ the controller

    async def is_controller(self, controller_id: int, epoch: int, *, since: float) -> bool:
        """Tell whether `controller_id` was elected in `epoch`; `since` is the time at which the request arrived."""
        # 1. What was verified before costs no read.
        if self._is_elected(controller_id, epoch):
            return True
        # 2. A plain look. One that began after this request came is as good as its own.
        if self._looked_at < since:
            await self._read_controller()
        # 3. The server may lag behind, so no request is refused before a read behind a barrier. A storm of false requests
        # shares one.
        if not self._is_elected(controller_id, epoch) and self._looked_for_certain_at < since:
            # The look counts from its beginning: the answer may lack what was written later.
            began = trio.current_time()
            await self._barrier()
            await self._read_controller()
            self._looked_for_certain_at = began
        return self._is_elected(controller_id, epoch)

    def _is_elected(self, controller_id: int, epoch: int) -> bool:
        """Tell whether the tree, as last read, names this controller and epoch, or this epoch and no controller."""
        return epoch == self._epoch and self._controller_id in (NO_CONTROLLER, controller_id)

    async def _read_controller(self) -> None:
        began = trio.current_time()
        epoch, controller = await self._read([znodes.CONTROLLER_EPOCH, znodes.CONTROLLER])
        try:
            self._epoch = 0 if epoch is None else znodes.decode_controller_epoch(epoch.data)
            self._controller_id = NO_CONTROLLER if controller is None else znodes.decode_controller(controller.data)
        except MalformedNode as problem:
            # Epoch 0 means no controller: the first one that is elected has epoch 1.
            logger.error("No controller is believed: %s", problem)
            self._epoch = 0
        self._looked_at = began

    # ------------------------------------------------------------------ brokers

    async def live_brokers(
        self, received: Mapping[int, BrokerRegistration], known: Collection[int]
    ) -> Mapping[int, BrokerRegistration]:
        """Return the live brokers in the tree that are in `received` or `known` (named by earlier requests)."""
        # The tree may have brokers that no controller has introduced. They do not count before one does.
        named = {*received, *known}
        # First what was read before, then a plain look, then one behind a barrier. What agrees ends it.
        if self._brokers_among(named) != received:
            self._brokers = await self._read_brokers()
        if self._brokers_among(named) != received:
            await self._barrier()
            self._brokers = await self._read_brokers()
            if self._brokers_among(named) != received:
                logger.warning("The coordination tree lists other brokers than the controller's request")
        return self._brokers_among(named)

    def _brokers_among(self, named: Collection[int]) -> Mapping[int, BrokerRegistration]:
        return {broker: found for broker, found in self._brokers.items() if broker in named}

    async def _read_brokers(self) -> Mapping[int, BrokerRegistration]:
        found: dict[int, BrokerRegistration] = {}
        for name, node in (await self._patiently(lambda: self._coordination.children_data(znodes.BROKER_IDS))).items():
            try:
                # Without its epoch, which UpdateMetadata does not tell: the two are compared.
                found[int(name)] = znodes.decode_broker(int(name), node.data, NO_BROKER_EPOCH)
            except ValueError as problem:
                logger.error("%s/%s is passed over: %s", znodes.BROKER_IDS, name, problem)
        return found

    # ------------------------------------------------------------------ topics

    async def topics(self, claims: Mapping[str, Claim]) -> Mapping[str, KnownTopic]:
        """Return the claimed topics; NO_TOPIC stands for a missing topic.

        Reads a topic from the tree if the cached topic contradicts the claim.
        """
        # First a look that may be out of date. Topics that do not agree with it get a second one, behind a barrier.
        await self._learn([name for name, claim in claims.items() if not claim.agrees(self._known(name))])
        doubtful = [name for name, claim in claims.items() if not claim.agrees(self._known(name))]
        # Taken before the second look, which may drop everything that is kept.
        known = {name: self._known(name) for name in claims}
        if doubtful:
            await self._barrier()
            await self._learn(doubtful)
            known |= {name: self._known(name) for name in doubtful}
        return known

    def forget_topic(self, name: str) -> None:
        """Remove a deleted topic from the cache."""
        self._topics.pop(name, None)

    def _known(self, name: str) -> KnownTopic:
        return self._topics.get(name, NO_TOPIC)

    async def _learn(self, names: Sequence[str]) -> None:
        # An unknown peer chooses the names, and a name that is no topic's could be the path of another node.
        names = [name for name in names if topic_name_problem(name) is None]
        if len(self._topics) + len(names) > TOPICS_KEPT_MAX:
            self._topics.clear()  # what is dropped is read again
        for start in range(0, len(names), NODES_PER_LOOK):
            some = names[start : start + NODES_PER_LOOK]
            for name, node in zip(some, await self._read(map(znodes.topic_path, some)), strict=True):
                assignment = _assignment(name, node)
                if assignment is None:
                    self._topics.pop(name, None)
                else:
                    self._topics[name] = KnownTopic(assignment.topic_id or ZERO_UUID, len(assignment.partitions))
            await trio.lowlevel.checkpoint()

    async def to_delete(self, partitions: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
        """Return the partitions whose local replica the controller wants deleted, according to the tree."""
        wanted = set(partitions)
        going = await self._going(wanted)
        # Nothing is deleted in doubt, but the server may not have seen the mark yet.
        if going != wanted:
            await self._barrier()
            going |= await self._going(wanted - going)
        return going

    async def _going(self, partitions: set[tuple[str, int]]) -> set[tuple[str, int]]:
        names = sorted({name for name, _ in partitions if topic_name_problem(name) is None})
        going: set[tuple[str, int]] = set()
        for start in range(0, len(names), NODES_PER_LOOK):
            some = names[start : start + NODES_PER_LOOK]
            # Topics and their marks in one call: the first half of the answer and the second.
            nodes = await self._read([*map(znodes.topic_path, some), *map(znodes.deleted_topic_path, some)])
            kept = {
                name: assignment
                for name, node, deletion in zip(some, nodes[: len(some)], nodes[len(some) :], strict=True)
                if deletion is None and (assignment := _assignment(name, node)) is not None
            }
            # A name that was not looked up goes nowhere.
            looked_at = frozenset(some)
            going |= {
                (name, index)
                for name, index in partitions
                if name in looked_at and (name not in kept or not self._stays(kept[name], index))
            }
        return going

    def _stays(self, topic: TopicAssignment, index: int) -> bool:
        is_removed = self._node_id in topic.removing_replicas.get(index, ())
        return self._node_id in topic.partitions.get(index, ()) and not is_removed

    # ------------------------------------------------------------------ reading

    async def _read(self, paths: Iterable[str]) -> list[Node | None]:
        wanted = list(paths)
        return await self._patiently(lambda: self._coordination.get_all(wanted))

    async def _barrier(self) -> None:
        """Make the next read see all writes that any broker has completed before this call."""
        # If the node is missing, the multi fails, but it has passed through the leader all the same.
        with suppress(NoNode):
            await self._patiently(lambda: self._coordination.multi([Check(znodes.CONTROLLER_EPOCH, ANY_VERSION)]))

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call until it succeeds, in a new session if necessary. Raises NoNode."""
        while True:
            try:
                return await call()
            except NoNode:
                raise
            # Also SessionExpired: the member opens another session, and the same call reaches that one.
            except CoordinationError as problem:
                logger.debug("A request of the controller cannot be verified yet: %r", problem)
                if isinstance(problem, CoordinationUnavailable):
                    with suppress(CoordinationError):
                        await self._coordination.until_available()
                await trio.sleep(RETRY_S)


def _assignment(name: str, node: Node | None) -> TopicAssignment | None:
    if node is None:
        return None
    try:
        return znodes.decode_topic(node.data)
    except MalformedNode as problem:
        logger.error("%s is passed over: %s", znodes.topic_path(name), problem)
        return None
