"""Bytewax: a dataflow with recovery loses nothing while the broker and the dataflow are killed."""

import pytest
from compat_tests.applications.streams import make_topics
from compat_tests.ecosystem.programs import (
    FOLDER,
    Program,
    feed,
    feed_through_a_kill,
    feeder,
    python_of,
    size,
    squares,
    values,
)

pytestmark = pytest.mark.ecosystem
COUNT = 2000


@pytest.mark.timeout(600)
def test_nothing_is_lost_while_broker_and_dataflow_are_killed(start_broker, tmp_path, run):
    python = python_of("bytewax")
    broker = start_broker()
    make_topics(broker.bootstrap, 3, "numbers", "squares")
    recovery = tmp_path / "recovery"
    recovery.mkdir()
    run(python, "-m", "bytewax.recovery", str(recovery), "1")
    command = [
        python,
        "-m",
        "bytewax.run",
        str(FOLDER / "bytewax" / "program.py"),
        "-r",
        str(recovery),
        "-s",
        "1",
        "-b",
        "0",
    ]
    where = {"BOOTSTRAP": broker.bootstrap, "SOURCE": "numbers", "TARGET": "squares"}
    dataflow = Program(command, tmp_path / "bytewax", **where)
    try:
        dataflow.start()
        feed_through_a_kill(broker, "numbers", COUNT, lambda: size(broker.bootstrap, "squares") > 0)
        dataflow.kill()
        producer = feeder(broker.bootstrap)
        feed(producer, "numbers", range(COUNT, 2 * COUNT))
        assert producer.flush(60) == 0
        dataflow.start()
        wanted = set(squares(2 * COUNT))
        assert set(values(broker.bootstrap, "squares", lambda found: wanted <= set(found))) == wanted
    finally:
        dataflow.close()
