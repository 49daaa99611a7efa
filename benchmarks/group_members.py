"""Members of consumer groups of KIP-848, many of them in one loop: each with a connection of its own, as clients have it.

A member says at once what it has given up or taken over, as clients do, and otherwise only that it is there, once in an
interval. It reads no records. One heartbeat costs this process some 60 us.
"""

import heapq
import itertools
import select
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Self

from benchmarks.brokers import Broker, Failed
from benchmarks.wire_client import Client

from ottla.wire.messages.consumer_group import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

HEARTBEAT_VERSION = 1
LEAVE_EPOCH = -1
REBALANCE_TIMEOUT_MS = 300_000
LOOK_S = 0.02
Partition = tuple[bytes, int]


class Member:
    """One member: what it has, and what it has to say next."""

    def __init__(self, broker: Broker, group: str, topics: Sequence[str]) -> None:
        self.client = Client(broker.port)
        self.group, self.member_id, self.epoch = group, str(uuid.uuid4()), 0
        self.owned: frozenset[Partition] = frozenset()
        self.has_news = True
        """Whether the broker has not heard yet what it has."""

        self._topics = list(topics)

    def say(self) -> None:
        """Send a heartbeat: with everything at first, with the partitions after a change, with nothing else in between."""
        is_joining = self.epoch == 0
        self.client.send(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=self.epoch,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_joining else -1,
                subscribed_topic_names=self._topics if is_joining else None,
                topic_partitions=shown(self.owned) if self.has_news else None,
            ),
            HEARTBEAT_VERSION,
        )

    def hear(self) -> None:
        """Take the answer; what is taken away is given up at once."""
        answer: ConsumerGroupHeartbeatResponse = self.client.receive()
        if answer is None or answer.error_code:
            code = "closed" if answer is None else f"{answer.error_code} {answer.error_message}"
            raise Failed(f"a heartbeat was refused: {code}")
        self.epoch, self.has_news = answer.member_epoch, False
        if answer.assignment is not None and (assigned := partitions_of(answer.assignment)) != self.owned:
            self.owned, self.has_news = assigned, True

    def heartbeat(self) -> None:
        self.say()
        self.hear()

    def leave(self) -> None:
        """And close."""
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=LEAVE_EPOCH)
        self.client.ask(request, HEARTBEAT_VERSION)
        self.client.close()


def shown(partitions: frozenset[Partition]) -> list[TopicPartitions]:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(index)
    return [TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic.items()]


def partitions_of(assignment: Assignment) -> frozenset[Partition]:
    return frozenset((each.topic_id, index) for each in assignment.topic_partitions for index in each.partitions)


class Members:
    """Plays members. They all begin at once; `pace` decides what comes then."""

    def __init__(self, members: Sequence[Member], interval_s: float) -> None:
        self.members = members
        self._answers = select.epoll()
        self._by_socket = {member.client.socket.fileno(): member for member in members}
        for number in self._by_socket:
            self._answers.register(number, select.EPOLLIN)
        self._waiting: set[Member] = set()
        """Those whose heartbeat is not answered yet."""

        self._order = itertools.count()
        self._due = [(0.0, next(self._order), member) for member in members]
        self._interval_s = interval_s

    def pace(self, interval_s: float) -> None:
        """From now on each sends a heartbeat so often, and their turns are spread evenly."""
        self._interval_s, began = interval_s, time.monotonic()
        step = interval_s / len(self._due)
        self._due = [
            (began + index * step, next(self._order), member) for index, (_, _, member) in enumerate(self._due)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        self._answers.close()
        for member in self.members:
            if failure is not None:
                member.client.close()
                continue
            if member in self._waiting:
                member.client.receive()
            member.leave()

    def play(self, seconds: float, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Until that is enough, and no longer than so. `is_enough` is asked every 20 ms, because it may be dear."""
        end, look = time.monotonic() + seconds, 0.0
        while (now := time.monotonic()) < end:
            while self._due and self._due[0][0] <= now:
                self._say(heapq.heappop(self._due)[2])
            patience = min(self._due[0][0] if self._due else end, end, now + LOOK_S) - now
            for number, _ in self._answers.poll(max(patience, 0.0)):
                self._hear(self._by_socket[number])
            if now >= look:
                look = now + LOOK_S
                if is_enough():
                    return True
        return False

    def _say(self, member: Member) -> None:
        member.say()
        self._waiting.add(member)

    def _hear(self, member: Member) -> None:
        member.hear()
        self._waiting.discard(member)
        if member.has_news:
            self._say(member)
        else:
            heapq.heappush(self._due, (time.monotonic() + self._interval_s, next(self._order), member))

    def are_settled(self, partitions: int) -> bool:
        """Whether each of so many partitions has one owner, every member has some, and the broker knows."""
        if any(member.has_news or not member.owned for member in self.members):
            return False
        if len({member.epoch for member in self.members}) > 1:
            return False
        held = [partition for member in self.members for partition in member.owned]
        return len(held) == len(set(held)) == partitions
