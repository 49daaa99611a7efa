"""Consumer groups of KIP-848: joining, what heartbeats cost, and how fast a large group is shared out.

Joining is asked for by bare requests, one after the other, because a client's own timers are longer than what the broker does:
a member of a new group, and one that takes a partition over from the member of an existing group. That one answers at once,
and has been there for longer than the least time between two assignments. With librdkafka the timers are in it.

Heartbeats come from members with Kafka's own interval, ten in a group, each with a connection of its own. In the large group
all members begin at once, and ask every half second, because with the interval of 5 s nothing but that would be measured. It is
shared out when each partition has one owner, and the broker knows.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Generator, Iterator, Mapping

from benchmarks import machine
from benchmarks.brokers import Broker, Failed
from benchmarks.clients import load, new_topic, wait_for_leaders
from benchmarks.group_members import Member, Members
from benchmarks.limits import Limits
from benchmarks.rows import Metric, Row, at_most, within
from benchmarks.session import Session
from benchmarks.wire_client import Client, batch_of, produce_frame
from benchmarks.workloads.groups import find_coordinator, first_record, must_be, until_served

from ottla.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

ROUNDS = 5
WARM_UP_JOINS = 10
NOT_SLOWER = at_most(1.0)
JOIN_WITHIN = within(50, "ms")
ASSIGNMENT_INTERVAL_S = 1.0
INTERVAL_S = 5.0
"""Between two heartbeats, by default."""

HASTY_S = 0.5

_groups = itertools.count()


def rows(session: Session) -> Generator[Row]:
    brokers, rounds = session.main(), 2 if session.quick else ROUNDS
    for broker in brokers:
        for _ in range(WARM_UP_JOINS):
            until_served(lambda broker=broker: join_new_group(broker))
    limit = Limits(session).round_trip()
    metrics = (
        Metric("ms", "ms", JOIN_WITHIN, digits=1),
        Metric("ms", "ms", NOT_SLOWER, digits=1, label="beside Kafka's"),
    )
    yield Row(
        "KIP-848: new member to first record, new group, bare requests", brokers, join_new_group, metrics, rounds, limit
    )
    name = "KIP-848: new member to first record, existing group, bare requests"
    yield Row(name, brokers, join_existing_group, metrics, rounds, limit)
    name = "KIP-848: new member to first record, new group, librdkafka"
    yield Row(name, brokers, join_with_librdkafka, metrics[1:], rounds, limit)
    yield from heartbeat_rows(session, brokers)
    yield from large_group_rows(session, brokers)


def heartbeat_rows(session: Session, brokers: list[Broker]) -> Generator[Row]:
    members, groups, seconds = (200, 20, 5.0) if session.quick else (1000, 100, 20.0)
    heartbeats = (
        Metric("%", "%", within(20, "%"), label="broker CPU of one processor"),
        Metric("%", "%", at_most(0.5), label="broker CPU beside Kafka's"),
    )
    name = f"KIP-848: {members:,} members of {groups} groups heartbeat every {INTERVAL_S:.0f} s"
    yield Row(name, brokers, heartbeat(members, groups, seconds), heartbeats, 1 if session.quick else 2)


def large_group_rows(session: Session, brokers: list[Broker]) -> Generator[Row]:
    members, topics, each = (100, 10, 100) if session.quick else (500, 50, 100)
    large = (
        Metric("s", "s", within(5, "s")),
        Metric("s", "s", NOT_SLOWER, label="beside Kafka's"),
        Metric("cpu_s", "s", label="broker CPU"),
    )
    name = f"KIP-848: {members} members share {topics * each:,} partitions out"
    yield Row(name, brokers, share_out(members, topics, each), large, 1 if session.quick else 2)


# --- joining ----------------------------------------------------------------------------------------------------------


def join_with_librdkafka(broker: Broker) -> Mapping[str, float]:
    with new_topic(broker) as topic:
        load(broker, "produce", topic, 1, 100, 1024)
        joined = load(broker, "join", topic, group_protocol="consumer", auto_offset_reset="earliest")
        return {"ms": joined["seconds"] * 1000}


def join_new_group(broker: Broker) -> Mapping[str, float]:
    with filled_topic(broker) as (topic, topic_id):
        seconds, member = join(broker, f"bench-consumers-{next(_groups)}", topic, topic_id, lambda: None)
        member.leave()
    return {"ms": seconds * 1000}


def join_existing_group(broker: Broker) -> Mapping[str, float]:
    group = f"bench-consumers-{next(_groups)}"
    with filled_topic(broker) as (topic, topic_id):
        there = Member(broker, group, [topic])
        for _ in range(3):
            there.heartbeat()
        must_be(len(there.owned) == 2, f"{len(there.owned)} partitions of 2 for a member that is alone")
        time.sleep(ASSIGNMENT_INTERVAL_S + 0.1)
        seconds, member = join(broker, group, topic, topic_id, there.heartbeat)
        must_be(len(there.owned) == len(member.owned) == 1, "the partitions are not shared")
        for each in (member, there):
            each.leave()
    return {"ms": seconds * 1000}


@contextlib.contextmanager
def filled_topic(broker: Broker) -> Iterator[tuple[str, bytes]]:
    """Two partitions with a record in each: the topic's name and id."""
    with new_topic(broker, 2) as topic, Client(broker.port) as client:
        for index in range(2):
            client.produce(produce_frame(topic, batch_of(1024), index=index))
        yield topic, client.topic_id(topic)


def join(
    broker: Broker, group: str, topic: str, topic_id: bytes, let_others_answer: Callable[[], None]
) -> tuple[float, Member]:
    """Seconds from the first connection to the first record of a partition that is the new member's."""
    began = time.perf_counter()
    with Client(broker.port) as client:
        find_coordinator(client, group)
        member = Member(broker, group, [topic])
        deadline = began + 10
        member.heartbeat()
        while not member.owned:
            must_be(time.perf_counter() < deadline, "nothing is assigned within 10 s")
            let_others_answer()
            member.heartbeat()
        index = min(index for _, index in member.owned)
        look_up_offset(client, member, topic_id, index)
        first_record(client, topic_id, index)
    return time.perf_counter() - began, member


def look_up_offset(client: Client, member: Member, topic_id: bytes, index: int) -> None:
    asked = OffsetFetchRequestGroup(
        group_id=member.group,
        member_id=member.member_id,
        member_epoch=member.epoch,
        topics=[OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[index])],
    )
    found = client.ask(OffsetFetchRequest(groups=[asked], require_stable=True), 10).groups[0]
    must_be(found.error_code == 0, f"no offsets: error {found.error_code}")
    partition = found.topics[0].partitions[0]
    must_be((partition.error_code, partition.committed_offset) == (0, -1), "an offset where there is none")


# --- many members -----------------------------------------------------------------------------------------------------


def heartbeat(count: int, groups: int, seconds: float) -> Callable[[Broker], Mapping[str, float]]:
    def run(broker: Broker) -> Mapping[str, float]:
        each = count // groups
        prefix = f"bench-consumers-{next(_groups)}"
        with new_topic(broker, each) as topic:
            members = [Member(broker, f"{prefix}-{index % groups}", [topic]) for index in range(count)]
            with Members(members, HASTY_S) as played:
                settled = played.play(60, lambda: all(len(one.owned) == 1 and not one.has_news for one in members))
                must_be(settled, "the groups are not settled within 60 s")
                played.pace(INTERVAL_S)
                played.play(1.0)
                before, began = broker.cpu_seconds(), time.monotonic()
                played.play(seconds)
                used, passed = broker.cpu_seconds() - before, time.monotonic() - began
        return {"%": used / passed * 100}

    return run


def share_out(count: int, topics: int, each: int) -> Callable[[Broker], Mapping[str, float]]:
    def run(broker: Broker) -> Mapping[str, float]:
        with many_topics(broker, topics, each) as names:
            machine.wait_until_quiet(*broker.pids)
            group = f"bench-consumers-{next(_groups)}"
            members = [Member(broker, group, names) for _ in range(count)]
            before, began = broker.cpu_seconds(), time.perf_counter()
            with Members(members, HASTY_S) as played:
                if not played.play(60, lambda: played.are_settled(topics * each)):
                    raise Failed("not shared out within 60 s")
                seconds, used = time.perf_counter() - began, broker.cpu_seconds() - before
        return {"s": seconds, "cpu_s": used}

    return run


@contextlib.contextmanager
def many_topics(broker: Broker, topics: int, each: int) -> Iterator[list[str]]:
    names = [f"bench-many-{next(_groups)}-{index:03}" for index in range(topics)]
    try:
        with Client(broker.admin_port) as client:
            client.create_topics(names, each, broker.replication_factor)
        for name in names:
            wait_for_leaders(broker, name, each)
        yield names
    finally:
        with contextlib.suppress(OSError, RuntimeError), Client(broker.admin_port) as client:
            for name in names:
                client.delete_topic(name)
