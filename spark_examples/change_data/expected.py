"""The table as plain Python makes it of the statements, in their order.

    python expected.py --output /tmp/accounts

Nothing here knows of Kafka, Spark, Debezium or PostgreSQL.
"""

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path

Row = tuple[str, int]
"""Name and balance."""

Table = dict[int, Row]
"""Rows by their ids."""

INSERT = re.compile(r"INSERT INTO accounts \(id, name, balance\) VALUES \((\d+), '(\w+)', (-?\d+)\);")
UPDATE = re.compile(r"UPDATE accounts SET balance = balance \+ (-?\d+) WHERE id = (\d+);")
DELETE = re.compile(r"DELETE FROM accounts WHERE id = (\d+);")


def table(statements: Iterable[str]) -> Table:
    """Apply the statements. Ends the program at one that cannot be applied."""
    rows: Table = {}
    for statement in statements:
        if (found := INSERT.fullmatch(statement)) and int(found[1]) not in rows:
            rows[int(found[1])] = found[2], int(found[3])
        elif (found := UPDATE.fullmatch(statement)) and int(found[2]) in rows:
            name, balance = rows[int(found[2])]
            rows[int(found[2])] = name, balance + int(found[1])
        elif (found := DELETE.fullmatch(statement)) and int(found[1]) in rows:
            del rows[int(found[1])]
        else:
            sys.exit(f"cannot be applied: {statement}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the first rows of the expected table.")
    parser.add_argument("--output", type=Path, required=True, help="the folder that has statements.sql")
    options = parser.parse_args()
    rows = table((options.output / "statements.sql").read_text().splitlines())
    for identity in sorted(rows)[:10]:
        print(identity, *rows[identity])


if __name__ == "__main__":
    main()
