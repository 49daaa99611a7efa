"""Debezium's sink for JDBC: a table follows another one by way of a topic, while the broker and the worker are killed."""

import contextlib
import subprocess

import pytest
from compat_tests.applications.connect import Worker, running_on
from compat_tests.ecosystem.postgres import USER, Postgres
from compat_tests.ecosystem.programs import FOLDER, jars_of
from compat_tests.support.brokers import wait_until
from compat_tests.support.java_tools import FAST_START

pytestmark = pytest.mark.ecosystem
TOPIC = "shop.public.orders"
ROUNDS, ROWS = 4, 100
JSON = {f"{which}.converter": "org.apache.kafka.connect.json.JsonConverter" for which in ("key", "value")}


@pytest.fixture
def postgres():
    with contextlib.closing(Postgres()) as process:
        process.start()
        process.run("create table orders (id int primary key, amount int not null, note text);")
        yield process


def source(postgres: Postgres) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "exactly.once.support": "required",
        "database.hostname": "127.0.0.1",
        "database.port": str(postgres.port),
        "database.user": USER,
        "database.dbname": USER,
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.orders",
        "topic.prefix": "shop",
        "topic.creation.default.partitions": "2",
        "topic.creation.default.replication.factor": "1",
        **JSON,
    }


def sink(postgres: Postgres) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
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


def change(postgres: Postgres, number: int) -> None:
    """Insert rows, change half of them and delete a quarter, each in a transaction."""
    ids = range(number * ROWS, (number + 1) * ROWS)
    statements = [f"insert into orders values ({each}, {each}, 'order {each}');" for each in ids]
    statements += [f"update orders set amount = amount * 2 where id = {each};" for each in ids[::2]]
    statements += [f"delete from orders where id = {each};" for each in ids[::4]]
    postgres.run("\n".join(statements))


def rows(postgres: Postgres, table: str) -> list[list[str]]:
    return postgres.run(f"select id, amount, note from {table} order by id")


def is_copied(postgres: Postgres) -> bool:
    there = postgres.run("select to_regclass('copies') is not null") == [["t"]]
    return there and rows(postgres, "copies") == rows(postgres, "orders")


@pytest.fixture
def java(tmp_path) -> list[str]:
    """The command for Connect with both connectors, and the class that stands in for the sink's pool of connections."""
    jars = f"{jars_of('debezium_jdbc')}/*"
    source = FOLDER / "debezium_jdbc" / "AgroalConnectionProvider.java"
    subprocess.run(["javac", "-cp", jars, "-d", tmp_path / "classes", source], check=True, timeout=240)
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", *FAST_START, "-Xmx512m", quiet, "-cp", f"{tmp_path / 'classes'}:{jars}"]


@pytest.mark.timeout(900)
def test_a_table_follows_another_one(postgres, java, start_broker, tmp_path):
    broker = start_broker()
    change(postgres, 0)
    with contextlib.closing(Worker(java, broker.bootstrap, "connect", tmp_path / "worker")) as worker:
        worker.start()
        wait_until(lambda: worker.ask("/connectors") == [], "the worker serves", 240)
        for name, config in (("shop", source(postgres)), ("copies", sink(postgres))):
            body = {"name": name, "config": config | {"tasks.max": "1"}}
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
