"""Compares the state that Spark rebuilt, before and after compaction, with that of plain Python and with plain addition.

python check.py --bootstrap 127.0.0.1:9092 before.json after.json
"""

import argparse
import json
import sys
from pathlib import Path

import expected
import log


def differences(states: dict[str, log.State]) -> list[str]:
    """What differs; shows all states side by side."""
    wanted = expected.state()
    print(f"{'':20} {'expected':>10}" + "".join(f" {name:>10}" for name in states))
    for key in sorted(wanted):
        print(f"{key:20} {wanted[key]:10}" + "".join(f" {state.get(key, '-'):>10}" for state in states.values()))
    return [name for name, state in states.items() if state != wanted]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the rebuilt states.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="stock")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    options = parser.parse_args()
    states = {name: json.loads(getattr(options, name).read_text()) for name in ("before", "after")}
    states["plain"] = log.state(options.bootstrap, options.topic)
    if wrong := differences(states):
        sys.exit(f"NOT EQUAL: {', '.join(wrong)}")
    print("equal")


if __name__ == "__main__":
    main()
