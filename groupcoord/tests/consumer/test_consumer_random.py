"""Members of both protocols do whatever comes to them; after every step the log must say what memory says.

Checked all the time: the state rebuilt from the log is the living one, no partition has two owners, epochs are in order,
and what the log refuses has not happened. In the end everybody heartbeats, and all partitions are shared out.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.groupcoord.consumer.group import ConsumerGroup
from ottla.groupcoord.tests.consumer.test_consumer_migration import MigratingConversation, words
from ottla.groupcoord.tests.consumer_conversation import INTERVAL_MS, all_partitions, snapshot
from ottla.groupcoord.tests.conversation import GROUP
from ottla.wire.errors import ErrorCode
from ottla.wire.tests.effort import examples

MEMBERS = st.sampled_from(["a", "b", "c", "d"])
TOPICS = st.lists(st.sampled_from(["topic", "other", "third"]), max_size=3, unique=True)
INSTANCES = st.sampled_from([None, None, "i", "j"])
PATTERNS = st.sampled_from(["", "topic|third", "t.*", "nothing", "("])
EPOCHS = st.sampled_from([0, 0, 0, 1, -1, -2])
REFUSED = ErrorCode.COORDINATOR_NOT_AVAILABLE


class ConsumerMachine(RuleBasedStateMachine):
    """See the module's docstring."""

    @initialize(holds_jobs=st.booleans())
    def begin(self, holds_jobs: bool) -> None:
        self.talk = MigratingConversation(group_consumer_max_size=4)
        self.talk.images.put("third", 3)
        self.talk.holds_jobs = holds_jobs
        self.was_refused: Any = None

    def group(self) -> ConsumerGroup | None:
        group = self.talk.shard._groups.get(GROUP)
        return group if isinstance(group, ConsumerGroup) else None

    # ------------------------------------------------------------------ what members do

    @rule(member=MEMBERS, topics=TOPICS, instance=INSTANCES, pattern=st.none() | PATTERNS)
    def come(self, member: str, topics: list[str], instance: str | None, pattern: str | None) -> None:
        details = {} if pattern is None else {"subscribed_topic_regex": pattern}
        self.talk.come(member, instance_id=instance, **({"subscribed_topic_names": topics} | details))

    @rule(
        member=MEMBERS, shift=EPOCHS, topics=st.none() | TOPICS, pattern=st.none() | PATTERNS, share=st.integers(0, 3)
    )
    def stay(self, member: str, shift: int, topics: list[str] | None, pattern: str | None, share: int) -> None:
        """Say that it has all or some of its partitions, or nothing about them."""
        group = self.group()
        known = None if group is None else group.members.get(member)
        owned = None
        if known is not None and share:
            owned = {name: set(sorted(each)[:: 4 - share]) for name, each in self.talk.owned(member).items()}
        epoch = max(shift, 1) if known is None else max(known.epoch + min(shift, 1), 1)
        instance = None if known is None else known.instance_id
        self.talk.heartbeat(
            member,
            epoch,
            instance_id=instance,
            subscribed_topic_names=topics,
            subscribed_topic_regex=pattern,
            owned=owned,
        )

    @rule(member=MEMBERS, epoch=st.sampled_from([-1, -2]), instance=INSTANCES)
    def go(self, member: str, epoch: int, instance: str | None) -> None:
        self.talk.go(member, epoch, instance_id=instance)

    @rule(instance=INSTANCES, topics=TOPICS)
    def join(self, instance: str | None, topics: list[str]) -> None:
        """A member of the classic protocol comes."""
        first = self.talk.join(instance=instance, protocols=words(*topics))
        if first.response is not None and first.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.talk.join(first.response.member_id, protocols=words(*topics))

    @rule(number=st.integers(0, 3), topics=TOPICS, syncs=st.booleans())
    def join_again(self, number: int, topics: list[str], syncs: bool) -> None:
        group = self.group()
        classic = [] if group is None else [each for each in group.members.values() if each.uses_classic_protocol]
        if len(classic) > number:
            member = classic[number]
            owned = self.talk.owned(member.member_id)
            joined = self.talk.join(
                member.member_id, instance=member.instance_id, protocols=words(*topics, owned=owned)
            )
            if syncs and joined.response is not None and not joined.error:
                self.talk.sync(joined, instance=member.instance_id)

    # ------------------------------------------------------------------ what happens to them

    @rule(milliseconds=st.sampled_from([1, INTERVAL_MS, 11_000, 31_000, 46_000]))
    def wait(self, milliseconds: int) -> None:
        self.talk.advance(milliseconds)

    @rule(topic=st.sampled_from(["topic", "other", "third"]), count=st.integers(0, 4))
    def change_topic(self, topic: str, count: int) -> None:
        known = self.talk.images.image(topic)
        if count == 0 and known is not None:
            self.talk.images.remove(topic)
        elif count and known is None:
            # A topic that is made anew has another id.
            self.talk.images.put(topic, count, topic_id=self.talk.images.version.to_bytes(16, "big"))
        elif count and known is not None and known.partition_count < count:
            self.talk.images.put(topic, count, topic_id=known.topic_id)

    @rule()
    def finish_jobs(self) -> None:
        self.talk.do_jobs()

    @rule()
    def restart(self) -> None:
        self.talk.jobs.clear()
        self.talk.restart()

    @precondition(lambda self: not self.talk.refuse_appends)
    @rule()
    def refuse(self) -> None:
        self.talk.refuse_appends = REFUSED
        self.was_refused = snapshot(self.talk)

    @precondition(lambda self: self.talk.refuse_appends)
    @rule()
    def accept(self) -> None:
        self.talk.refuse_appends = ErrorCode.NONE

    # ------------------------------------------------------------------ what must be true

    @invariant()
    def memory_is_what_the_log_says(self) -> None:
        if self.talk.refuse_appends:
            assert snapshot(self.talk) == self.was_refused, "a log that refuses changes nothing"
        other = MigratingConversation()
        other.images = self.talk.images
        other.log = list(self.talk.log)
        other.restart()
        assert snapshot(other) == snapshot(self.talk)

    @invariant()
    def owners_and_epochs_are_in_order(self) -> None:
        group = self.group()
        if group is None:
            return
        assert group.assignment_epoch <= group.group_epoch
        owned: list[tuple[bytes, int]] = []
        for member in group.members.values():
            assert member.epoch <= group.assignment_epoch
            for partitions in (member.progress.assigned, member.progress.revoking):
                owned += [(topic_id, each) for topic_id, epochs in partitions.items() for each in epochs]
        assert len(owned) == len(set(owned)), "a partition has two owners"
        shall = [
            (topic, each) for target in group.targets.values() for topic, found in target.items() for each in found
        ]
        assert len(shall) == len(set(shall)), "a partition has two targets"

    def teardown(self) -> None:
        """All members of the new protocol that are left share all that they read."""
        self.talk.refuse_appends = ErrorCode.NONE
        self.talk.holds_jobs = False
        self.talk.do_jobs()
        group = self.group()
        if group is None:
            return
        for member in list(group.members.values()):
            if member.uses_classic_protocol or member.epoch < 0:
                self.talk.leave((member.member_id, None))
        group = self.group()
        if group is None or group.is_empty:
            return
        self.talk.settle(rounds=1)
        # Patterns are looked at again.
        self.talk.advance(10_001)
        self.talk.settle(rounds=10)
        assert group.state_name == "Stable"
        read = set().union(*(each.topics | group.matched_by(each) for each in group.members.values()))
        images = [self.talk.images.image(each) for each in sorted(read)]
        everything = sorted((each.name, index) for each in images if each for index in range(each.partition_count))
        assert all_partitions(*(self.talk.owned(each) for each in group.members)) == everything


TestConsumerMachine = ConsumerMachine.TestCase
TestConsumerMachine.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None, report_multiple_bugs=False
)
