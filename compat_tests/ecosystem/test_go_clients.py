"""kafka-go and sarama: a member of a group answers each record, while the broker is killed."""

import contextlib

import pytest
from compat_tests.applications.streams import make_topics
from compat_tests.ecosystem.programs import ENVIRONMENTS, Program, feed_through_a_kill, size, squares, values

pytestmark = pytest.mark.ecosystem
COUNT = 600


@pytest.mark.timeout(600)
@pytest.mark.parametrize("client", ["kafka-go", "sarama"])
def test_each_record_is_answered_while_the_broker_is_killed(client, start_broker, tmp_path):
    command = ENVIRONMENTS.parent / "go_squares" / "go_squares"
    if not command.exists():
        pytest.skip("kafka-go and sarama are not on this machine (`make ecosystem` brings them)")
    broker = start_broker()
    make_topics(broker.bootstrap, 3, "numbers", "squares")
    program = Program([str(command), client, broker.bootstrap, "numbers", "squares"], tmp_path / "program")
    with contextlib.closing(program.start()):
        feed_through_a_kill(broker, "numbers", COUNT, lambda: size(broker.bootstrap, "squares") > 0)
        wanted = set(squares(COUNT))
        assert set(values(broker.bootstrap, "squares", lambda found: wanted <= set(found))) == wanted
