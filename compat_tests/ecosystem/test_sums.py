"""Quix Streams and Faust, exactly once: each running sum is written once, while the broker and the program are killed."""

import pytest
from compat_tests.applications.streams import make_topics
from compat_tests.ecosystem.programs import feed_by_parity, feeder, size, sums, values
from compat_tests.support.brokers import wait_until

pytestmark = pytest.mark.ecosystem
COUNT = 600


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["quixstreams", "faust"])
def test_each_sum_is_written_once(name, start_broker, start_program, tmp_path):
    broker = start_broker()
    make_topics(broker.bootstrap, 2, "numbers", "sums")
    state = tmp_path / "state"
    program = start_program(name, broker.bootstrap, "numbers", "sums", str(state))
    producer = feeder(broker.bootstrap)

    feed_by_parity(producer, "numbers", range(COUNT // 3))
    assert producer.flush(120) == 0
    wait_until(lambda: size(broker.bootstrap, "sums") > 0, f"{name} has begun", 180)
    feed_by_parity(producer, "numbers", range(COUNT // 3, 2 * COUNT // 3))
    broker.kill()
    broker.restart()
    assert producer.flush(120) == 0
    values(broker.bootstrap, "sums", lambda found: len(found) > COUNT // 3 + 20)
    program.kill()
    feed_by_parity(producer, "numbers", range(2 * COUNT // 3, COUNT))
    assert producer.flush(120) == 0
    start_program(name, broker.bootstrap, "numbers", "sums", str(state))
    assert values(broker.bootstrap, "sums", lambda found: len(found) >= COUNT) == sums(COUNT)
