"""Happenings that a change of the metadata cache makes."""

from __future__ import annotations

from functools import partial

import pytest

from ottla.replication.cluster.metadata_cache import BrokerRegistration, MetadataCache, PartitionState, TopicState
from ottla.replication.cluster.metadata_changes import NOTED_PER_TOPIC, note_changes
from ottla.wire.happenings import Happenings


class Cache(MetadataCache):
    """A metadata cache of brokers 1 to 3, and what it notes."""

    __slots__ = ("happenings",)

    def __init__(self) -> None:
        super().__init__()
        self.happenings = Happenings(lambda: 1)
        self.on_replaced = partial(note_changes, self.happenings.note, self)
        for node_id in (1, 2, 3):
            self.put_broker(BrokerRegistration(node_id, {}))

    def put(self, *partitions: tuple[int, tuple[int, ...]], topic_id: bytes = b"1" * 16, epoch: int = 5) -> None:
        """Put a topic `t`, whose replicas are on brokers 1 to 3. `partitions`: leader and replicas in sync of each."""
        states = [PartitionState(leader, epoch, (1, 2, 3), isr) for leader, isr in partitions]
        self.put_topic(TopicState("t", topic_id, tuple(states)))

    def causes(self) -> list[str]:
        return [each.cause for each in self.happenings]


BOTH = (1, 2)


@pytest.mark.parametrize(
    ("before", "after", "gone", "cause"),
    [
        (
            (1, BOTH),
            (2, (2,)),
            1,
            "the leader of t-0 changed from broker 1 to 2 (leader epoch 5), because broker 1 is gone",
        ),
        (
            (1, BOTH),
            (2, (2,)),
            0,
            "the leader of t-0 changed from broker 1 to 2 (leader epoch 5), because broker 1 is in sync no more, or stops",
        ),
        (
            (2, BOTH),
            (1, BOTH),
            0,
            "the leader of t-0 changed from broker 2 to 1 (leader epoch 5), because that is the preferred leader",
        ),
        (
            (1, BOTH),
            (2, BOTH),
            0,
            "the leader of t-0 changed from broker 1 to 2 (leader epoch 5), by an election of the controller",
        ),
        (
            (4, (4, 1)),
            (1, (1,)),
            0,
            "the leader of t-0 changed from broker 4 to 1 (leader epoch 5), because broker 4 is gone",
        ),
        ((1, (1,)), (-1, (1,)), 1, "t-0 has no leader any more: none of its replicas in sync (1) is alive"),
        ((-1, (1,)), (1, (1,)), 0, "t-0 has a leader again: broker 1, in leader epoch 5"),
        (
            (1, (1, 2, 3)),
            (1, (1,)),
            2,
            (
                "the replicas of t-0 in sync changed from 1, 2, 3 to 1, because broker 2 is gone and broker 3 is behind for"
                " replica.lag.time.max.ms, or stopping"
            ),
        ),
        (
            (1, (1,)),
            (1, (1, 2, 3)),
            0,
            "the replicas of t-0 in sync changed from 1 to 1, 2, 3, because brokers 2, 3 are in sync again",
        ),
    ],
)
def test_a_change_of_leader_or_of_replicas_in_sync(
    before: tuple[int, tuple[int, ...]], after: tuple[int, tuple[int, ...]], gone: int, cause: str
) -> None:
    cache = Cache()
    cache.put(before)
    cache.put_brokers([each for each in cache.brokers.values() if each.node_id != gone], controller_id=1)
    cache.put(after)
    assert cache.causes() == [cause]


def test_a_leader_that_a_reassignment_removes() -> None:
    cache = Cache()
    cache.put_topic(TopicState("t", b"1" * 16, (PartitionState(1, 4, (1, 2), BOTH),)))
    cache.put_topic(TopicState("t", b"1" * 16, (PartitionState(2, 5, (2, 3), (2, 3)),)))
    assert cache.causes() == [
        (
            "the leader of t-0 changed from broker 1 to 2 (leader epoch 5), because a reassignment moved the replica of"
            " broker 1"
        )
    ]


def test_a_new_topic_and_the_same_state_are_nothing_to_note() -> None:
    cache = Cache()
    cache.put((1, BOTH))
    cache.put((1, BOTH), epoch=6)
    cache.put((1, BOTH), (2, BOTH))
    assert cache.causes() == []


def test_topics_that_are_deleted() -> None:
    cache = Cache()
    cache.put((1, BOTH))
    cache.put((2, BOTH), topic_id=b"2" * 16)
    cache.remove_topic("t")
    assert cache.causes() == ["topic 't' was deleted and created again", "topic 't' was deleted"]


def test_a_broker_that_led_very_many_partitions() -> None:
    cache = Cache()
    cache.put(*[(1, BOTH)] * 1_000)
    cache.put(*[(2, (2,))] * 1_000)
    causes = cache.causes()
    assert len(causes) == NOTED_PER_TOPIC + 1 and causes[-1] == "further partitions of topic 't' changed with these"
