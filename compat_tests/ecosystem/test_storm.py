"""Storm: a topology with its spout and its bolt for Kafka answers each record, while the broker is killed."""

import contextlib

import pytest
from compat_tests.applications.streams import make_topics
from compat_tests.ecosystem.programs import Program, feed_through_a_kill, java_command, size, squares, values

pytestmark = pytest.mark.ecosystem
COUNT = 1500


@pytest.mark.timeout(600)
def test_each_record_is_answered_while_the_broker_is_killed(start_broker, tmp_path):
    command = java_command("storm", "Squares", tmp_path)
    broker = start_broker()
    make_topics(broker.bootstrap, 3, "numbers", "squares")
    storm = Program([*command, broker.bootstrap, "numbers", "squares"], tmp_path / "storm")
    with contextlib.closing(storm.start()):
        feed_through_a_kill(broker, "numbers", COUNT, lambda: size(broker.bootstrap, "squares") > 0)
        wanted = set(squares(COUNT))
        assert set(values(broker.bootstrap, "squares", lambda found: wanted <= set(found))) == wanted
