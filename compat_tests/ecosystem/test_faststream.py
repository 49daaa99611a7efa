"""FastStream, on aiokafka and on librdkafka: a subscriber that publishes, while its broker is killed."""

import pytest
from compat_tests.applications.streams import make_topics
from compat_tests.ecosystem.programs import feed_through_a_kill, size, squares, values

COUNT = 2000


@pytest.mark.parametrize("client", ["aiokafka", "confluent"])
def test_each_record_is_answered_while_the_broker_is_killed(client, start_broker, start_program):
    broker = start_broker()
    make_topics(broker.bootstrap, 3, "numbers", "squares")
    start_program("faststream", client, broker.bootstrap, "numbers", "squares")
    feed_through_a_kill(broker, "numbers", COUNT, lambda: size(broker.bootstrap, "squares") > 0)
    found = values(broker.bootstrap, "squares", lambda found: set(squares(COUNT)) <= set(found))
    assert set(found) == set(squares(COUNT))  # at least once, and nothing else
