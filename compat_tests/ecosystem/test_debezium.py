"""Debezium on Kafka Connect: each change of a table in PostgreSQL is written once, while the broker and the worker are killed."""

import contextlib
import json

import pytest
from compat_tests.applications.connect import Worker, running_on
from compat_tests.applications.streams import take
from compat_tests.ecosystem.postgres import USER, Postgres
from compat_tests.ecosystem.programs import jars_of, size
from compat_tests.support.brokers import wait_until
from compat_tests.support.java_tools import FAST_START

pytestmark = pytest.mark.ecosystem
TOPIC = "shop.public.orders"
ROUNDS, ROWS = 4, 100
CHANGES = ROUNDS * (ROWS + ROWS // 2 + ROWS // 4)


@pytest.fixture
def postgres():
    with contextlib.closing(Postgres()) as process:
        process.start()
        process.run(
            "create table orders (id int primary key, amount int not null); alter table orders replica identity full;"
        )
        yield process


def connector(postgres: Postgres) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "exactly.once.support": "required",
        "database.hostname": "127.0.0.1",
        "database.port": str(postgres.port),
        "database.user": USER,
        "database.dbname": USER,
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.orders",
        "topic.prefix": "shop",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        **{f"{which}.converter": "org.apache.kafka.connect.json.JsonConverter" for which in ("key", "value")},
        **{f"{which}.converter.schemas.enable": "false" for which in ("key", "value")},
    }


def change(postgres: Postgres, number: int) -> None:
    """Insert rows, change half of them and delete a quarter, each in a transaction."""
    ids = range(number * ROWS, (number + 1) * ROWS)
    statements = [f"insert into orders values ({each}, {each});" for each in ids]
    statements += [f"update orders set amount = amount * 2 where id = {each};" for each in ids[::2]]
    statements += [f"delete from orders where id = {each};" for each in ids[::4]]
    postgres.run("\n".join(statements))


def changes(bootstrap: str, count: int) -> list[dict]:
    """All of the topic once there are so many. A delete is followed by a tombstone, which is none."""

    def told(found) -> list[dict]:
        return [json.loads(value) for _, value in found if value is not None]

    return told(take(bootstrap, TOPIC, lambda found: len(told(found)) >= count, 240))


@pytest.mark.timeout(900)
def test_each_change_is_written_once(postgres, start_broker, tmp_path):
    broker = start_broker()
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    java = ["java", *FAST_START, "-Xmx512m", quiet, "-cp", f"{jars_of('debezium')}/*"]
    change(postgres, 0)
    rows = len(postgres.run("select id from orders"))
    with contextlib.closing(Worker(java, broker.bootstrap, "connect", tmp_path / "worker")) as worker:
        worker.start()
        wait_until(lambda: worker.ask("/connectors") == [], "the worker serves", 240)
        wait_until(
            lambda: worker.ask("/connectors", {"name": "shop", "config": connector(postgres)}),
            "the connector is made",
            120,
        )
        wait_until(lambda: size(broker.bootstrap, TOPIC) > 0, "the snapshot begins", 120)
        assert len(changes(broker.bootstrap, rows)) == rows
        change(postgres, 1)
        broker.kill()
        broker.restart()
        change(postgres, 2)
        changes(broker.bootstrap, rows + 2 * CHANGES // ROUNDS - 50)
        worker.close()
        change(postgres, 3)
        worker.start()
        wait_until(lambda: running_on(worker, "shop"), "the connector runs again", 240)
        expected = rows + 3 * CHANGES // ROUNDS
        found = changes(broker.bootstrap, expected)
    assert len(found) == expected
    table: dict[int, int] = {}
    for each in found:
        if each["after"] is None:
            del table[each["before"]["id"]]
        else:
            table[each["after"]["id"]] = each["after"]["amount"]
    assert table == {int(key): int(amount) for key, amount in postgres.run("select id, amount from orders")}
