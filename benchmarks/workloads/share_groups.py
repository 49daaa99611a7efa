"""Share groups (KIP-932): members take a topic's records and accept them, one alone and ten together.

The records are 100 B in batches of 16 KiB, as Java's producer makes them. The members of `share_members.py` cost next to
nothing. The processor time of Java's own KafkaShareConsumer is with joining, its rate from the first record on.
"""

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator, Mapping

from benchmarks import machine
from benchmarks.brokers import Broker
from benchmarks.clients import load, new_topic, share_consumers
from benchmarks.limits import Limits
from benchmarks.rows import Metric, Row, at_least, at_most
from benchmarks.session import Session
from benchmarks.share_members import Member, Members
from benchmarks.wire_client import Client
from benchmarks.workloads.groups import find_coordinator, until_served

from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)

PARTITIONS = 4
RECORD_BYTES, BATCH_BYTES = 100, 16_384
RECORDS, JAVA_RECORDS = 1_000_000, 500_000
METRICS = (
    Metric("per_s", "/s", at_least(1.0), more_is_better=True, digits=0),
    Metric("cpu_us", "us", at_most(0.8), label="broker CPU of each record"),
)
GROUP_RESOURCE, SET = 32, 0

_groups = itertools.count()


def rows(session: Session) -> Generator[Row]:
    brokers, limit = session.main(), Limits(session).fetch(65_536)
    for broker in brokers:  # the first one makes __share_group_state
        until_served(lambda broker=broker: shared(1, RECORDS // 5)(broker))
    what = f"records of 100 B, {PARTITIONS} partitions"
    for members in (1, 10):
        run = shared(members, int(RECORDS * session.share))
        name = f"share group, {members} member{'s' * (members > 1)}, {what}"
        beside = (Metric("client_cpu_us", "us", label="client CPU"),)
        yield Row(name, brokers, run, METRICS, session.rounds, limit, beside)
    for consumers in (1, 10):
        run = shared_by_java(consumers, int(JAVA_RECORDS * session.share))
        name = f"share group, {consumers} KafkaShareConsumer{'s' * (consumers > 1)}, {what}"
        yield Row(name, brokers, run, METRICS, session.rounds, limit)


def shared(count: int, records: int) -> Callable[[Broker], Mapping[str, float]]:
    def run(broker: Broker) -> Mapping[str, float]:
        with shared_topic(broker, records) as (group, topic):
            with Client(broker.port) as client:
                topic_id = client.topic_id(topic)
            with Members([Member(broker, group, topic, topic_id) for _ in range(count)]) as played:
                played.join(lambda: is_shared(played.members))
                machine.wait_until_quiet(*broker.pids)
                before, own = broker.cpu_seconds(), machine.own_cpu_seconds()
                seconds = played.take(records)
                used, own = broker.cpu_seconds() - before, machine.own_cpu_seconds() - own
            played.check(records)
        return {"per_s": records / seconds, "cpu_us": used / records * 1e6, "client_cpu_us": own / records * 1e6}

    return run


def is_shared(members: list[Member]) -> bool:
    """Whether everybody has heard of the same assignment, and it has all partitions."""
    assigned = {index for member in members for index in member.assigned}
    return (
        len({member.epoch for member in members}) == 1
        and all(member.assigned for member in members)
        and len(assigned) == PARTITIONS
    )


def shared_by_java(consumers: int, records: int) -> Callable[[Broker], Mapping[str, float]]:
    def run(broker: Broker) -> Mapping[str, float]:
        with shared_topic(broker, records) as (group, topic):
            machine.wait_until_quiet(*broker.pids)
            before = broker.cpu_seconds()
            result = share_consumers(broker, topic, group, consumers, records)
            used = broker.cpu_seconds() - before
        return {"per_s": result["records"] / result["seconds"], "cpu_us": used / result["records"] * 1e6}

    return run


@contextlib.contextmanager
def shared_topic(broker: Broker, records: int) -> Iterator[tuple[str, str]]:
    """A group that will read a topic from its beginning, and the topic with its records."""
    group = f"bench-share-{next(_groups)}"
    with new_topic(broker, PARTITIONS) as topic:
        options = {"linger_ms": 5, "batch_size": BATCH_BYTES, "acks": "all"}
        load(broker, "produce", topic, 1, records, RECORD_BYTES, **options)
        with Client(broker.admin_port) as client:
            begin_at_the_beginning(client, group)
            find_coordinator(client, group)
        yield group, topic


def begin_at_the_beginning(client: Client, group: str) -> None:
    setting = IncrementalConfig(name="share.auto.offset.reset", config_operation=SET, value="earliest")
    resource = IncrementalConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[setting])
    answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    if code := answer.responses[0].error_code:
        raise RuntimeError(f"the group's setting was refused: {code} {answer.responses[0].error_message}")
