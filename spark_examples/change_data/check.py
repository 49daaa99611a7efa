"""Compares the table that Spark rebuilt with that of the source and with that of plain Python, and accounts for each record.

python check.py --bootstrap 127.0.0.1:9092 --output /tmp/accounts
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import expected
import topic as topic_of_changes

SHOWN = 5


def table(path: Path) -> expected.Table:
    """A table from a file with a row, as a JSON object, in each line."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["id"]: (row["name"], row["balance"]) for row in rows}


def counted(output: Path) -> Counter[str]:
    """The records of all batches, as the job counted them."""
    found: Counter[str] = Counter()
    for path in (output / "counts").glob("batch-*.json"):
        found.update(json.loads(path.read_text()))
    return found


def problems(bootstrap: str, topic: str, output: Path) -> list[str]:
    """What differs; shows the first rows side by side, and what became of the records."""
    wanted = expected.table((output / "statements.sql").read_text().splitlines())
    found, source = table(output / "table.jsonl"), table(output / "source.jsonl")
    for identity in sorted(wanted)[:SHOWN]:
        print(f"  row {identity}")
        for name, rows in (("found", found), ("at the source", source), ("expected", wanted)):
            print(f"    {name:14}", *rows.get(identity, ("nothing",)))
    print(f"rows: {len(found)} found, {len(source)} at the source, {len(wanted)} expected")
    told = topic_of_changes.Told(bootstrap, topic)
    letters = {record.key.decode() for record in topic_of_changes.records(bootstrap, f"{topic}-dead")}
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(told.counts.items()))
    print(f"records: {told.counts.total()}: {kinds}; {told.copies} changes came again; {len(letters)} dead letters")
    differ = {
        "rows and those of the source": found != source,
        "rows and those of the statements": found != wanted,
        "records": counted(output) != told.counts,
        "dead letters": letters != told.dead,
    }
    return [name for name, is_so in differ.items() if is_so]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the table with its source.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default=topic_of_changes.TOPIC)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if differ := problems(options.bootstrap, options.topic, options.output):
        sys.exit("NOT EQUAL: " + ", ".join(differ))
    print("equal")


if __name__ == "__main__":
    main()
