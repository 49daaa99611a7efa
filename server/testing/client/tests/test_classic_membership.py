"""Classic groups of the small client: ranges, bytes of other members, and a rebalance between real sockets."""

import contextlib
from collections.abc import AsyncIterator

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.cli.client.assignment import range_assignment
from ottla.server.cli.client.cluster import by_topic
from ottla.server.testing.client.classic_membership import decode_assignment, encode_assignment
from ottla.server.testing.client.client import Client, connect
from ottla.server.testing.kafka import Kafka
from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation
from ottla.wire.messages.classic_group import JoinGroupRequest, JoinGroupRequestProtocol

topics = st.text(st.characters(codec="utf-8"), max_size=5)


def shared_out(subscriptions: dict[str, list[str]], counts: dict[str, int]) -> dict[str, dict[str, list[int]]]:
    return {member: by_topic(each) for member, each in range_assignment(subscriptions, counts).items()}


def test_ranges_are_those_of_kafka() -> None:
    subscriptions = {"b": ["orders", "clicks"], "a": ["orders"], "c": ["orders", "gone"]}
    assert shared_out(subscriptions, {"orders": 7, "clicks": 2}) == {
        "a": {"orders": [0, 1, 2]},
        "b": {"orders": [3, 4], "clicks": [0, 1]},
        "c": {"orders": [5, 6]},
    }
    assert shared_out({"a": ["orders"], "b": ["orders"]}, {"orders": 1}) == {"a": {"orders": [0]}, "b": {}}
    assert shared_out({}, {}) == {}


@given(st.dictionaries(topics, st.lists(st.integers(0, 1 << 30), unique=True, min_size=1, max_size=5), max_size=5))
def test_assignments_are_read_as_they_were_written(assignment: dict[str, list[int]]) -> None:
    places = {(topic, each) for topic, partitions in assignment.items() for each in partitions}
    assert decode_assignment(encode_assignment(assignment)) == places


@given(st.binary(max_size=60))
def test_other_bytes_are_an_assignment_or_a_violation(data: bytes) -> None:
    try:
        assert isinstance(decode_assignment(data), set)
    except ProtocolViolation:
        assert data


@contextlib.asynccontextmanager
async def _asking(client: Client, join: JoinGroupRequest) -> AsyncIterator[None]:
    """Join a group with a first request for a member id, and wait for the rebalance meanwhile."""
    join.member_id = (await client.ask_coordinator("billing", join, at_most=5)).member_id
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: client.ask_coordinator("billing", join, at_most=5))
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()


async def test_two_members_share_partitions_and_one_takes_over() -> None:
    with Kafka() as kafka:
        kafka.topic("orders", partitions=4)
        async with connect(kafka.bootstrap) as client:
            options = {"group": "billing", "group_protocol": "classic"}
            first = client.consumer("orders", **options)
            while len(first.assignment) < 4:
                await first.poll(0.05)
            second = client.consumer("orders", **options)
            while len(first.assignment) != 2 or len(second.assignment) != 2:
                await first.poll(0.05)
                await second.poll(0.05)
            assert sorted(first.assignment + second.assignment) == [("orders", each) for each in range(4)]
            assert kafka.group("billing").state == "Stable"
            await first.commit({("orders", 0): 0})
            await first.close()
            while len(second.assignment) < 4:
                await second.poll(0.05)
            await second.close()
        assert kafka.group("billing").members == []


async def test_offsets_of_a_member_that_was_removed_are_refused_in_a_transaction() -> None:
    with Kafka() as kafka:
        kafka.topic("orders")
        async with connect(kafka.bootstrap) as client:
            for protocol in ("classic", "consumer"):
                async with client.consumer("orders", group=protocol, group_protocol=protocol) as consumer:
                    while not consumer.assignment:
                        await consumer.poll(0.05)
                    producer = client.producer(transactional_id=protocol)
                    async with producer.transaction():
                        await producer.send_offsets(consumer, {("orders", 0): 7})
                    (member,) = kafka.group(protocol).members
                    kafka.group(protocol).evict(member)
                    with pytest.raises(KafkaError) as refusal:
                        async with producer.transaction():
                            await producer.send_offsets(consumer, {("orders", 0): 8})
                    assert refusal.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
                    assert await client.committed(protocol, "orders") == 7
            async with client.consumer("orders") as loner:
                await producer.begin()
                with pytest.raises(ValueError, match="is in no group"):
                    await producer.send_offsets(loner, {("orders", 0): 9})


async def test_a_subscription_that_cannot_be_read_is_told_to_the_leader() -> None:
    """Another member, such as one in another language, sends what it likes."""
    with Kafka() as kafka:
        kafka.topic("orders")
        async with connect(kafka.bootstrap) as client, connect(kafka.bootstrap) as stranger:
            consumer = client.consumer("orders", group="billing", group_protocol="classic")
            while not consumer.assignment:
                await consumer.poll(0.05)
            join = JoinGroupRequest(
                group_id="billing",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id="",
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0")],
            )
            async with _asking(stranger, join):
                with pytest.raises(ProtocolViolation, match="not a consumer subscription"):
                    while True:
                        await consumer.poll(0.05)
            await consumer.close()


@pytest.mark.parametrize("version", [0, 3])
async def test_transactions_go_one_of_two_ways(version: int) -> None:
    with Kafka() as kafka:
        async with connect(kafka.bootstrap) as client:
            with pytest.raises(ValueError, match="transaction_version is 1 or 2"):
                client.producer(transactional_id="x", transaction_version=version)
