"""The table of faults in `compat_tests/README.md` says what chaos and the simulation really cause."""

import re
from collections.abc import Iterable
from pathlib import Path

from ottla.server.testing.history.fault_kinds import FaultKind

HERE = Path(__file__).parent
CHAOS = (HERE / "faults.py", HERE / "run.py")
SIMULATION = tuple((HERE.parents[1] / "server/testing/simulation").glob("*.py"))


def _caused_in(files: Iterable[Path]) -> set[str]:
    named = {name for file in files for name in re.findall(r"FaultKind\.([A-Z_]+)", file.read_text())}
    return {str(FaultKind[name]) for name in named}


def test_the_table_of_faults_is_true() -> None:
    table = (HERE.parent / "README.md").read_text().partition("| fault |")[2]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
    by_chaos, by_simulation = _caused_in(CHAOS), _caused_in(SIMULATION)
    assert rows == [[kind, "yes" * (kind in by_chaos), "yes" * (kind in by_simulation)] for kind in map(str, FaultKind)]
