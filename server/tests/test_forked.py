"""Workers are forked from one process, and must not have the same luck."""

import ast
import os
import re
from pathlib import Path

from ottla.server.cluster.administration import random_topic_id

ROOT = Path(__file__).resolve().parents[2]


def in_a_fork(make):
    """What `make` gives in a forked process."""
    hears, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(tells, make())
        finally:
            os._exit(0)
    os.close(tells)
    with os.fdopen(hears, "rb") as heard:
        found = heard.read()
    os.waitpid(pid, 0)
    return found


def test_two_workers_give_different_topics_different_ids():
    ids = [in_a_fork(random_topic_id) for _ in range(3)]
    assert {len(each) for each in ids} == {16}
    assert len({*ids, random_topic_id()}) == 4


def test_no_other_module_has_random_numbers_of_its_own():
    """A generator that is made while a module is imported is the same in all workers, unless it is seeded anew."""
    found = set()
    for package in ("wire", "replication", "groupcoord", "server"):
        for path in (ROOT / package).rglob("*.py"):
            if "tests" not in path.parts and re.search(r"\bRandom\(", text := path.read_text()):
                made = [node for node in ast.parse(text).body if isinstance(node, ast.Assign | ast.AnnAssign)]
                if any("Random(" in (ast.get_source_segment(text, node) or "") for node in made):
                    found.add(str(path.relative_to(ROOT)))
    assert found == {"server/cluster/administration.py"}
