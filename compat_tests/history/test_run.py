"""A broker that is killed loses nothing that it acknowledged: the page cache outlives the process."""

import random

from compat_tests.history.history import HistoryFile
from compat_tests.history.members import SETTINGS
from compat_tests.history.run import OneBroker, Plan, run

KILLS = 5


def test_sigkills_under_load_break_no_promise(start_broker, tmp_path):
    seed = random.SystemRandom().randrange(1 << 31)
    history = HistoryFile(tmp_path / "history.jsonl")
    outcome = run(OneBroker(start_broker(SETTINGS)), Plan(seed), history, lambda kills: kills == KILLS)
    assert outcome.proofs == [], f"seed {seed}: {outcome}"
    assert outcome.faults == KILLS
    assert outcome.acknowledged > 100
    assert min(outcome.read, outcome.committed_offsets, outcome.ends_seen, outcome.transactions_committed) > 0
    assert min(outcome.share_acceptances, outcome.times_owned) > 0
