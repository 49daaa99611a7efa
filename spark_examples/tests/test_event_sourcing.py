"""The state of a compacted topic: Spark, plain Python and addition find the same, and what says no state is told."""

import contextlib
import json
from importlib.util import find_spec
from secrets import token_hex

import pytest

for package in ("kafka", "pyspark"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install '.[spark]')", allow_module_level=True)

from kafka.errors import KafkaError
from spark_examples.tests.programs import programs_of

example = programs_of("event_sourcing")
move, rebuild, log = example.move, example.rebuild, example.log

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:unclosed:ResourceWarning"),
]


@pytest.fixture
def topic(spark, broker) -> str:
    """A topic that stays as it was written: its open segment is not compacted before the test has looked."""
    name = f"stock-{token_hex(4)}"
    move.create_topic(broker.bootstrap, name, {"cleanup.policy": "compact"})
    return name


@pytest.fixture
def clerk(broker, topic):
    with contextlib.closing(move.Clerk(broker.bootstrap, topic)) as clerk:
        yield clerk


def test_the_example_says_equal(run_example):
    told = run_example("event_sourcing")
    assert told.splitlines()[-1] == "equal"
    assert "compacted: " in told


def test_aborted_moves_are_in_the_log_and_in_no_state(spark, broker, topic, clerk):
    move.write_moves(clerk, example.warehouse.moves(60))
    wanted = example.expected.state(60)
    assert rebuild.state(spark, broker.bootstrap, topic) == log.state(broker.bootstrap, topic) == wanted
    raw = [record.value for record in log.records(broker.bootstrap, topic, "read_uncommitted")]
    assert sum(value is not None and json.loads(value)["count"] == -1 for value in raw) > 12
    assert None in raw, "there is no tombstone, and the comparison says less than it should"


def test_poison_ends_the_job_and_a_good_record_repairs_it(spark, broker, topic, clerk):
    clerk.write(b"ink@gate", b'{"item": "ink", "count": 3}')
    for value in (b'{"item": "ink", "cou', b"\xff\xfe", b'["ink"]', b'{"item": "ink"}'):
        clerk.write(b"ink@gate", value)
        with pytest.raises(rebuild.Unreadable, match=r"partition \d, offset \d+, key ink@gate: no state"):
            rebuild.state(spark, broker.bootstrap, topic)
    clerk.write(b"ink@gate", b'{"item": "ink", "count": 5}')
    assert rebuild.state(spark, broker.bootstrap, topic) == {"ink@gate": 5}


def test_what_a_compacted_topic_cannot_hold_is_refused(broker, topic, clerk):
    with pytest.raises(KafkaError):
        clerk.write(None, b"{}")
    assert log.records(broker.bootstrap, topic) == []


def test_a_difference_is_told(capsys):
    wanted = example.expected.state()
    assert example.check.differences({"before": wanted, "after": wanted | {"ink@gate": 10**6}}) == ["after"]
