"""Storm: a topology with its spout and its bolt for Kafka answers each record, while the broker is killed."""

import subprocess

import pytest
from compat_tests.applications.streams import make_topics
from compat_tests.ecosystem.programs import feed_through_a_kill, java_command, size, squares, values

pytestmark = pytest.mark.ecosystem
COUNT = 1500


@pytest.mark.timeout(600)
def test_each_record_is_answered_while_the_broker_is_killed(start_broker, tmp_path):
    command = java_command("storm", "Squares", tmp_path)
    broker = start_broker()
    make_topics(broker.bootstrap, 3, "numbers", "squares")
    with (
        (tmp_path / "storm.txt").open("wb") as log,
        subprocess.Popen(
            [*command, broker.bootstrap, "numbers", "squares"],
            stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=tmp_path,
        ) as storm,
    ):  # fmt: skip
        try:
            feed_through_a_kill(broker, "numbers", COUNT, lambda: size(broker.bootstrap, "squares") > 0)
            wanted = set(squares(COUNT))
            assert set(values(broker.bootstrap, "squares", lambda found: wanted <= set(found))) == wanted
        finally:
            storm.kill()
