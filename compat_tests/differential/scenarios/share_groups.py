"""ShareFetch and ShareAcknowledge: sessions, what members acquire, what becomes of it, and requests that make no sense.

The state of the groups is begun at the share coordinator, as the group coordinator would, so that they need no members.
"""

import base64
from collections.abc import Sequence
from typing import Any

from compat_tests.differential.asking import fill
from compat_tests.differential.conversation import COORDINATOR_IS_COMING, Talk, Topic, scenario

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import share_fetch
from ottla.wire.messages import share_group_state as initializing
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
SHARE = 2
RENEWAL_SINCE = 2
FINAL = -1
Said = tuple[int, int, int | Sequence[int]]


class Group:
    """A share group that begins with the first record of a topic, and a session for each of its members."""

    def __init__(self, talk: Talk, topic: Topic) -> None:
        self.talk = talk
        self.topic = topic
        self.id = talk.name("group")
        self.epochs: dict[str, int] = {}
        self._begin()

    def _begin(self) -> None:
        talk, topic_id = self.talk, self.topic.id
        key = f"{self.id}:{base64.urlsafe_b64encode(topic_id).decode().rstrip('=')}:0"
        find = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key])
        talk.until(find, lambda answer: answer.coordinators[0].error_code not in COORDINATOR_IS_COMING)
        begun = initializing.InitializeStatePartition(partition=0, state_epoch=0, start_offset=0)
        request = initializing.InitializeShareGroupStateRequest(
            group_id=self.id, topics=[initializing.InitializeStateData(topic_id=topic_id, partitions=[begun])]
        )
        talk.until(request, lambda answer: answer.results[0].partitions[0].error_code == ErrorCode.NONE)
        # A broker that loads the group's state answers nothing yet.
        talk.until(self.request("loader", 0), lambda answer: bool(answer.responses))
        talk.until(self.request("loader", FINAL, named=()), lambda answer: True)

    def request(
        self, member: str, epoch: int, *said: Said, named: Sequence[int] = (0,), **wishes: Any
    ) -> ShareFetchRequest:
        batches = [_batch(share_fetch.AcknowledgementBatch, each) for each in said]
        partitions = [
            share_fetch.FetchPartition(partition_index=index, acknowledgement_batches=batches if index == 0 else [])
            for index in named
        ]
        given = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500} | wishes
        return ShareFetchRequest(
            group_id=self.id,
            member_id=member,
            share_session_epoch=epoch,
            topics=[share_fetch.FetchTopic(topic_id=self.topic.id, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[],
            **given,
        )

    def fetch(self, member: str, *said: Said, label: str | None = None, **options: Any) -> Any:
        """The next fetch of a member's session."""
        epoch = self.epochs.get(member, 0)
        self.epochs[member] = epoch + 1
        return self.talk.ask(self.request(member, epoch, *said, **options), of=member, label=label)

    def say(self, member: str, *said: Said, label: str | None = None, epoch: int | None = None, **options: Any) -> Any:
        """Acknowledge, and nothing else."""
        if epoch is None:
            epoch = self.epochs.get(member, 0)
            self.epochs[member] = epoch + 1
        batches = [_batch(share_fetch.AcknowledgementBatch, each) for each in said]
        partition = share_fetch.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        request = ShareAcknowledgeRequest(
            group_id=self.id,
            member_id=member,
            share_session_epoch=epoch,
            topics=[share_fetch.AcknowledgeTopic(topic_id=self.topic.id, partitions=[partition])],
            **options,
        )
        return self.talk.ask(request, of=member, label=label)


def _batch(kind: Any, said: Said) -> Any:
    first, last, types = said
    listed = [types] if isinstance(types, int) else list(types)
    return kind(first_offset=first, last_offset=last, acknowledge_types=listed)


@scenario(ShareFetchRequest)
def members_share_the_records_of_a_topic(talk: Talk) -> None:
    topic = talk.topic()
    group = Group(talk, topic)
    fill(talk, topic, [1000, 1001, 1002])
    fill(talk, topic, [1003, 1004])
    group.fetch("a", max_records=1, label="whole batches, for a limit that is none")
    group.fetch("b")
    group.fetch("a", (0, 2, ACCEPT), label="nothing is left")
    fill(talk, topic, [1005])
    group.fetch("b", (3, 4, [ACCEPT, GAP]))
    group.fetch("b", (5, 5, REJECT), label="the last one is rejected")
    group.fetch("b")


@scenario(ShareFetchRequest)
def batches_of_records(talk: Talk) -> None:
    topic = talk.topic()
    group = Group(talk, topic)
    for count in (3, 3, 3, 3):
        fill(talk, topic, [1000] * count)
    group.fetch("a", batch_size=4, max_records=7)
    group.fetch("b", batch_size=1)


@scenario(ShareFetchRequest)
def records_are_delivered_again_and_again(talk: Talk) -> None:
    topic = talk.topic()
    group = Group(talk, topic)
    fill(talk, topic, [1000] * 8)
    for _ in range(14):
        answer = group.fetch("a")
        acquired = [each for top in answer.responses for part in top.partitions for each in part.acquired_records]
        if acquired:
            group.say("a", *((each.first_offset, each.last_offset, RELEASE) for each in acquired))
        else:
            group.say("a")


@scenario(ShareFetchRequest)
def exactly_so_many_records(talk: Talk) -> None:
    topic = talk.topic()
    group = Group(talk, topic)
    fill(talk, topic, [1000] * 5)
    fill(talk, topic, [1001] * 5)
    mode = {"share_acquire_mode": 1} if talk.version >= RENEWAL_SINCE else {}
    group.fetch("a", max_records=3, **mode)
    group.fetch("b", max_records=4, **mode)
    group.fetch("a", max_records=500, **mode)


@scenario(ShareFetchRequest)
def requests_of_nobody(talk: Talk) -> None:
    topic = talk.topic()
    group = Group(talk, topic)
    for member, epoch in (("a", 1), ("a", FINAL), ("a", -2), ("", 0), ("a" * 37, 0)):
        talk.ask(group.request(member, epoch), label=f"member of {len(member)} characters, epoch {epoch}")
    talk.ask(group.request("a", 0, (0, 0, ACCEPT)), label="acknowledges before it has anything")
    group.fetch("a")
    talk.ask(group.request("a", 0), of="a", label="again")
    talk.ask(group.request("a", 2), of="a", label="too late an epoch")
    talk.ask(group.request("a", 1, named=(0, 7)), of="a", label="a partition that does not exist")
    talk.ask(group.request("a", FINAL, named=()), of="a", label="the end")
    talk.ask(group.request("a", 2), of="a", label="after the end")
    group.topic = topic._replace(id=b"?" * 16)
    talk.ask(group.request("b", 0), label="a topic that does not exist")
    request = group.request("b", 0)
    request.group_id = None
    talk.ask(request, label="no group")


@scenario(ShareAcknowledgeRequest)
def acknowledgements_that_are_refused(talk: Talk) -> None:
    topic = talk.topic()
    group = Group(talk, topic)
    fill(talk, topic, [1000] * 6)
    group.say("a", (0, 0, ACCEPT), epoch=0, label="begins no session")
    group.say("a", (0, 0, ACCEPT), epoch=1, label="goes on with no session")
    group.fetch("a")
    group.fetch("b")
    group.say("a", (0, 0, ACCEPT), epoch=5, label="another epoch")
    group.say("b", (0, 0, ACCEPT), label="of records that another member holds")
    for said in (
        [(2, 1, ACCEPT)],
        [(3, 3, ACCEPT), (0, 1, ACCEPT)],
        [(0, 1, ACCEPT), (1, 2, ACCEPT)],
        [(0, 0, [])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 0, 5)],
        [(0, 0, -1)],
        [(0, 0, RENEW)],
        [(4, 6, ACCEPT)],
        [(6, 6, ACCEPT)],
        [],
    ):
        group.say("a", *said, label=f"{said}")
    group.say("a", (0, 1, ACCEPT), (2, 3, RELEASE))
    group.say("a", (0, 1, ACCEPT), label="for a second time")
    group.say("a", (2, 3, ACCEPT), label="of what it has given back")
    group.say("a", (4, 5, REJECT), epoch=FINAL, label="the last ones")
    group.fetch("b")


@scenario(ShareAcknowledgeRequest)
def partitions_that_nobody_fetches_from(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    group = Group(talk, topic)
    group.fetch("a")
    batch = _batch(share_fetch.AcknowledgementBatch, (0, 0, ACCEPT))
    for topic_id, index in ((topic.id, 1), (topic.id, 2), (b"?" * 16, 0)):
        partition = share_fetch.AcknowledgePartition(partition_index=index, acknowledgement_batches=[batch])
        request = ShareAcknowledgeRequest(
            group_id=group.id,
            member_id="a",
            share_session_epoch=group.epochs["a"],
            topics=[share_fetch.AcknowledgeTopic(topic_id=topic_id, partitions=[partition])],
        )
        group.epochs["a"] += 1
        talk.ask(request, of="a", label=f"partition {index} of {'a topic' if topic_id == topic.id else 'none'}")


@scenario(ShareAcknowledgeRequest)
def locks_are_renewed(talk: Talk) -> None:
    topic = talk.topic()
    group = Group(talk, topic)
    fill(talk, topic, [1000] * 4)
    group.fetch("a")
    flag = {"is_renew_ack": True} if talk.version >= RENEWAL_SINCE else {}
    group.say("a", (0, 1, RENEW), **flag)
    group.say("a", (0, 3, [RENEW, ACCEPT, RELEASE, RENEW]), **flag)
    nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0}
    talk.ask(group.request("a", group.epochs["a"], (3, 3, RENEW), is_renew_ack=True), of="a", label="asks for records")
    group.fetch("a", (3, 3, RENEW), is_renew_ack=True, **nothing)
