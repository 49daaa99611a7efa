"""What the jobs must find: the minutes that the producers told, added up, and the busy readings of the topic's bytes.

    python expected.py --output /tmp/metrics

Nothing here knows of Spark, windows or watermarks.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

BUSY_PERCENT = 95
Key = tuple[str, str, str]
"""Minute, host and metric."""


class Totals(NamedTuple):
    count: int
    min: int
    max: int
    sum: int

    def plus(self, other: "Totals") -> "Totals":
        return Totals(
            self.count + other.count, min(self.min, other.min), max(self.max, other.max), self.sum + other.sum
        )


def minutes(output: Path) -> dict[Key, Totals]:
    """Of all producers."""
    found: dict[Key, Totals] = {}
    for path in sorted(output.glob("expected-*.jsonl")):
        for row in map(json.loads, path.read_text().splitlines()):
            key, totals = row_of(row)
            found[key] = found[key].plus(totals) if key in found else totals
    return found


def row_of(row: dict) -> tuple[Key, Totals]:
    return (row["minute"], row["host"], row["metric"]), Totals(*(row[name] for name in Totals._fields))


def poison(output: Path) -> int:
    """How many records are no readings."""
    told = [json.loads(path.read_text()) for path in output.glob("generated-*.json")]
    return sum(Counter(each["poison"]).total() for each in told)


def busy(values: Iterable[bytes | None]) -> set[str]:
    """Ids of the readings that deserve an alert."""
    found = set()
    for value in values:
        try:
            reading = json.loads(value or b"null")
            if reading["metric"] == "cpu_percent" and reading["value"] >= BUSY_PERCENT:
                found.add(reading["id"])
        except (ValueError, TypeError, KeyError):
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the first minutes.")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    for key, totals in sorted(minutes(options.output).items())[:10]:
        print(*key, *totals)


if __name__ == "__main__":
    main()
