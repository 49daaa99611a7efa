"""Short runs of `make chaos`, one after the other: each takes all processors by itself.

A broker that is killed loses nothing that it acknowledged: the page cache outlives the process. Three brokers lose nothing
while whatever can happen to them happens; that run is a process of its own, because it needs namespaces of its own for its
network and its small disk. The shorter twin of the run of workers is `compat_tests/workers/test_faults.py`.
"""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from compat_tests.history.members import SETTINGS
from compat_tests.history.run import OneBroker, Plan, run, workers_settings
from compat_tests.history.several_workers import SUPERVISOR, SeveralWorkers, Wanted
from compat_tests.support.workers import WorkersProcess

from ottla.server.testing.history.history import HistoryFile

ROOT = Path(__file__).resolve().parents[2]
FAULTS = 3
AWAY_MAX_S = 45
"""`make chaos` allows for eight seconds, which a machine with other work may need for anything."""

RUN_S = 560
KILLS = 3


@pytest.mark.timeout(RUN_S + 30)  # a minute on a machine that has nothing else to do
def test_three_brokers_break_no_promise(tmp_path):
    seed = random.SystemRandom().randrange(1 << 31)
    kafka = ["--apache-kafka", "3"] if os.environ.get("OTTLA_COMPAT_BROKER") == "kafka" else []
    options = ["--brokers", "3", "--count", str(FAULTS), "--seed", str(seed), "--quiet", "--away-max", str(AWAY_MAX_S)]
    command = [sys.executable, "-m", "compat_tests.history.run", *options, *kafka]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=RUN_S
    )
    assert done.returncode == 0, f"{done.stdout[-20_000:]}\n{done.stderr[-4000:]}"
    outcome = re.search(
        r"^(\d+) faults, (\d+) acknowledged.* (\d+) committed offsets, (\d+) transactions", done.stdout, re.MULTILINE
    )
    assert int(outcome[1]) == FAULTS
    assert int(outcome[2]) > 100
    assert int(outcome[3]) > 0
    assert int(outcome[4]) > 0
    assert list(tmp_path.iterdir()) == []  # all is well, and nothing is kept


def test_sigkills_under_load_break_no_promise(start_broker, tmp_path):
    seed = random.SystemRandom().randrange(1 << 31)
    history = HistoryFile(tmp_path / "history.jsonl")
    outcome = run(OneBroker(start_broker(SETTINGS)), Plan(seed), history, lambda kills: kills == KILLS)
    assert outcome.proofs == [], f"seed {seed}: {outcome}"
    assert outcome.faults == KILLS
    assert outcome.acknowledged > 100
    assert min(outcome.read, outcome.committed_offsets, outcome.ends_seen, outcome.transactions_committed) > 0
    assert min(outcome.share_acceptances, outcome.times_owned) > 0


@pytest.mark.long
def test_workers_break_no_promise(tmp_path):
    seed = random.SystemRandom().randrange(1 << 31)
    wanted = Wanted(of_workers=12, of_supervisor=3)
    cluster = SeveralWorkers(WorkersProcess(tmp_path, workers_settings(4)), wanted)
    try:
        cluster.start()
        outcome = run(cluster, Plan(seed), HistoryFile(tmp_path / "history.jsonl"), lambda faults: False)
    finally:
        cluster.kill()
    assert outcome.proofs == [], f"seed {seed}: {outcome}"
    assert cluster.done["SIGKILL of workers"] >= wanted.of_workers
    assert cluster.done[f"SIGKILL of {SUPERVISOR}"] >= wanted.of_supervisor
    assert min(outcome.acknowledged, outcome.read, outcome.committed_offsets, outcome.transactions_committed) > 0
