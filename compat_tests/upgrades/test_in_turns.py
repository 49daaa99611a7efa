"""The release before and this one in turns on the same data directory: each reads what the other has written, and goes on."""

import itertools
from pathlib import Path

import pytest
from compat_tests.support.brokers import OttlaProcess, free_port
from compat_tests.upgrades.before import Release, this_release
from compat_tests.upgrades.filled import SETTINGS, Filled

pytestmark = [pytest.mark.may_be_skipped, pytest.mark.timeout(900)]


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.long)])
def test_one_data_directory_in_turns(before: Release, tmp_path: Path, rounds: int) -> None:
    """Up and back again, after an orderly end and after SIGKILL, both ways."""
    broker = OttlaProcess(tmp_path, SETTINGS)
    broker.port = free_port()
    filled = Filled(broker, broker.bootstrap)
    turns = [(before, broker.stop), (this_release(), broker.stop), (before, broker.kill), (this_release(), broker.kill)]
    told = None
    try:
        for release, end in itertools.chain(turns * rounds, [(before, broker.stop)]):
            release.runs(broker)
            broker.start()
            if told is not None:
                assert filled.told() == told
                filled.go_on()
            filled.write()
            told = filled.told()
            end()
        this_release().runs(broker)
        broker.start()
        assert filled.told() == told
        filled.go_on()
        filled.check_transactions()
        broker.stop()
    finally:
        if broker.process is not None and not broker.died():
            broker.kill()
