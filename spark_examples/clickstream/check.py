"""Compares the visits that Spark found with those of plain Python, and with those that `ottla generate` told.

python check.py --bootstrap 127.0.0.1:9092 --registry http://127.0.0.1:8081 --output /tmp/clicks
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import expected

SHOWN = 5
Row = dict[str, Any]


def rows(folder: Path) -> list[Row]:
    """Rows of all batches that are whole, of a Delta table or of files."""
    if (folder / "_delta_log").is_dir():
        return rows_of_table(folder)
    return [json.loads(line) for path in folder.glob("batch-*/*.json") for line in path.read_text().splitlines()]


def rows_of_table(folder: Path) -> list[Row]:
    """Rows of a Delta table, without Spark: its log names the files that count. Others are of commits that were not finished."""
    from pyarrow import parquet

    files: list[str] = []
    for commit in sorted((folder / "_delta_log").glob("*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            if "add" in action:
                files.append(action["add"]["path"])
            elif "remove" in action:
                files.remove(action["remove"]["path"])
    return [row for file in files for row in parquet.read_table(folder / file).to_pylist()]


def visit_of(row: Row) -> expected.Visit:
    return row["user"], row["first"], row["last"], row["clicks"], row["source"], row.get("pages") or ""


def problems(bootstrap: str, registry: str, topic: str, output: Path) -> list[str]:
    """What differs; shows the first visits side by side, those that differ if there are any."""
    clicks, poison = expected.clicks(expected.values(bootstrap, topic), registry, topic)
    wanted = expected.visits(clicks)
    lines = map(json.loads, (output / "expected.jsonl").read_text().splitlines())
    told = sorted((row["user"], row["first"], row["last"], row["clicks"]) for row in lines)
    found, dead = sorted(map(visit_of, rows(output / "visits"))), rows(output / "dead")
    if not any(visit[5] for visit in found):  # windows know no pages
        wanted = [(*visit[:5], "") for visit in wanted]
    pairs = list(zip(found, wanted, strict=False))
    for mine, theirs in ([pair for pair in pairs if pair[0] != pair[1]] or pairs)[:SHOWN]:
        print("  found   ", *mine)
        print("  expected", *theirs)
    print(f"visits: {len(found)} found, {len(wanted)} expected, {len(told)} told by the generator")
    print(f"clicks in them: {sum(visit[3] for visit in found)}; dead letters: {len(dead)} found, {poison} expected")
    differ = {
        "visits": found != wanted,
        "what the generator told": [visit[:4] for visit in found] != told,
        "dead letters": len({(row["partition"], row["offset"]) for row in dead}) != poison or len(dead) != poison,
    }
    return [name for name, is_so in differ.items() if is_so]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the visits.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--registry", default="http://127.0.0.1:8081")
    parser.add_argument("--topic", default="clicks")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if differ := problems(options.bootstrap, options.registry, options.topic, options.output):
        sys.exit("NOT EQUAL: " + ", ".join(differ))
    print("equal")


if __name__ == "__main__":
    main()
