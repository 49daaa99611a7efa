"""Records are read, written on and committed exactly once while the broker is killed: `exactly_once.py` in small."""

import pytest
from compat_tests.applications.exactly_once import PROTOCOLS, SETTINGS, problem, run

RECORDS, KILLS = 2000, 2
LONG = [pytest.param(PROTOCOLS[0], marks=pytest.mark.long), *PROTOCOLS[1:]]


@pytest.mark.parametrize("protocol", LONG)
def test_each_record_is_written_on_once_while_the_broker_is_killed(start_broker, unique, tmp_path, protocol):
    def is_time(committed, _):
        """After one third of them, and after two."""
        nonlocal kills
        if kills == KILLS or committed < RECORDS * (kills + 1) // (KILLS + 1):
            return False
        kills += 1
        return True

    kills = 0
    outcome = run(start_broker(SETTINGS), unique("once"), RECORDS, protocol, tmp_path, is_time)
    assert (outcome.wrong, outcome.kills) == ("", KILLS), outcome


def test_what_is_not_exactly_once_is_found():
    right = [(b"0", b"0"), (b"1", b"1"), (b"2", b"2")]
    assert problem(right, 3) == ""
    assert "1 records twice [1]" in problem([*right, (b"1", b"1")], 3)
    assert "1 missing [1]" in problem([right[0], right[2]], 3)
    assert problem([*right, (b"3", b"3")], 3) != ""
