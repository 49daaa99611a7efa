"""Flaws that a replicated log can have, to show that the simulation finds them: each is put into the product while it runs.

    python -m compat_tests.simulation.broken                 all of them, until each is found
    python -m compat_tests.simulation.broken HIGH_WATERMARK_OF_THE_LEADER_ALONE

A flaw is a function, or several, that is put in a method's place and gets the one that was there.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any
from unittest import mock

import trio
from compat_tests.simulation.cluster import Outcome, Plan, Simulation
from compat_tests.simulation.groups import LOCK_MS

from ottla.groupcoord.classic import rebalancing
from ottla.groupcoord.consumer.group import ConsumerState
from ottla.groupcoord.offsets.table import Offsets
from ottla.groupcoord.runtime.coordinator_runtime import Runtime
from ottla.groupcoord.runtime.partition_runtime import PartitionRuntime
from ottla.groupcoord.share.partition import acknowledging
from ottla.groupcoord.share.partition.in_flight import RecordState, Run
from ottla.groupcoord.share.partition.share_partition import SharePartition
from ottla.groupcoord.share.partition.state import ShareState
from ottla.replication.controller import leader_election
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.producers import ProducerStateManager
from ottla.replication.partition.followers import Followers
from ottla.replication.partition.partition import Partition
from ottla.replication.partition.retry_window import RetryWindow
from ottla.replication.replica_manager.alter_partition_manager import AlterPartitionManager
from ottla.server.coordinators.coordinator_log import InternalPartition
from ottla.server.coordinators.transaction_markers import TransactionMarkers
from ottla.server.network.inbox import Inbox
from ottla.server.testing.history.rules import Rule
from ottla.wire.errors import ErrorCode

SECONDS, CALM_SECONDS = 120.0, 25.0
SEEDS_MAX = 60
Instead = Callable[[Callable[..., Any]], Callable[..., Any]]


def _truncate_to_high_watermark(make_follower: Callable[..., Any]) -> Callable[..., Any]:
    def instead(self: Partition, **given: Any) -> Any:
        is_new = make_follower(self, **given)
        if is_new and self.log_end_offset > self.high_watermark:
            self.truncate_to(self.high_watermark, now_ms=0)
        return is_new

    return instead


def _elect_anybody(offline_election: Callable[..., Any]) -> Callable[..., Any]:
    def instead(state: Any, online: Any, *, unclean: bool) -> Any:
        leader = next((broker for broker in state.replicas if broker in online), None)
        if leader is None:
            return offline_election(state, online, unclean=unclean)
        return leader_election.succeed(
            state, leader, (leader, *(each for each in state.isr if each in online and each != leader))
        )

    return instead


def _leader_alone(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, local_offset, leader_end_offset: local_offset


def _committed_isr_alone(_: Callable[..., Any]) -> Callable[..., Any]:
    """The high watermark does not wait for who is about to join."""

    def instead(self: Followers, local_offset: int, leader_end_offset: int) -> int:
        ends = [follower.log_end_offset for broker, follower in self.by_id.items() if broker in self.isr]
        return min([local_offset, *ends])

    return instead


def _proposed_isr_at_once(_: Callable[..., Any]) -> Callable[..., Any]:
    """A shrunk ISR counts before the controller has agreed."""
    return property(lambda self: self.isr if self.proposed is None else self.proposed)  # type: ignore[return-value]


def _withdraw_too_early(ask: Callable[..., Any]) -> Callable[..., Any]:
    """No answer is taken for a refusal."""

    async def instead(self: AlterPartitionManager, proposals: Any) -> bool:
        done: bool = await ask(self, proposals)
        if not done:
            for each in proposals:
                if each.is_open:
                    each.followers.withdraw()
                self._unanswered.pop(each.partition, None)
        return True

    return instead


def _acknowledge_at_once(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, next_offset, required_acks: ErrorCode.NONE


def _show_what_is_not_replicated(read: Callable[..., Any]) -> Callable[..., Any]:
    def instead(self: Partition, *given: Any, **named: Any) -> Any:
        high_watermark = self.high_watermark
        self.high_watermark = self.log_end_offset
        try:
            return read(self, *given, **named)
        finally:
            self.high_watermark = high_watermark

    return instead


def _append_retries(find_duplicate: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *given, **named: None


def _keep_what_diverged(_: Callable[..., Any]) -> Callable[..., Any]:
    """A follower does not truncate."""
    return lambda self, epoch, end_offset: self.log_end_offset


def _load_to_high_watermark(_: Callable[..., Any]) -> Callable[..., Any]:
    async def instead(self: InternalPartition) -> Any:
        found = self._partition
        position, end = found.log.log_start_offset, found.high_watermark
        while position < end:
            read = found.log.read(position, 1 << 20, upper_bound=end, at_least_one_batch=True)
            if not read.region:
                return
            yield read.region if isinstance(read.region, bytes) else read.region.read()
            position = max(read.end_offset, position + 1)

    return instead


def _wait_for_nobody(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: None


def _mix_up_inboxes(receive: Callable[..., Any]) -> Callable[..., Any]:
    def instead(self: Inbox, sock: Any) -> int:
        if self._own is not None:
            return int(receive(self, sock))
        self.start = 0
        self.end = sock.recv_into(self.buffer)
        return self.end

    return instead


def _forget_refusals(_: Callable[..., Any]) -> Callable[..., Any]:
    """What follows a refused batch is judged by its sequence number alone, as Kafka does."""
    return lambda self, place, batch, entry: None


def _load_though_fenced(_: Callable[..., Any]) -> Callable[..., Any]:
    async def instead(self: Runtime) -> None:
        while True:
            await self._elected.wait()
            self._elected = trio.Event()
            while self._to_load:
                partition = self._to_load.popleft()
                if self.leads(partition):
                    await partition.load()

    return instead


def _load_never_again(_: Callable[..., Any]) -> Callable[..., Any]:
    def instead(self: PartitionRuntime, problem: Exception) -> None:
        self._shard, self._absent = None, ErrorCode.NOT_COORDINATOR

    return instead


def _do_nothing(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *given: None


def _let_locks_end_early(acquire: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, member_id, locked_until_ms: acquire(self, member_id, locked_until_ms - LOCK_MS * 4 // 5)


def _expect_early(acquire: Callable[..., Any]) -> Callable[..., Any]:
    def instead(self: SharePartition, wish: Any, fetch_offset: int, fetched: Any, now_ms: int, *given: Any) -> Any:
        found = acquire(self, wish, fetch_offset, fetched, now_ms, *given)
        self.expect_deadline(now_ms + LOCK_MS // 5)
        return found

    return instead


def _free_what_is_accepted(states: Any) -> Any:
    return states | {acknowledging.ACCEPT: RecordState.AVAILABLE}


def _archive_what_is_released(state_after: Callable[..., Any]) -> Callable[..., Any]:
    def instead(self: ShareState, run: Any, state: RecordState, **given: Any) -> RecordState:
        after: RecordState = state_after(self, run, state, **given)
        return RecordState.ARCHIVED if after is RecordState.AVAILABLE else after

    return instead


def _count_no_second_delivery(acquire: Callable[..., Any]) -> Callable[..., Any]:
    def instead(self: Run, *given: Any) -> None:
        acquire(self, *given)
        self.delivery_count = 1

    return instead


def _give_before_it_is_revoked(is_taken: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *given: False


def _give_all_the_same(synced: Callable[..., Any]) -> Callable[..., Any]:
    return lambda group, member: synced(group, next(iter(group.members), member))


def _commit_offsets_of_aborted(replay_marker: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, producer_id, *, committed: replay_marker(self, producer_id, committed=True)


class Flaw(Enum):
    TRUNCATES_TO_HIGH_WATERMARK = Partition, "make_follower", _truncate_to_high_watermark
    DOES_NOT_TRUNCATE = Partition, "divergence", _keep_what_diverged
    ELECTS_OUTSIDE_THE_ISR = leader_election, "offline_election", _elect_anybody
    HIGH_WATERMARK_OF_THE_LEADER_ALONE = Followers, "common_end", _leader_alone
    HIGH_WATERMARK_OF_THE_COMMITTED_ISR = Followers, "common_end", _committed_isr_alone
    ISR_SHRINKS_BEFORE_IT_IS_AGREED = Followers, "maximal_isr", _proposed_isr_at_once
    ISR_PROPOSAL_WITHDRAWN_TOO_EARLY = AlterPartitionManager, "_ask", _withdraw_too_early
    ACKNOWLEDGES_AT_ONCE = Partition, "acknowledgement", _acknowledge_at_once
    SHOWS_WHAT_IS_NOT_REPLICATED = Partition, "read", _show_what_is_not_replicated
    FORGETS_WHAT_IT_REFUSED = RetryWindow, "missing", _forget_refusals
    APPENDS_RETRIES = ProducerStateManager, "duplicate", _append_retries
    LOADS_OFFSETS_ONCE_THOUGH_FENCED = (
        Runtime, "_load_elected", _load_though_fenced, PartitionRuntime, "_load_later", _load_never_again
    )  # fmt: skip
    LOADS_OFFSETS_TO_THE_HIGH_WATERMARK = (
        InternalPartition, "read_batches", _load_to_high_watermark, InternalPartition, "until_committed", _wait_for_nobody
    )  # fmt: skip
    MIXES_UP_INBOXES = Inbox, "receive", _mix_up_inboxes
    FORGETS_WHAT_WAS_ABORTED = PartitionLog, "_note_aborted", _do_nothing
    FORGETS_MARKERS_THAT_WERE_REFUSED = TransactionMarkers, "_try_later", _do_nothing
    COMMITS_OFFSETS_OF_ABORTED = Offsets, "replay_marker", _commit_offsets_of_aborted
    LOCKS_END_EARLY = Run, "acquire", _let_locks_end_early, SharePartition, "acquire", _expect_early
    FREES_WHAT_IS_ACCEPTED = acknowledging, "_STATES", _free_what_is_accepted
    ARCHIVES_WHAT_IS_RELEASED = ShareState, "state_after", _archive_what_is_released
    COUNTS_NO_SECOND_DELIVERY = Run, "acquire", _count_no_second_delivery
    GIVES_BEFORE_IT_IS_REVOKED = ConsumerState, "is_taken", _give_before_it_is_revoked
    GIVES_ALL_THE_SAME_PARTITIONS = rebalancing, "synced", _give_all_the_same

    @property
    def processors(self) -> int:
        """Who works in transactions, without whom some show nothing."""
        return 2 if self in TRANSACTIONS else 0

    @property
    def members(self) -> int:
        """Of groups of each kind."""
        return 3 if self in RULES_OF_GROUPS else 0

    @contextlib.contextmanager
    def built_in(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for owner, name, instead in zip(*[iter(self.value)] * 3, strict=True):
                stack.enter_context(mock.patch.object(owner, name, instead(getattr(owner, name))))
            yield


TRANSACTIONS = (
    Flaw.FORGETS_WHAT_WAS_ABORTED,
    Flaw.FORGETS_MARKERS_THAT_WERE_REFUSED,
    Flaw.COMMITS_OFFSETS_OF_ABORTED,
)
RULES_OF_GROUPS = {
    Flaw.LOCKS_END_EARLY: Rule.TWO_HOLDERS,
    Flaw.FREES_WHAT_IS_ACCEPTED: Rule.DONE_AGAIN,
    Flaw.ARCHIVES_WHAT_IS_RELEASED: Rule.UNSETTLED,
    Flaw.COUNTS_NO_SECOND_DELIVERY: Rule.DELIVERY_COUNT,
    Flaw.GIVES_BEFORE_IT_IS_REVOKED: Rule.TWO_OWNERS,
    Flaw.GIVES_ALL_THE_SAME_PARTITIONS: Rule.TWO_OWNERS,
}
"""The rule that each of these breaks, without any fault."""


def hunt(
    flaw: Flaw,
    seeds_max: int = SEEDS_MAX,
    *,
    seconds: float = SECONDS,
    only_fault: str = "",
    rule: Rule | None = None,
) -> Outcome | None:
    """The outcome of the first seed that finds the flaw, among all faults or with only one of them.

    `rule`: one that has to be broken; None: any.
    """
    with flaw.built_in():
        for seed in range(1, seeds_max + 1):
            load = {"processors": flaw.processors, "members": flaw.members, "has_faults": flaw not in RULES_OF_GROUPS}
            outcome = Simulation(Plan(seed, seconds, **load, only_fault=only_fault)).run()
            broken = {proof.violation.rule for proof in outcome.proofs}
            if not outcome.is_good and (rule is None or rule in broken):
                return outcome
    return None


def main(names: list[str]) -> int:
    missed = 0
    for flaw in [Flaw[name] for name in names] or list(Flaw):
        found = hunt(flaw, seconds=CALM_SECONDS if flaw in RULES_OF_GROUPS else SECONDS)
        if found is None:
            missed += 1
            print(f"{flaw.name}: not found in {SEEDS_MAX} seeds", flush=True)
        else:
            words = str(found.proofs[0]) if found.proofs else found.problems[0].strip().splitlines()[-1]
            print(f"{flaw.name}: found with seed {found.seed}: {words.splitlines()[0][:150]}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
