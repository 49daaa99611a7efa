"""How the interpreter is set up for an event loop that nothing may hold."""

import subprocess
import sys

YOUNG_OBJECTS_MAX = 20_000

PROGRAM = """
import gc
from ottla.server.process.running import settle_interpreter

seen = [0]

def look(phase, about):
    if phase == "start":
        seen.append(sum(len(gc.get_objects(each)) for each in range(about["generation"] + 1)))

settle_interpreter()
gc.callbacks.append(look)
kept = [[number] for number in range(500_000)]
print(max(seen))
"""


def test_a_collection_looks_at_few_objects_however_many_there_are() -> None:
    """A thousand take up to a millisecond."""
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert 0 < int(told.stdout) <= YOUNG_OBJECTS_MAX
