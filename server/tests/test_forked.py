"""Workers are forked from one process, and must not have the same luck."""

import ast
import os
import re
from pathlib import Path

import pytest

from ottla.replication.random_ids import random_topic_id

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


# Who may use numbers that somebody can foretell, and for what.
FORETOLD = {
    "server/cli/client/cluster.py": "commands ask the brokers in any order",
    "server/security/oauth/login_tokens.py": "logins are renewed not all at the same moment",
    "server/cli/records/produce.py": "records without keys begin at any partition",
    "server/cli/generation/arrival.py": "test data of a seed",
    "server/cli/generation/kinds.py": "test data of a seed",
    "server/rest/client/cluster.py": "a proxy asks the brokers in any order",
    "server/rest/client/producer.py": "records without keys go to any partition",
    "server/testing/kafka.py": "faults of a seed",
    "server/testing/memory/coordination_service.py": "a simulation's seed",
    "server/testing/memory/storage.py": "a simulation's seed",
    "server/testing/chaos/chaos.py": "faults of a seed",
    "server/testing/client/client.py": "a client for tests asks the brokers in any order",
    "server/testing/client/connections.py": "a client for tests asks the brokers in any order",
    "server/testing/client/streams.py": "a client for tests asks the brokers in any order",
    "server/testing/simulation/administrator.py": "a simulation's seed",
    "server/testing/simulation/brokers.py": "a simulation's seed",
    "server/testing/simulation/cluster.py": "a simulation's seed",
    "server/testing/simulation/disk_faults.py": "a simulation's seed",
    "server/testing/simulation/faults.py": "a simulation's seed",
    "server/testing/simulation/network.py": "a simulation's seed",
    "server/testing/simulation/processors.py": "a simulation's seed",
    "server/testing/simulation/simulation.py": "a simulation's seed",
    "server/testing/simulation/virtual.py": "a simulation's seed",
    "server/testing/world/cluster.py": "a test's seed",
}


def product():
    for package in ("wire", "replication", "groupcoord", "server", "src"):
        for path in (ROOT / package).rglob("*.py"):
            if "tests" not in path.relative_to(ROOT).parts:
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


@pytest.mark.thorough
def test_what_somebody_may_guess_is_never_of_the_module_random():
    """Who has seen some hundred numbers of Mersenne Twister knows all that follow. Ids and secrets come from the system."""
    found = set()
    for path, tree in product():
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if {"random", "numpy.random"}.intersection(names) or (
                isinstance(node, ast.Attribute) and node.attr == "Random"
            ):
                found.add(path)
    assert found == set(FORETOLD)


@pytest.mark.thorough
def test_no_module_makes_random_numbers_while_it_is_imported():
    """What is made while a module is imported is the same in all workers."""
    for path, tree in product():
        for statement in tree.body:
            calls = [ast.unparse(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)]
            if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr):
                assert not any(re.search(r"urandom|token_bytes|Random$|random_uuid|uuid4", call) for call in calls), (
                    path
                )
