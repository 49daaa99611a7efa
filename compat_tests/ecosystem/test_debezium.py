"""Debezium on Kafka Connect: each change of a table in PostgreSQL is written once, while the broker and the worker are killed."""

import contextlib
import json

import pytest
from compat_tests.applications.connect import Worker, running_on
from compat_tests.applications.streams import take
from compat_tests.ecosystem.orders import ROUNDS, ROWS, TOPIC, change, connect, database, source
from compat_tests.ecosystem.programs import jars_of, size
from compat_tests.support.brokers import wait_until

pytestmark = pytest.mark.ecosystem
CHANGES = ROUNDS * (ROWS + ROWS // 2 + ROWS // 4)
WITHOUT_SCHEMAS = {f"{which}.converter.schemas.enable": "false" for which in ("key", "value")}


@pytest.fixture
def postgres():
    with database() as started:
        started.run("alter table orders replica identity full;")
        yield started


def changes(bootstrap: str, count: int) -> list[dict]:
    """All of the topic once there are so many. A delete is followed by a tombstone, which is none."""

    def told(found) -> list[dict]:
        return [json.loads(value) for _, value in found if value is not None]

    return told(take(bootstrap, TOPIC, lambda found: len(told(found)) >= count, 240))


@pytest.mark.timeout(900)
def test_each_change_is_written_once(postgres, start_broker, tmp_path):
    broker = start_broker()
    java = connect(f"{jars_of('debezium')}/*")
    change(postgres, 0)
    count = len(postgres.run("select id from orders"))
    with contextlib.closing(Worker(java, broker.bootstrap, "connect", tmp_path / "worker")) as worker:
        worker.start()
        wait_until(lambda: worker.ask("/connectors") == [], "the worker serves", 240)
        body = {"name": "shop", "config": source(postgres, partitions=1) | WITHOUT_SCHEMAS}
        wait_until(lambda: worker.ask("/connectors", body), "the connector is made", 120)
        wait_until(lambda: size(broker.bootstrap, TOPIC) > 0, "the snapshot begins", 120)
        assert len(changes(broker.bootstrap, count)) == count
        change(postgres, 1)
        broker.kill()
        broker.restart()
        change(postgres, 2)
        changes(broker.bootstrap, count + 2 * CHANGES // ROUNDS - 50)
        worker.close()
        change(postgres, 3)
        worker.start()
        wait_until(lambda: running_on(worker, "shop"), "the connector runs again", 240)
        expected = count + 3 * CHANGES // ROUNDS
        found = changes(broker.bootstrap, expected)
    assert len(found) == expected
    table: dict[int, int] = {}
    for each in found:
        if each["after"] is None:
            del table[each["before"]["id"]]
        else:
            table[each["after"]["id"]] = each["after"]["amount"]
    rows = [row.split("|") for row in postgres.run("select id, amount from orders")]
    assert table == {int(key): int(amount) for key, amount in rows}
