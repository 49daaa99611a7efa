"""`ottla groups`, with groups of members that confluent-kafka makes."""

import contextlib

import pytest
from compat_tests.support.brokers import wait_until
from confluent_kafka import Consumer, Producer, TopicPartition


@pytest.fixture
def topic(created, servers):
    """Two partitions with five records each, a minute apart."""
    name = created(2)
    producer = Producer({"bootstrap.servers": servers})
    for index in range(10):
        producer.produce(name, b"x", partition=index % 2, timestamp=1_700_000_000_000 + index // 2 * 60_000)
    assert producer.flush(60) == 0
    return name


@contextlib.contextmanager
def member(servers, group, topic, protocol):
    """A member that has read the topic, and committed three records of each partition."""
    settings = {"bootstrap.servers": servers, "group.id": group, "client.id": "reader", "enable.auto.commit": False}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest", "group.protocol": protocol})
    consumer.subscribe([topic])
    seen = []
    wait_until(lambda: len(seen) == 10 or (seen.extend(consumer.consume(10, 1)) and len(seen) == 10), "all is read", 60)
    consumer.commit(offsets=[TopicPartition(topic, number, 3) for number in (0, 1)], asynchronous=False)
    try:
        yield
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_groups_life(ottla, topic, servers, unique, protocol):
    group = unique("group")
    with member(servers, group, topic, protocol):
        [described] = ottla("groups", "describe", group, "--json").json
        [only] = described["members"]
        assert (described["kind"].lower(), described["state"], described["lag"]) == (protocol, "Stable", 4)
        assert (only["client_id"], only["partitions"]) == ("reader", 2)
        offset = {"topic": topic, "committed": 3, "end": 5, "lag": 2, "member": only["member"]}
        assert described["offsets"] == [offset | {"partition": number} for number in (0, 1)]
        [listed] = [each for each in ottla("groups", "--json").json if each["group"] == group]
        assert (listed["kind"].lower(), listed["state"], listed["protocol"]) == (protocol, "Stable", "consumer")
        shown = ottla("groups", "describe", group).lines
        assert any(line.split()[:5] == [topic, "1", "3", "5", "2"] for line in shown)
        refused = ottla("groups", "reset", group, "--topic", topic, "--to-earliest", "--execute", status=1).err
        assert f"group {group} has members" in refused
    wait_until(lambda: ottla("groups", "describe", group, "--json").json[0]["state"] == "Empty", "it has left", 60)
    for option, wanted in (
        (("--to-earliest",), 0),
        (("--to-latest",), 5),
        (("--to-offset", "2"), 2),
        (("--to-offset", "99"), 5),
        (("--to-datetime", "2023-11-14T22:15:00"), 2),
        (("--to-datetime", "2023-11-15T00:15:00.500+02:00"), 2),
        (("--to-datetime", "2099-01-01T00:00:00"), 5),
    ):
        before = committed(ottla, group)
        dry = ottla("groups", "reset", group, "--all-topics", *option)
        assert "Nothing is changed; --execute does it." in dry.out
        assert committed(ottla, group) == before
        done = ottla("groups", "reset", group, "--all-topics", *option, "--execute", "--json").json
        assert done["executed"] and [each["new"] for each in done["offsets"]] == [wanted, wanted]
        assert [each["committed"] for each in done["offsets"]] == before
        assert committed(ottla, group) == [wanted, wanted]
    ottla("groups", "reset", group, "--topic", f"{topic}:1", "--to-earliest", "--execute")
    assert committed(ottla, group) == [5, 0]


def committed(ottla, group):
    return [each["committed"] for each in ottla("groups", "describe", group, "--json").json[0]["offsets"]]


def test_a_group_is_begun_by_a_reset(ottla, topic, unique):
    group = unique("group")
    assert "committed nothing" in ottla("groups", "reset", group, "--all-topics", "--to-latest", status=1).err
    ottla("groups", "reset", group, "--topic", topic, "--to-latest", "--execute")
    assert committed(ottla, group) == [5, 5]
    assert group in ottla("groups", "list").out


def test_refusals(ottla, topic, unique, capsysbinary):
    group = unique("group")
    assert f"group {group} does not exist" in ottla("groups", "describe", group, status=1).err
    reset = ("groups", "reset", group, "--topic")
    assert "does not exist" in ottla(*reset, unique("topic"), "--to-latest", status=1).err
    assert "has no partition 7" in ottla(*reset, f"{topic}:0,7", "--to-latest", status=1).err
    for arguments, words in (
        ((f"{topic}:x", "--to-latest"), "must be TOPIC or TOPIC:N,N"),
        ((topic, "--to-offset", "-1"), "must be a number from 0 on"),
        ((topic, "--to-datetime", "yesterday"), "must be a time such as"),
        ((topic, "--to-datetime", "1960-01-01"), "before 1970"),
    ):
        assert words in ottla(*reset, *arguments, status=2).err
    for arguments in ((topic,), (topic, "--to-latest", "--to-earliest"), (topic, "--all-topics", "--to-latest")):
        with pytest.raises(SystemExit) as end:
            ottla(*reset, *arguments)
        assert end.value.code == 2
