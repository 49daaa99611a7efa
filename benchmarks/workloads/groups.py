"""A new member of a new group, from the beginning to its first record.

Once with librdkafka, from making the client: its own timers are most of that, so that two brokers that answer at once are
alike. And once as bare requests, one after the other: finding the coordinator, joining twice (the first time for a member
id), syncing, looking up the offset, fetching. Here it is the broker that takes the time.
"""

import itertools
import time
from collections.abc import Callable, Generator, Mapping

from benchmarks.brokers import Broker, Failed
from benchmarks.clients import load, new_topic
from benchmarks.limits import Limits
from benchmarks.rows import Metric, Row, at_most
from benchmarks.session import Session
from benchmarks.wire_client import FETCH_VERSION, Client, batch_of, fetch_frame, parse, produce_frame

from ottla.wire.messages.classic_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic

ROUNDS = 9
WARM_UP_JOINS = 20
NOT_SLOWER = at_most(1.0)
PROTOCOL, PROTOCOL_TYPE = "range", "consumer"

_groups = itertools.count()


def rows(session: Session) -> Generator[Row]:
    brokers = session.main()
    for broker in brokers:
        for _ in range(WARM_UP_JOINS):  # the first one makes __consumer_offsets
            join_by_requests(broker)
        join_with_librdkafka(broker)
    rounds = 3 if session.quick else ROUNDS
    metric, limit = Metric("ms", "ms", NOT_SLOWER, digits=1), Limits(session).round_trip()
    yield Row("group join to first record, bare requests", brokers, join_by_requests, [metric], rounds, limit)
    yield Row("group join to first record, librdkafka", brokers, join_with_librdkafka, [metric], rounds, limit)


def join_with_librdkafka(broker: Broker) -> Mapping[str, float]:
    with new_topic(broker) as topic:
        load(broker, "produce", topic, 1, 100, 1024)
        return {"ms": load(broker, "join", topic, auto_offset_reset="earliest")["seconds"] * 1000}


def join_by_requests(broker: Broker) -> Mapping[str, float]:
    with new_topic(broker) as topic:
        with Client(broker.port) as client:
            client.produce(produce_frame(topic, batch_of(1024)))
            topic_id = client.topic_id(topic)
        group = f"bench-group-{next(_groups)}"
        began = time.perf_counter()
        with Client(broker.port) as client:
            find_coordinator(client, group)
            member, generation = join(client, group)
            sync(client, group, member, generation)
            committed_offset(client, group, topic)
            first_record(client, topic_id)
            seconds = time.perf_counter() - began
            leave(client, group, member)
    return {"ms": seconds * 1000}


def find_coordinator(client: Client, group: str) -> None:
    answer = client.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
    must_be(answer.coordinators[0].error_code == 0, "no coordinator")


def join(client: Client, group: str) -> tuple[str, int]:
    """The member's id and the generation it is the leader of."""
    member = ""
    for _ in range(2):
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=300_000,
            member_id=member,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=bytes(8))],
        )
        answer = client.ask(request, 9)
        member = answer.member_id
    must_be(answer.error_code == 0 and answer.leader == member, f"not joined: error {answer.error_code}")
    return member, answer.generation_id


def sync(client: Client, group: str, member: str, generation: int) -> None:
    request = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=PROTOCOL,
        assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"everything")],
    )
    answer = client.ask(request, 5)
    must_be(answer.assignment == b"everything", f"not synced: error {answer.error_code}")


def committed_offset(client: Client, group: str, topic: str) -> None:
    request = OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])])
    partition = client.ask(request, 7).topics[0].partitions[0]
    must_be((partition.error_code, partition.committed_offset) == (0, -1), "an offset where there is none")


def first_record(client: Client, topic_id: bytes, index: int = 0) -> None:
    answer = parse(client.ask_bytes(fetch_frame(topic_id, 1 << 20, index)), FetchResponse, FETCH_VERSION)
    must_be(len(answer.responses[0].partitions[0].records) > 0, "no record")


def leave(client: Client, group: str, member: str) -> None:
    request = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)])
    must_be(client.ask(request, 5).error_code == 0, "not left")


def until_served(play: Callable[[], object], patience_s: float = 20.0) -> None:
    """Play it again while it fails: the first groups of a broker find no coordinator, or one that is about to begin."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            play()
            return
        except Failed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def must_be(right: bool, otherwise: str) -> None:
    if not right:
        raise Failed(otherwise)
