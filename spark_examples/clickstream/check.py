"""Compares the visits that Spark found with those of plain Python, and with those that `ottla generate` told.

python check.py --bootstrap 127.0.0.1:9092 --output /tmp/clicks
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import expected

SHOWN = 5


def rows(folder: Path) -> list[dict[str, Any]]:
    """Rows of all batches that are whole."""
    return [json.loads(line) for path in folder.glob("batch-*/*.json") for line in path.read_text().splitlines()]


def visit_of(row: dict[str, Any]) -> expected.Visit:
    return row["user"], row["first"], row["last"], row["clicks"]


def problems(bootstrap: str, topic: str, output: Path) -> list[str]:
    """What differs; shows the first visits side by side."""
    clicks, poison = expected.clicks(expected.values(bootstrap, topic))
    wanted = expected.visits(clicks.values())
    told = sorted(visit_of(json.loads(line)) for line in (output / "expected.jsonl").read_text().splitlines())
    found, dead = sorted(map(visit_of, rows(output / "visits"))), rows(output / "dead")
    for mine, theirs in zip(found[:SHOWN], wanted[:SHOWN], strict=False):
        print("  found   ", *mine)
        print("  expected", *theirs)
    print(f"visits: {len(found)} found, {len(wanted)} expected, {len(told)} told by the generator")
    print(f"clicks in them: {sum(visit[3] for visit in found)}; dead letters: {len(dead)} found, {poison} expected")
    differ = {
        "visits": found != wanted,
        "what the generator told": found != told,
        "dead letters": len({(row["partition"], row["offset"]) for row in dead}) != poison or len(dead) != poison,
    }
    return [name for name, is_so in differ.items() if is_so]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the visits.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="clicks")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if differ := problems(options.bootstrap, options.topic, options.output):
        sys.exit("NOT EQUAL: " + ", ".join(differ))
    print("equal")


if __name__ == "__main__":
    main()
