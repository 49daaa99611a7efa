"""Compares the counts and the dead letters that Spark wrote with those of plain Python.

python check.py FOLDER
"""

import argparse
import json
import sys
from pathlib import Path

import expected
import roles

SHOWN = 5


def problems(folder: Path) -> list[str]:
    """Names of the parts that differ; shows the first counts side by side."""
    wanted, wanted_dead = expected.results(expected.records(folder, roles.CLICKS))
    rows = expected.records(folder, roles.COUNTS)
    # The last record of a key holds.
    found = {row.key.decode(): json.loads(row.value)["clicks"] for row in rows}
    versions = {(row.key, row.value) for row in rows}
    dead = {row.key.decode(): row.value for row in expected.records(folder, roles.DEAD)}
    for key in sorted(wanted)[:SHOWN]:
        print(f"  {key:40} found {found.get(key)}, expected {wanted[key]}")
    print(f"counts: {len(found)} found, {len(wanted)} expected; {len(rows) - len(found)} records written again")
    print(f"clicks in them: {sum(found.values())}; dead letters: {len(dead)} found, {len(wanted_dead)} expected")
    differ = {
        "counts": found != wanted,
        "records that were written again": len(versions) != len(found),
        "dead letters": dead != wanted_dead,
        "nothing was counted": not wanted,
    }
    return [name for name, is_so in differ.items() if is_so]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the counts.")
    parser.add_argument("folder", type=Path)
    if differ := problems(parser.parse_args().folder):
        sys.exit("NOT EQUAL: " + ", ".join(differ))
    print("equal")


if __name__ == "__main__":
    main()
