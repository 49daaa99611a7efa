"""Proposals of in-sync replicas to the controller: followers that caught up join, others leave (KIP-497). A trio shell.

Theory
    The rules are `Partition`'s and `followers.Followers`'; here is when they are looked at, and what follows from the
    controller's answers. A fetch may let a follower join; every replica.lag.time.max.ms / 2 a look at all partitions finds
    who must leave. What is proposed goes to the controller in one AlterPartition after the other, each with all proposals
    that have no answer yet. Nothing is given up because time went by: a request without an answer may have been carried
    out. So it is sent again until the controller answers, or a newer LeaderAndIsr request replaces the proposal.

| answer                                                          | the proposal                                       |
|-----------------------------------------------------------------|----------------------------------------------------|
| the present state                                               | is settled                                         |
| the same, but of another leader epoch or an older partition epoch | stays, unsent, until LeaderAndIsr                |
| INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED                     | is withdrawn: no controller can have carried it out |
| UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, INVALID_REQUEST, NEW_LEADER_ELECTED | stays, unsent, until LeaderAndIsr |
| any other error, of the partition or of the whole request       | is sent again                                      |
| no answer, or none for this partition                           | is sent again                                      |

A fenced leader refuses its followers' fetches, so they seem to fall behind. It proposes nothing then, and afterwards does
not count that time. Otherwise the end of an outage of ZooKeeper would find partitions with their leader alone in sync, and
the loss of this one broker would make them unavailable.

Kafka: Partition.handleAlterPartitionError and -Update, DefaultAlterPartitionManager.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.replication.cluster.metadata_cache import RECOVERED
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.replication.system import system_clock_ms
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.controller_requests import AlterPartitionRequest, AlterPartitionResponse, BrokerState
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.replication.config import ReplicationConfig
    from ottla.replication.partition.followers import Followers
    from ottla.replication.partition.partition import Partition

logger = logging.getLogger("ottla.replication")

TopicRequest = AlterPartitionRequest.TopicData
PartitionRequest = TopicRequest.PartitionData
PartitionResponse = AlterPartitionResponse.TopicData.PartitionData

VERSION = 3  # names the incarnation of each replica, so that none counts that has restarted meanwhile (KIP-903)
RETRY_S = 0.05
PARTITIONS_PER_SLICE = 500  # looked at before others have a turn
ANSWER_TIMEOUT_S = 30

_REFUSED_WITHOUT_EFFECT = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
# An earlier try of the same request may have been carried out, by this controller or by the one before. So the leader
# goes on reckoning with its proposal.
_OVERTAKEN = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


AskController = Callable[..., Awaitable[AlterPartitionResponse]]
"""Sends one request, its version and `timeout_s` to the present controller, once. Raises PeerUnavailable."""


class Proposal(NamedTuple):
    """A proposed ISR of one partition, with the partition's epochs at the time of the proposal."""

    partition: Partition
    followers: Followers
    isr: list[BrokerState]
    leader_epoch: int
    partition_epoch: int
    proposed: tuple[int, ...]

    @property
    def is_open(self) -> bool:
        """True while this is the partition's latest proposal, so that the controller's answer to it still matters."""
        # By identity: a new term as leader has other followers, and an equal proposal can be made later.
        return self.partition.followers is self.followers and self.followers.proposed is self.proposed


class AlterPartitionManager:
    def __init__(
        self,
        node_id: int,
        *,
        partitions: Callable[[], Iterable[Partition]],
        ask_controller: AskController,
        broker_epoch: Callable[[], int],
        is_fenced: Callable[[], bool],
        config: Callable[[], ReplicationConfig],
        clock_ms: Callable[[], int] = system_clock_ms,
    ) -> None:
        self._node_id = node_id
        self._partitions = partitions
        self._ask_controller = ask_controller
        self._broker_epoch = broker_epoch
        self._is_fenced = is_fenced
        self._config = config
        self._clock_ms = clock_ms
        self._unanswered: dict[Partition, Proposal] = {}
        self.shrunk = self.expanded = self.failed = 0  # how often, since the broker started
        self._news = trio.Event()

    def on_follower_fetch(self, partition: Partition, broker_id: int) -> None:
        """Propose to add a follower that has just fetched to the ISR, if it has caught up."""
        # This runs with every fetch of a follower, and has to be quick for those who are in sync.
        if broker_id in partition.isr:
            return
        isr = partition.joining_isr(broker_id)
        if isr is not None:
            self._propose(partition, isr)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Remove lagging followers from ISRs and send ISR proposals to the controller, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._shrink_forever)
            nursery.start_soon(self._ask_forever)
            task_status.started()

    # ------------------------------------------------------------------ proposing

    async def _shrink_forever(self) -> None:
        # fenced_ms: how long the followers of all partitions were refused since the last look.
        fenced_ms, looked_ms = 0, self._clock_ms()
        while True:
            await trio.sleep(self._config().replica_lag_time_max_ms / 2000)
            looked_before_ms, looked_ms = looked_ms, self._clock_ms()
            if self._is_fenced():
                # The time of the fence within this interval is unknown, so all of it is excused.
                fenced_ms += looked_ms - looked_before_ms
                continue
            for count, partition in enumerate(self._partitions()):
                if count % PARTITIONS_PER_SLICE == PARTITIONS_PER_SLICE - 1:
                    await trio.lowlevel.checkpoint()
                if fenced_ms and partition.followers is not None:
                    partition.followers.excuse(fenced_ms, self._clock_ms())
                isr = partition.shrunk_isr(self._clock_ms())
                if isr is not None:
                    self._propose(partition, isr)
                else:
                    partition.reconsider()  # a replica about to join is awaited no longer than a laggard
            fenced_ms = 0

    def _propose(self, partition: Partition, isr: tuple[int, ...]) -> None:
        followers = partition.followers
        assert followers is not None
        # Answers name the partition and not the proposal, so there is only one of each on its way.
        if partition in self._unanswered:
            return  # overtaken, but its answer may be on its way; the next fetch or look proposes again
        followers.propose(isr)
        logger.info(
            "%s-%d: proposing in-sync replicas %s instead of %s", partition.topic, partition.index, isr, partition.isr
        )
        epochs = [self._broker_epoch() if each == self._node_id else followers.broker_epoch(each) for each in isr]
        self._unanswered[partition] = Proposal(
            partition,
            followers,
            [BrokerState(broker_id=broker, broker_epoch=epoch) for broker, epoch in zip(isr, epochs, strict=True)],
            partition.leader_epoch,
            partition.partition_epoch,
            isr,
        )
        self._news.set()

    # ------------------------------------------------------------------ asking

    async def _ask_forever(self) -> None:
        while True:
            await self._news.wait()
            # Before the request is made: what is proposed while it is on its way goes with the next one.
            self._news = trio.Event()
            self._unanswered = {partition: each for partition, each in self._unanswered.items() if each.is_open}
            # There may be no controller for a while. LeaderAndIsr may overtake the proposals in the pause.
            if self._unanswered and not await self._ask(list(self._unanswered.values())):
                await trio.sleep(RETRY_S)
                self._news.set()

    async def _ask(self, proposals: list[Proposal]) -> bool:
        """Send proposals and apply the answers; return False if some proposals have to be sent again."""
        try:
            response = await self._ask_controller(self._request(proposals), VERSION, timeout_s=ANSWER_TIMEOUT_S)
        except PeerUnavailable as error:
            logger.debug("The controller did not answer AlterPartition: %s", error)
            return False
        if response.error_code:
            # Between two controllers that is what everybody says, many times a second.
            level = logging.DEBUG if response.error_code == ErrorCode.NOT_CONTROLLER else logging.WARNING
            logger.log(level, "AlterPartition failed: %r", _error(response.error_code))
            return False
        answers = {
            (topic.topic_id, each.partition_index): each for topic in response.topics for each in topic.partitions
        }
        is_done = True
        for proposal in proposals:
            answer = answers.get((_topic_id(proposal.partition), proposal.partition.index))
            # `_conclude` is called before `is_done` is looked at, so that every answer is acted on.
            is_done = answer is not None and self._conclude(proposal, answer) and is_done
        return is_done

    def _request(self, proposals: list[Proposal]) -> AlterPartitionRequest:
        topics: dict[bytes, TopicRequest] = {}
        for proposal in proposals:
            topic_id = _topic_id(proposal.partition)
            topic = topics.setdefault(topic_id, TopicRequest(topic_id=topic_id, partitions=[]))
            topic.partitions.append(
                PartitionRequest(
                    partition_index=proposal.partition.index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=proposal.isr,
                    # Kafka's leaders say so as well: a broker that leads has nothing left to recover.
                    leader_recovery_state=RECOVERED,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _conclude(self, proposal: Proposal, answer: PartitionResponse) -> bool:
        """Apply the answer to a proposal; return False if the proposal has to be sent again."""
        partition, code = proposal.partition, answer.error_code
        # The outcome is unknown, so the same request is sent again.
        if code and proposal.is_open and code not in _REFUSED_WITHOUT_EFFECT and code not in _OVERTAKEN:
            logger.warning("AlterPartition of %s-%d: %r", partition.topic, partition.index, _error(code))
            return False
        if self._unanswered.get(partition) is proposal:
            del self._unanswered[partition]
        # LeaderAndIsr came first, and says more than this answer.
        if not proposal.is_open:
            return True
        if code in _REFUSED_WITHOUT_EFFECT:
            proposal.followers.withdraw(are_ineligible=code == ErrorCode.INELIGIBLE_REPLICA)
            # The high watermark has waited for replicas that the controller refuses. It may move up now.
            partition.reconsider()
            self.failed += 1
        elif not code:
            before, isr = len(partition.isr), tuple(answer.isr)
            if partition.settle_isr(isr, leader_epoch=answer.leader_epoch, partition_epoch=answer.partition_epoch):
                self.shrunk += len(isr) < before
                self.expanded += len(isr) > before
        return True


def _topic_id(partition: Partition) -> bytes:
    return partition.topic_id or ZERO_UUID


def _error(code: int) -> object:
    return ErrorCode._value2member_map_.get(code, code)
