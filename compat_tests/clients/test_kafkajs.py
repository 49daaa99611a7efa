"""KafkaJS (Node.js): clients/kafkajs/scenarios.js does the work, the asserting is done here."""

import json
from pathlib import Path

import pytest

SCENARIOS = Path(__file__).parent / "kafkajs" / "scenarios.js"


@pytest.fixture
def scenario(run, node, bootstrap, unique):
    command, modules = node

    def play(name, topic):
        environment = {"NODE_PATH": modules, "KAFKAJS_NO_PARTITIONER_WARNING": "1", "NODE_NO_WARNINGS": "1"}
        return json.loads(run(command, str(SCENARIOS), name, bootstrap, topic, unique("group"), **environment))

    return play


@pytest.mark.parametrize("name", ["plain", "roundTrip", "idempotent"])
def test_records_come_back_as_sent(scenario, topic, name):
    answer = scenario(name, topic)
    count = len(answer["received"])
    assert answer["sent"][0]["baseOffset"] == "0"
    assert answer["received"] == [
        {
            "partition": 0,
            "offset": str(i),
            "timestamp": str(5000 + i),
            "key": f"k{i}",
            "value": f"value {i}",
            "headers": {"a": "31", "b": "ff"},
        }
        for i in range(count)
    ]


def test_a_group_goes_on_where_it_committed(scenario, topic):
    assert scenario("commit", topic) == [str(i) for i in range(3, 10)]


def test_seek(scenario, topic):
    assert scenario("seek", topic) == ["8", "9"]


def test_a_group_shares_its_partitions_and_passes_them_on(scenario, make_topic):
    assert scenario("rebalance", make_topic(partitions=4)) == "shared"


@pytest.mark.one_broker("it counts them")
def test_admin(scenario, unique):
    assert scenario("admin", unique("topic")) == {
        "created": True,
        "again": False,
        "configs": [["retention.bytes", "77"]],
        "offset": "1",
        "byTime": 3,
        "listed": True,
        "state": "Empty",
        "high": 5,
        "emptied": True,
        "brokers": 1,
        "controller": True,
    }
