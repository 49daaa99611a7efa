"""Runs the statements in PostgreSQL, while Debezium writes the changes of the table to the topic.

    python capture.py --bootstrap 127.0.0.1:9092 --output /tmp/accounts --kill

A quarter of the statements is run before Debezium starts, which reads those rows as a snapshot. With --kill Kafka Connect gets SIGKILL in
the middle, and starts again. In the end the rows of the table are in `source.jsonl`.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from connect import Connect, connector_properties, worker_properties
from postgres import USER, Postgres
from topic import TOPIC, change_of, records

TABLE = """\
CREATE TABLE accounts (id BIGINT PRIMARY KEY, name TEXT NOT NULL, balance BIGINT NOT NULL);
ALTER TABLE accounts REPLICA IDENTITY FULL;
"""
ROWS = "SELECT json_build_object('id', id, 'name', name, 'balance', balance) FROM accounts ORDER BY id;"
LSN = "SELECT pg_current_wal_lsn() - '0/0';"
"""The place in PostgreSQL's log as a number, as `source.lsn` has it."""

PATIENCE_S, AGAIN_S = 180, 0.5


@contextlib.contextmanager
def opened(bootstrap: str, folder: Path, max_message_bytes: int) -> Iterator[tuple[Postgres, Connect]]:
    """Yield a PostgreSQL and a Kafka Connect with its files in `folder`, and close both afterwards. `begin` starts them."""
    with contextlib.closing(Postgres()) as database:
        worker = worker_properties(bootstrap, folder)
        connector = connector_properties(database.port, USER, max_message_bytes)
        with contextlib.closing(Connect(folder, worker, connector)) as connect:
            yield database, connect


def has_change_from(bootstrap: str, lsn: int) -> bool:
    """True if the topic has a change that was made at this LSN or later."""
    changes = (change_of(record.value) for record in records(bootstrap, TOPIC) if record.value is not None)
    return any(change is not None and change["source"]["lsn"] >= lsn for change in changes)


def wait_for(is_so: Callable[[], bool], what: str, connect: Connect) -> None:
    """Ends the program if it is not so after a while."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        connect.require_running()
        if time.monotonic() > end:
            sys.exit(f"{what} after {PATIENCE_S} s: {connect.log_end()}")
        time.sleep(AGAIN_S)


def run_and_wait(database: Postgres, connect: Connect, bootstrap: str, statements: list[str]) -> None:
    """Run statements, and wait until the change of the last one is in the topic."""
    database.run("\n".join(statements[:-1]))
    [lsn] = database.run(LSN)
    database.run(statements[-1])
    wait_for(lambda: has_change_from(bootstrap, int(lsn)), "the last change is not in the topic", connect)


def begin(database: Postgres, connect: Connect, bootstrap: str, statements: list[str]) -> None:
    """Make the table with its first rows, and let Debezium read them."""
    database.start()
    database.run(TABLE + "\n".join(statements))
    print(f"  PostgreSQL has run {len(statements)} statements; Debezium reads a snapshot", flush=True)
    connect.start()
    wait_for(lambda: has_change_from(bootstrap, 0), "there is no snapshot in the topic", connect)


def capture(database: Postgres, connect: Connect, bootstrap: str, statements: list[str], *, kill: bool) -> None:
    """Run all statements, and wait until all changes are in the topic."""
    quarter = len(statements) // 4
    begin(database, connect, bootstrap, statements[:quarter])
    run_and_wait(database, connect, bootstrap, statements[quarter : 2 * quarter])
    print(f"  {2 * quarter} statements", flush=True)
    if kill:
        connect.kill()
        print("  Kafka Connect is killed", flush=True)
    database.run("\n".join(statements[2 * quarter : 3 * quarter]))
    if kill:
        connect.start()
    run_and_wait(database, connect, bootstrap, statements[3 * quarter :])
    print(f"  {len(statements)} statements, and their changes are in the topic", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the statements and capture the changes.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--output", type=Path, required=True, help="the folder that has statements.sql")
    parser.add_argument("--max-message-bytes", type=int, default=1_048_588, help="of the topic that is created")
    parser.add_argument("--kill", action="store_true", help="kill Kafka Connect in the middle")
    options = parser.parse_args()
    statements = (options.output / "statements.sql").read_text().splitlines()
    with opened(options.bootstrap, options.output / "connect", options.max_message_bytes) as (database, connect):
        capture(database, connect, options.bootstrap, statements, kill=options.kill)
        (options.output / "source.jsonl").write_text("\n".join(database.run(ROWS)) + "\n")


if __name__ == "__main__":
    main()
