"""Random conversations of share groups: after every step a coordinator that loads the log knows what the living one does."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.groupcoord.tests.conversation import GROUP
from ottla.groupcoord.tests.share_talk import ShareTalk
from ottla.wire.errors import ErrorCode
from ottla.wire.tests.effort import examples

members = st.sampled_from(["a", "b", "c"])
topics = st.sampled_from([("topic",), ("other",), ("topic", "other"), ("nowhere", "topic")])


class ShareWalk(RuleBasedStateMachine):
    """Members, administrators, time, topics, refusals and restarts in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.talk = ShareTalk(group_share_max_size=2)

    def _epoch(self, member: str) -> int:
        group = self.talk.shard._groups.get(GROUP)
        return 0 if group is None or member not in self.talk.group().members else self.talk.epoch_of(member)

    @rule(member=members, names=topics)
    def join(self, member: str, names: tuple[str, ...]) -> None:
        self.talk.beat(member, 0, *names)

    @rule(member=members)
    def beat(self, member: str) -> None:
        self.talk.beat(member, self._epoch(member))

    @rule(member=members)
    def leave(self, member: str) -> None:
        self.talk.beat(member, -1)

    @rule(milliseconds=st.sampled_from([1, 1000, 30_000, 45_000]))
    def wait(self, milliseconds: int) -> None:
        self.talk.advance(milliseconds)

    @rule(is_good=st.booleans())
    def answer(self, is_good: bool) -> None:
        """The share coordinator answers the last request, perhaps once more."""
        if self.talk.asked and hasattr(self.talk.asked[-1].topics[0].partitions[0], "state_epoch"):
            if is_good and not self.talk.refuse_appends:
                self.talk.confirm()
            else:
                self.talk.refuse()

    @rule(partition=st.integers(0, 2))
    def alter(self, partition: int) -> None:
        self.talk.alter(("topic", partition, 5))

    @rule()
    def delete_offsets(self) -> None:
        self.talk.delete_offsets("topic")

    @rule()
    def prepare_deletion(self) -> None:
        self.talk.prepare_deletion()

    @rule()
    def delete_group(self) -> None:
        self.talk.delete_group()

    @rule(count=st.integers(1, 4))
    def change_topic(self, count: int) -> None:
        self.talk.images.put("topic", count)

    @rule(is_refusing=st.booleans())
    def let_the_log_refuse(self, is_refusing: bool) -> None:
        self.talk.refuse_appends = ErrorCode.NOT_COORDINATOR if is_refusing else ErrorCode.NONE

    @rule()
    def restart(self) -> None:
        self.talk.refuse_appends = ErrorCode.NONE
        self.talk.restart()

    @invariant()
    def is_what_the_log_says(self) -> None:
        self.talk.assert_replay_is_equal()

    @invariant()
    def epochs_are_in_order(self) -> None:
        if GROUP not in self.talk.shard._groups:
            return
        group = self.talk.group()
        assert group.assignment_epoch <= group.group_epoch
        for member_id in group.members:
            assert group.position(member_id).epoch <= group.assignment_epoch
        assert group.positions.keys() <= group.members.keys() and group.targets.keys() <= group.members.keys()


TestShareWalk = ShareWalk.TestCase
TestShareWalk.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
