"""Airflow's provider for Kafka: its hooks and operators create, write and read."""

import json

import pytest
from compat_tests.ecosystem.programs import size, squares

pytestmark = pytest.mark.ecosystem
COUNT = 500


def test_the_operators_write_and_read_each_record_once(bootstrap, start_program, unique, tmp_path):
    topic, results = unique("topic"), tmp_path / "results.txt"
    settings = {"bootstrap.servers": bootstrap, "group.id": unique("group"), "auto.offset.reset": "earliest"}
    connection = json.dumps({"conn_type": "kafka", "extra": settings | {"enable.auto.commit": False}})
    home = {"AIRFLOW_HOME": str(tmp_path / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "false"}
    program = start_program("airflow", topic, str(COUNT), str(results), AIRFLOW_CONN_KAFKA_DEFAULT=connection, **home)
    assert program.process.wait(240) == 0, program.log[-4000:]
    assert size(bootstrap, topic) == COUNT
    assert sorted(results.read_text().split(), key=int) == squares(COUNT)
