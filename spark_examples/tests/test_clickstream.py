"""The visits that Spark finds are those of plain Python and of the generator, also if the job is killed half way."""

import subprocess
import sys
from importlib.util import find_spec
from secrets import token_hex

import pytest

for package in ("kafka", "pyspark"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install '.[spark]')", allow_module_level=True)

from spark_examples.tests.programs import HERE, programs_of

from ottla.server.cli.cli import main

example = programs_of("clickstream")

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:unclosed:ResourceWarning"),
]
SHARES = ("--late", "0.05", "--doubled", "0.02", "--poison", "0.01", "--closing")


@pytest.fixture
def topic(spark, broker, tmp_path) -> str:
    name = f"clicks-{token_hex(4)}"
    expected = ("--expected", str(tmp_path / "expected.jsonl"))
    words = ("-t", name, "-b", broker.bootstrap, "--timeout", "60", "--records", "3000")
    assert main(["generate", "clicks", *words, *SHARES, *expected]) == 0
    return name


def test_the_example_says_equal(run_example):
    assert run_example("clickstream").splitlines()[-1] == "equal"


KILLED = """\
import os, signal, sys, threading, time
from pathlib import Path
sys.path[:0] = [{folder!r}, {flights!r}]
import stream
sys.path.remove({folder!r})
sys.modules.pop("session")
import session
output = Path({output!r})

def kill():
    while len(list(output.glob("visits/batch-*"))) < 2:
        time.sleep(0.01)
    os.killpg(0, signal.SIGKILL)

threading.Thread(target=kill, daemon=True).start()
stream.follow(stream.start_queries(session.start(), {bootstrap!r}, {topic!r}, output, 300))
"""


def test_a_killed_job_goes_on_and_doubles_nothing(spark, broker, topic, tmp_path):
    """The driver and its JVM get SIGKILL after the second batch, wherever they are then."""
    program = KILLED.format(
        folder=str(HERE / "clickstream"),
        flights=str(HERE / "flights"),
        output=str(tmp_path),
        bootstrap=broker.bootstrap,
        topic=topic,
    )
    done = subprocess.run([sys.executable, "-c", program], start_new_session=True, check=False, capture_output=True)
    assert done.returncode == -9, done.stderr.decode()[-3000:]
    assert 2 <= len(list(tmp_path.glob("visits/batch-*"))) < 9
    queries = example.stream.start_queries(spark, broker.bootstrap, topic, tmp_path, 500)
    example.stream.follow(queries)
    dropped = sum(each.numRowsDroppedByWatermark for p in queries[0].recentProgress for each in p.stateOperators)
    assert dropped == 0, "clicks came later than the watermark allows, so the comparison would prove nothing"
    assert example.check.problems(broker.bootstrap, topic, tmp_path) == []
    (tmp_path / "visits" / "batch-0" / "more.json").write_text('{"user": "u", "first": "", "last": "", "clicks": 1}\n')
    assert example.check.problems(broker.bootstrap, topic, tmp_path) == ["visits", "what the generator told"]
