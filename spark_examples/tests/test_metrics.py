"""Minutes, alerts and dead letters of the metrics example are those that were written, in each way to run a stream."""

import json
from importlib.util import find_spec
from secrets import token_hex
from xml.etree import ElementTree

import pytest

for package in ("kafka", "pyspark"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install '.[spark]')", allow_module_level=True)

from spark_examples.tests.programs import programs_of

from ottla.server.cli.cli import main

example = programs_of("metrics")

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:unclosed:ResourceWarning"),
]


@pytest.fixture
def topic(spark, broker, tmp_path) -> str:
    name = f"metrics-{token_hex(4)}"
    for each in ("minutes", "alerts"):
        assert main(["topics", "create", f"{name}-{each}", "-b", broker.bootstrap, "--timeout", "60", "-p", "2"]) == 0
    example.produce.generate(broker.bootstrap, name, tmp_path, records=700)
    return name


def test_a_job_that_is_stopped_goes_on(spark, broker, topic, tmp_path):
    queries = example.minutes.start_queries(spark, broker.bootstrap, topic, tmp_path, 500)
    while len(queries[0].recentProgress) < 2:
        assert not queries[0].awaitTermination(0.1), "the job ended before it could be stopped"
    for query in queries:
        query.stop()
    queries = example.minutes.start_queries(spark, broker.bootstrap, topic, tmp_path, 1000)
    example.minutes.follow(queries)
    dropped = sum(each.numRowsDroppedByWatermark for p in queries[0].recentProgress for each in p.stateOperators)
    assert dropped == 0, "rows came later than the watermark allows, so the comparison would prove nothing"
    checkpoint = tmp_path / "checkpoint-alerts"
    alerts = example.alerts.start_query(spark, broker.bootstrap, topic, checkpoint, "available-now")
    example.alerts.run_to_end(alerts, checkpoint, topic, {"0": 1 << 40})
    assert example.alerts.committed(checkpoint, topic) == example.alerts.ends(broker.bootstrap, topic)
    assert example.check.problems(broker.bootstrap, topic, tmp_path) == []
    told = [json.loads((tmp_path / f"generated-{seed}.json").read_text()) for seed in example.produce.SEEDS]
    found = example.check.minutes(broker.bootstrap, f"{topic}-minutes")
    assert sum(each.count for each in found.values()) == sum(each["events"] for each in told)
    picture = ElementTree.parse(tmp_path / "dashboard.svg").getroot()
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}title"))) > 20


def test_the_example_says_equal_in_continuous_mode(run_example):
    assert run_example("metrics", "continuous").splitlines()[-1] == "equal"


def test_a_mode_that_this_pyspark_lacks_is_told(monkeypatch):
    monkeypatch.setitem(example.alerts.MODES, "real-time", {"notAtAll": "5 seconds"})
    assert not example.alerts.has_mode("real-time")
    assert example.alerts.has_mode("continuous") and example.alerts.has_mode("available-now")
