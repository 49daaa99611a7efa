"""A table of orders in a PostgreSQL of its own, changes of its rows, and the Debezium connector that captures them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_tests.support.java_tools import FAST_START
from spark_examples.change_data.postgres import USER, Postgres

TOPIC = "shop.public.orders"
ROUNDS, ROWS = 4, 100
JSON = {f"{which}.converter": "org.apache.kafka.connect.json.JsonConverter" for which in ("key", "value")}


@contextlib.contextmanager
def database() -> Iterator[Postgres]:
    """Start PostgreSQL with an empty table, and stop it afterwards."""
    if not any(Path("/usr/lib/postgresql").glob("*/bin")):
        pytest.skip("PostgreSQL is not on this machine (`make ecosystem` brings it)")
    with contextlib.closing(Postgres()) as postgres:
        postgres.start()
        postgres.run("create table orders (id int primary key, amount int not null, note text);")
        yield postgres


def change(postgres: Postgres, number: int) -> None:
    """Insert rows, change half of them and delete a quarter, each in a transaction."""
    ids = range(number * ROWS, (number + 1) * ROWS)
    statements = [f"insert into orders values ({each}, {each}, 'order {each}');" for each in ids]
    statements += [f"update orders set amount = amount * 2 where id = {each};" for each in ids[::2]]
    statements += [f"delete from orders where id = {each};" for each in ids[::4]]
    postgres.run("\n".join(statements))


def source(postgres: Postgres, partitions: int) -> dict[str, str]:
    """Return the settings of the connector, which creates the topic with `partitions`."""
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
        "topic.creation.default.partitions": str(partitions),
        "topic.creation.default.replication.factor": "1",
        **JSON,
    }


def connect(class_path: str) -> list[str]:
    """Return the command of a JVM with this class path; the class of Kafka Connect is to be appended."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", *FAST_START, "-Xmx512m", quiet, "-cp", class_path]
