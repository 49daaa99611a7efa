"""Ottla's figures, measured on this machine: `python benchmarks/run.py [--quick] [--only WORD] [--json FILE]`.

Everything runs on the loopback interface, within bounds, on data directories that are removed again. Numbers of a machine
with other work to do mean little; ratios are taken between measurements that alternate.
"""

import argparse
import importlib
import os
import platform
import resource
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from figures import Figure, failed, table_head, table_row, write_json

from ottla.wire.errors import ProtocolViolation

RESULTS = Path(__file__).resolve().parent.parent / ".cache" / "benchmarks" / "figures.json"

# One module each, in the order of the table.
PARTS = ("startup", "replays", "librdkafka", "connections", "demanding", "topics")


FAILURES = (OSError, RuntimeError, subprocess.SubprocessError, ProtocolViolation)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure Ottla's figures on this machine.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a minute instead of several")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part of the table; may be repeated")
    parser.add_argument("--json", type=Path, default=RESULTS, help=f"where to write the results (default: {RESULTS})")
    options = parser.parse_args()
    allow_many_files()
    print(table_head(), flush=True)
    measured = []
    for figure in measure(options.only or PARTS, options.quick):
        print(table_row(figure), flush=True)
        measured.append(figure)
    write_json(options.json, measured, about_this_machine(options.quick))
    behind = sum(figure.ok is False for figure in measured)
    print(f"\n{len(measured)} figures, {behind} behind; written to {options.json}")
    return 0


def measure(parts: tuple[str, ...] | list[str], quick: bool) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as work:
        for part in parts:
            try:
                yield from importlib.import_module(part).figures(Path(work), quick)
            except FAILURES as error:  # a broker that fails one part is still to be measured in the others
                traceback.print_exc()
                yield failed(part, error)


def allow_many_files() -> None:
    """For thousands of connections, here and in the brokers that are started from here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def about_this_machine(quick: bool) -> dict[str, object]:
    return {
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "quick": quick,
    }


if __name__ == "__main__":
    sys.exit(main())
