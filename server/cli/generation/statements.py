"""Generated changes of a table as the SQL statements that make them.

A statement stands in a line of its own, in the order of time, for `psql -f`. The balance is changed by a difference, so that a table to
which a statement was applied twice, or not at all, is another one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from ottla.server.cli.generation.arrival import Event, Kind, Row

TABLE = "accounts"


class Stated(Kind):
    """Wrapper of the kind `changes`. It also writes each change as an SQL statement."""

    def __init__(self, changes: Kind, write: Callable[[str], object]) -> None:
        """`write` is called with one line, including the line end."""
        self.null_is_poison = changes.null_is_poison
        self._changes, self._write = changes, write

    def make(self, number: int, time_ms: int, random_source: random.Random, room: int) -> Sequence[Event]:
        events = self._changes.make(number, time_ms, random_source, room)
        for event in events:
            if event.value is not None:
                self._write(statement(event.value) + "\n")
        return events

    def closing(self, time_ms: int) -> Event | None:
        return self._changes.closing(time_ms)

    def finish(self) -> None:
        self._changes.finish()


def statement(change: Row) -> str:
    """Format a change in Debezium's envelope as an SQL statement. The generated names contain no quotes."""
    before, after = change["before"], change["after"]
    if change["op"] == "d":
        return f"DELETE FROM {TABLE} WHERE id = {before['id']};"
    if change["op"] == "u":
        return (
            f"UPDATE {TABLE} SET balance = balance + {after['balance'] - before['balance']} WHERE id = {after['id']};"
        )
    return f"INSERT INTO {TABLE} (id, name, balance) VALUES ({after['id']}, '{after['name']}', {after['balance']});"
