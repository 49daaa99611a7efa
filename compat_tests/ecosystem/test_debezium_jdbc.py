"""Debezium's sink for JDBC: a table follows another one by way of a topic, while the broker and the worker are killed."""

import contextlib
import subprocess

import pytest
from compat_tests.applications.connect import Worker, running_on
from compat_tests.ecosystem.orders import JSON, ROUNDS, ROWS, TOPIC, USER, Postgres, change, connect, database, source
from compat_tests.ecosystem.programs import FOLDER, jars_of
from compat_tests.support.brokers import wait_until

pytestmark = pytest.mark.ecosystem


@pytest.fixture
def postgres():
    with database() as started:
        yield started


def sink(postgres: Postgres) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": "1",
        "topics": TOPIC,
        "connection.url": f"jdbc:postgresql://127.0.0.1:{postgres.port}/{USER}",
        "connection.username": USER,
        "connection.password": "",
        "collection.name.format": "copies",
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
        "consumer.override.isolation.level": "read_committed",
        **JSON,
    }


def rows(postgres: Postgres, table: str) -> list[str]:
    return postgres.run(f"select id, amount, note from {table} order by id")


def is_copied(postgres: Postgres) -> bool:
    there = postgres.run("select to_regclass('copies') is not null") == ["t"]
    return there and rows(postgres, "copies") == rows(postgres, "orders")


@pytest.fixture
def java(tmp_path) -> list[str]:
    """The command for Connect with both connectors, and the class that stands in for the sink's pool of connections."""
    jars = f"{jars_of('debezium_jdbc')}/*"
    program = FOLDER / "debezium_jdbc" / "AgroalConnectionProvider.java"
    subprocess.run(["javac", "-cp", jars, "-d", tmp_path / "classes", program], check=True, timeout=240)
    return connect(f"{tmp_path / 'classes'}:{jars}")


@pytest.mark.timeout(900)
def test_a_table_follows_another_one(postgres, java, start_broker, tmp_path):
    broker = start_broker()
    change(postgres, 0)
    with contextlib.closing(Worker(java, broker.bootstrap, "connect", tmp_path / "worker")) as worker:
        worker.start()
        wait_until(lambda: worker.ask("/connectors") == [], "the worker serves", 240)
        for name, config in (("shop", source(postgres, partitions=2)), ("copies", sink(postgres))):
            body = {"name": name, "config": config}
            wait_until(lambda body=body: worker.ask("/connectors", body), f"the connector {name} is made", 120)
        wait_until(lambda: is_copied(postgres), "the snapshot is copied", 120)
        change(postgres, 1)
        broker.kill()
        broker.restart()
        change(postgres, 2)
        wait_until(lambda: is_copied(postgres), "all changes are copied after the broker came back", 240)
        change(postgres, 3)
        worker.close()
        worker.start()
        wait_until(lambda: running_on(worker, "shop") and running_on(worker, "copies"), "both run again", 240)
        wait_until(lambda: is_copied(postgres), "all changes are copied after the worker came back", 240)
    assert len(rows(postgres, "copies")) == ROUNDS * (ROWS - ROWS // 4)
