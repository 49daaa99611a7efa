"""rdkafka, librdkafka for Rust: a member of a group answers each record, while the broker is killed."""

import contextlib

import pytest
from compat_tests.applications.streams import make_topics
from compat_tests.ecosystem.programs import ENVIRONMENTS, Program, feed_through_a_kill, size, squares, values

pytestmark = pytest.mark.ecosystem
COUNT = 600


@pytest.mark.timeout(600)
def test_each_record_is_answered_while_the_broker_is_killed(start_broker, tmp_path):
    command = ENVIRONMENTS.parent / "rust_squares" / "release" / "rust_squares"
    if not command.exists():
        pytest.skip("rdkafka is not on this machine (`make ecosystem` brings it, if there is a cargo)")
    broker = start_broker()
    make_topics(broker.bootstrap, 3, "numbers", "squares")
    program = Program([str(command), broker.bootstrap, "numbers", "squares"], tmp_path / "program")
    with contextlib.closing(program.start()):
        feed_through_a_kill(broker, "numbers", COUNT, lambda: size(broker.bootstrap, "squares") > 0)
        wanted = set(squares(COUNT))
        assert set(values(broker.bootstrap, "squares", lambda found: wanted <= set(found))) == wanted
