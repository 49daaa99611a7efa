"""Progress of a leader's followers, and the replicas in sync. Sans-IO; owned by a leading `Partition`.

Theory
    The offset at which a follower fetches is the end of its log. A follower is *caught up* while it holds the leader's
    whole log, and for replica.lag.time.max.ms after that. Under steady traffic it never holds all of it. So a follower
    that fetches where the log ended at its fetch before counts as caught up at that earlier fetch (Kafka's class Replica).

    The committed ISR is the one that the controller agreed to last. The leader proposes that a follower joins when it has
    reached the high watermark and the start of this leader's epoch. It proposes that a follower leaves when it is not
    caught up any more. One proposal is on its way at a time. Until the controller answers, the high watermark waits for
    the *maximal* ISR: the committed ISR and the followers that join. So the high watermark may be too low for a moment,
    and is never too high (KIP-497).

| proposal | maximal ISR             | agreed (settle)  | refused, not applied (withdraw) | anything else                  |
|----------|-------------------------|------------------|---------------------------------|--------------------------------|
| none     | the committed           | -                | -                               | -                              |
| join     | the committed and one   | the new ISR      | the committed                   | stays until the next epoch     |
| leave    | the committed           | the new ISR      | the committed                   | stays until the next epoch     |

Invariants
    The leader is in the committed ISR and in every proposal. A follower's log end offset is unknown (-1) until it has
    fetched from this leader, and as long as it is in the maximal ISR the high watermark waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.wire.errors import ErrorCode, KafkaError

UNKNOWN_OFFSET = -1
UNKNOWN_BROKER_EPOCH = -1
INELIGIBLE_MS = 1_000  # the leader does not propose a replica that the controller refused so recently

IsEligible = Callable[[int, int], bool]


class Holder(NamedTuple):
    """An in-sync follower that holds the offset that a consumer fetches."""

    broker: int
    log_end_offset: int
    caught_up_ms: int


class LastFetch:
    """Time of a session's last fetch, in ms; it counts for followers of idle partitions (see `idle_partitions.py`)."""

    __slots__ = ("at_ms",)

    def __init__(self) -> None:
        self.at_ms = 0


class Follower:
    """A leader's view of one follower (Kafka's Replica)."""

    __slots__ = (
        "_caught_up_ms",
        "broker_epoch",
        "fetched_ms",
        "ineligible_until_ms",
        "leader_end_at_fetch",
        "log_end_offset",
        "log_start_offset",
        "rests_on",
    )

    def __init__(self) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.leader_end_at_fetch = UNKNOWN_OFFSET
        self.fetched_ms = 0
        self._caught_up_ms = 0
        self.rests_on: LastFetch | None = None
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.ineligible_until_ms = 0

    @property
    def caught_up_ms(self) -> int:
        """Time in ms when the follower last held the leader's whole log."""
        last_fetch = self.rests_on
        return self._caught_up_ms if last_fetch is None else max(self._caught_up_ms, last_fetch.at_ms)

    def wake(self, last_fetch: LastFetch) -> None:
        """End the follower's idle state, because the partition changes or its own fetches count again."""
        # What the session has shown so far is kept, since its later fetches say nothing about this partition.
        if self.rests_on is last_fetch:
            self._caught_up_ms = self.caught_up_ms
            self.rests_on = None

    def begin_epoch(self, leader_end_offset: int, *, is_in_sync: bool, now_ms: int) -> None:
        """Begin a leader epoch. An in-sync follower gets the full lag time again; another one must fetch first."""
        # A follower that has not fetched from this leader has no earlier fetch that could count.
        if self.log_end_offset != UNKNOWN_OFFSET:
            self.leader_end_at_fetch = leader_end_offset
            self.fetched_ms = now_ms if is_in_sync else 0
        # In-sync replicas get the whole lag time again. A leader that was just elected would put them out otherwise
        # before they have found it.
        self._caught_up_ms = now_ms if is_in_sync else 0
        self.rests_on = None

    def on_fetch(
        self, fetch_offset: int, log_start_offset: int, leader_end_offset: int, *, broker_epoch: int, now_ms: int
    ) -> None:
        # A fetch of its own is newer than what the session says.
        if self.rests_on is not None:
            self.wake(self.rests_on)
        if fetch_offset >= leader_end_offset:
            self._caught_up_ms = max(self._caught_up_ms, now_ms)
        # The log has grown since, but at its last fetch the follower was asking for all that there was then.
        elif fetch_offset >= self.leader_end_at_fetch:
            self._caught_up_ms = max(self._caught_up_ms, self.fetched_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        # This is the yardstick of the next fetch, so it is set after this fetch was measured.
        self.leader_end_at_fetch = max(leader_end_offset, self.leader_end_at_fetch)
        self.fetched_ms = now_ms
        # The broker has restarted. The controller refused the broker that it was before.
        if broker_epoch != self.broker_epoch:
            self.broker_epoch, self.ineligible_until_ms = broker_epoch, 0

    def excuse(self, refused_ms: int, now_ms: int) -> None:
        # Not beyond now: a replica cannot be caught up in the future.
        self._caught_up_ms = min(self.caught_up_ms + refused_ms, now_ms)

    def is_caught_up(self, leader_end_offset: int, lag_ms: int, now_ms: int) -> bool:
        # One that holds everything is in sync however long ago it fetched: there may have been nothing to fetch.
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_ms


class Followers:
    """Followers and ISR of a partition that this broker leads.

    `is_eligible(broker, broker_epoch)` tells whether a broker is alive and may be in sync.
    """

    __slots__ = ("_is_eligible", "_lag_ms", "_local_id", "by_id", "isr", "now_ms", "proposed")

    def __init__(self, local_id: int, *, lag_ms: int, is_eligible: IsEligible) -> None:
        self._local_id = local_id
        self._lag_ms = lag_ms
        self._is_eligible = is_eligible
        self.by_id: dict[int, Follower] = {}
        self.isr: tuple[int, ...] = ()
        self.proposed: tuple[int, ...] | None = None
        self.now_ms = 0  # as of the latest fetch, decision or look at the laggards

    def assign(self, replicas: Iterable[int], isr: tuple[int, ...]) -> None:
        """Adopt the controller's replicas and ISR; a pending ISR proposal ends."""
        others = [broker for broker in replicas if broker != self._local_id]
        # Who stays a replica keeps what is known of it. Who is none any more must not hold the high watermark back.
        self.by_id = {broker: self.by_id.get(broker) or Follower() for broker in others}
        self.isr, self.proposed = isr, None

    def begin_epoch(self, leader_end_offset: int, *, is_new_leader: bool, now_ms: int) -> None:
        """Begin a leader epoch; a new leader forgets earlier states of its followers."""
        self.now_ms = now_ms
        # What was heard in an earlier time as leader may be of records that have been cut off since.
        if is_new_leader:
            self.by_id = {broker: Follower() for broker in self.by_id}
        for broker, follower in self.by_id.items():
            follower.begin_epoch(leader_end_offset, is_in_sync=broker in self.isr, now_ms=now_ms)

    def on_fetch(
        self,
        broker: int,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        *,
        broker_epoch: int,
        now_ms: int,
    ) -> bool:
        """Record that a follower holds everything below `fetch_offset`; return True if that is new.

        Ignores fetches from before the broker's restart. Raises KafkaError (UNKNOWN_LEADER_EPOCH) if the broker has no
        replica.
        """
        follower = self.by_id.get(broker)
        if follower is None:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"Broker {broker} is no replica of this partition")
        # The broker may have lost records since it sent this. A request without a broker epoch cannot be told from
        # others.
        if UNKNOWN_BROKER_EPOCH < broker_epoch < follower.broker_epoch:
            return False
        self.now_ms = now_ms
        known = follower.log_end_offset, follower.log_start_offset
        follower.on_fetch(fetch_offset, log_start_offset, leader_end_offset, broker_epoch=broker_epoch, now_ms=now_ms)
        return known != (fetch_offset, log_start_offset)

    def in_sync(self, broker: int) -> Follower | None:
        """Return a follower's state if the follower is in the committed ISR, else None."""
        return self.by_id.get(broker) if broker in self.isr else None

    # --- what they hold together

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The committed ISR plus the followers proposed to join it."""
        proposed = self.proposed
        # A shorter proposal counts only when the controller has agreed: until then the one that leaves may still be
        # elected leader.
        return self.isr if proposed is None or len(proposed) < len(self.isr) else proposed

    def common_end(self, local_offset: int, leader_end_offset: int) -> int:
        """Return the next high watermark: the offset up to which all in-sync and joining replicas hold the log."""
        # The log's own part first: nothing is committed that this replica does not hold for sure.
        lowest, maximal = local_offset, self.maximal_isr
        for broker, follower in self.by_id.items():
            # The cheap question comes first. Most followers hold enough, and nothing else is asked of them.
            if follower.log_end_offset < lowest and (
                broker in maximal
                # A follower out of sync that is nearly there is waited for, as in Kafka. With the leader alone in sync
                # the watermark would run ahead of it all the time, and it could never join.
                or (
                    follower.is_caught_up(leader_end_offset, self._lag_ms, self.now_ms)
                    and self._may_join(broker, follower)
                )
            ):
                lowest = follower.log_end_offset
        return lowest

    def common_start(self, log_start_offset: int, is_alive: Callable[[int], bool]) -> int:
        """Return the lowest log start offset of all live replicas, for which DeleteRecords waits."""
        # A dead replica would hold DeleteRecords up for as long as it is dead.
        starts = [follower.log_start_offset for broker, follower in self.by_id.items() if is_alive(broker)]
        return min([log_start_offset, *starts])

    def holders(self, offset: int) -> list[Holder]:
        """Return the in-sync followers that hold `offset` or end at it."""
        return [
            Holder(broker, follower.log_end_offset, follower.caught_up_ms)
            for broker, follower in self.by_id.items()
            # Only what is in sync: a consumer sent to a laggard would wait for it.
            if broker in self.isr and follower.log_start_offset <= offset <= follower.log_end_offset
        ]

    # --- changing who is in sync

    def joiner(self, broker: int, high_watermark: int, epoch_start_offset: int) -> tuple[int, ...] | None:
        """Return the ISR extended by a follower that has caught up; None if the follower may not join now."""
        # One proposal at a time: the next one has to build on the answer to this one.
        if self.proposed is not None or broker in self.isr:
            return None
        follower = self.by_id[broker]
        # A new leader's high watermark may be lower than what the leader before it had committed. All that is below the
        # start of the new leader's epoch, so the follower needs that as well.
        if follower.log_end_offset < max(high_watermark, epoch_start_offset):
            return None
        return (*self.isr, broker) if self._may_join(broker, follower) else None

    def _may_join(self, broker: int, follower: Follower) -> bool:
        return self.now_ms >= follower.ineligible_until_ms and self._is_eligible(broker, follower.broker_epoch)

    def without_laggards(self, leader_end_offset: int, now_ms: int) -> tuple[int, ...] | None:
        """Return the ISR without lagging followers; None if no follower lags or a proposal is pending."""
        self.now_ms = now_ms
        if self.proposed is not None:
            return None
        # One who was removed from the replicas is not in `by_id` and leaves here, too.
        kept = tuple(broker for broker in self.isr if self._keeps_pace(broker, leader_end_offset))
        return kept if len(kept) < len(self.isr) else None

    def excuse(self, refused_ms: int, now_ms: int) -> None:
        """Exclude the time in which this broker refused fetches (`refused_ms`) from its followers' lag."""
        for broker in self.isr:
            if (follower := self.by_id.get(broker)) is not None:
                follower.excuse(refused_ms, now_ms)

    def _keeps_pace(self, broker: int, leader_end_offset: int) -> bool:
        # The leader does not fetch from itself.
        if broker == self._local_id:
            return True
        follower = self.by_id.get(broker)
        return follower is not None and follower.is_caught_up(leader_end_offset, self._lag_ms, self.now_ms)

    def propose(self, isr: tuple[int, ...]) -> None:
        assert self.proposed is None and self._local_id in isr
        self.proposed = isr

    def settle(self, isr: tuple[int, ...]) -> None:
        """Adopt an ISR that the controller has accepted."""
        self.isr, self.proposed = isr, None

    def withdraw(self, *, are_ineligible: bool = False) -> None:
        """Withdraw an ISR proposal that the controller refused and that no other controller can have applied.

        If `are_ineligible`, for a while the proposed followers do not hold back the high watermark and are not proposed
        again. The controller may have been the first to know that a broker is shutting down.
        """
        if are_ineligible:
            for broker in set(self.proposed or ()) - set(self.isr):
                # Otherwise its next fetch would bring the same proposal and the same refusal, many times a second.
                self.by_id[broker].ineligible_until_ms = self.now_ms + INELIGIBLE_MS
        self.proposed = None

    def broker_epoch(self, broker: int) -> int:
        """Return the epoch of the broker incarnation that last fetched; -1 if unknown."""
        follower = self.by_id.get(broker)
        return UNKNOWN_BROKER_EPOCH if follower is None else follower.broker_epoch
