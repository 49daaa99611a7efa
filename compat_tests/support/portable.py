"""Ottla as on a system that is not Linux: OTTLA_PORTABLE=1, under a guard that lets nothing be called that only Linux has.

The guard is `portable_site/sitecustomize.py`, which Python imports at its start. A broker survives some of the errors that it
raises, so what it has said is looked for in the log, too.
"""

import os
from pathlib import Path

SITE = Path(__file__).parent / "portable_site"
GUARDED = "guarded against what only Linux has"
FORBIDDEN = "called what only Linux has"


def environment() -> dict[str, str]:
    path = filter(None, [str(SITE), os.environ.get("PYTHONPATH")])
    return {"OTTLA_PORTABLE": "1", "PYTHONPATH": os.pathsep.join(path)}


def be_portable() -> None:
    """From now on every process of Ottla that is started is one."""
    os.environ.update(environment())


def check(log: str) -> None:
    """That a broker was guarded, if it should have been, and that the guard had no cause to speak."""
    assert (GUARDED in log) == (os.environ.get("OTTLA_PORTABLE") == "1")
    told = [line for line in log.splitlines() if FORBIDDEN in line]
    assert not told, told
