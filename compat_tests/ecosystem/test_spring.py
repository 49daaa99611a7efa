"""Spring for Apache Kafka: a listener that answers in transactions, while the broker and the application are killed."""

import contextlib

import pytest
from compat_tests.applications.streams import make_topics
from compat_tests.ecosystem.programs import (
    Program,
    feed,
    feed_through_a_kill,
    feeder,
    java_command,
    size,
    squares,
    values,
)

pytestmark = pytest.mark.ecosystem
COUNT = 600


@pytest.mark.timeout(600)
def test_each_record_is_answered_once_while_broker_and_application_are_killed(start_broker, tmp_path):
    command = java_command("spring", "Squares", tmp_path, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
    broker = start_broker()
    make_topics(broker.bootstrap, 3, "numbers", "squares")
    spring = Program([*command, broker.bootstrap, "numbers", "squares"], tmp_path / "spring")
    with contextlib.closing(spring.start()):
        feed_through_a_kill(broker, "numbers", COUNT, lambda: size(broker.bootstrap, "squares") > 0)
        values(broker.bootstrap, "squares", lambda found: len(found) > COUNT // 2)
        spring.kill()
        producer = feeder(broker.bootstrap)
        feed(producer, "numbers", range(COUNT, 2 * COUNT))
        assert producer.flush(60) == 0
        spring.start()
        found = values(broker.bootstrap, "squares", lambda found: len(found) >= 2 * COUNT)
        assert found == squares(2 * COUNT)
