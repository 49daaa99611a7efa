"""What concerns Ottla alone: `make bench ARGS=--alone`.

Replayed requests against the C programs that do the least a broker can do, thousands of connections, and peers that ask for
much at once. Numbers of a machine with other work to do mean little; ratios are taken between measurements that alternate.
"""

import importlib
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from benchmarks.alone.figures import Figure, failed, table_head, table_row, write_json
from benchmarks.machine import about_this_machine, allow_many_files

from ottla.wire.errors import ProtocolViolation

# One module each, in the order of the table.
PARTS = ("replays", "connections", "demanding")
FAILURES = (OSError, RuntimeError, ProtocolViolation)


def run(parts: list[str], quick: bool, results: Path) -> int:
    allow_many_files()
    print(table_head(), flush=True)
    measured = []
    for figure in measure(parts or list(PARTS), quick):
        print(table_row(figure), flush=True)
        measured.append(figure)
    write_json(results, measured, {**about_this_machine(), "quick": quick})
    behind = sum(figure.ok is False for figure in measured)
    print(f"\n{len(measured)} figures, {behind} behind; written to {results}")
    return 0


def measure(parts: list[str], quick: bool) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as work:
        for part in parts:
            try:
                yield from importlib.import_module(f"benchmarks.alone.{part}").figures(Path(work), quick)
            except FAILURES as error:  # a broker that fails one part is still to be measured in the others
                traceback.print_exc()
                yield failed(part, error)
