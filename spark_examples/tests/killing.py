"""Runs a job of an example in a process of its own, and kills the process and its JVM in the middle of the work."""

import os
import subprocess
import sys
from pathlib import Path

from spark_examples.tests.programs import HERE

PROGRAM = """\
import os, signal, sys, threading, time
from pathlib import Path
sys.path[:0] = [{folder!r}, {flights!r}]
import {modules}
sys.path.remove({folder!r})
sys.modules.pop("session")
import session
output = Path({output!r})

def kill():
    while not ({is_time}):
        time.sleep(0.01)
    os.killpg(0, signal.SIGKILL)

threading.Thread(target=kill, daemon=True).start()
{job}
"""


def run_and_kill(example: str, modules: str, job: str, is_time: str, output: Path, **variables: str) -> None:
    """Run the statements `job` in a process, and kill it as soon as the expression `is_time` is true there.

    Both may use the example's `modules`, `session` of the example flights, and `output`. Raises AssertionError if the job ends by itself.
    """
    folder, flights = str(HERE / example), str(HERE / "flights")
    program = PROGRAM.format(
        folder=folder, flights=flights, modules=modules, output=str(output), is_time=is_time, job=job
    )
    command = [sys.executable, "-c", program]
    environment = dict(os.environ) | variables
    done = subprocess.run(command, env=environment, start_new_session=True, check=False, capture_output=True)
    told = [line for line in done.stderr.decode().splitlines() if "Error" in line or "Exception" in line]
    assert done.returncode == -9, "\n".join(told[-30:])
