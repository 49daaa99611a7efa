"""The load that tests put beside a broker."""

import os

from compat_tests.support.busy import busy


def test_the_loops_end_with_what_they_are_beside():
    with busy() as loops:
        assert len(loops) >= (os.cpu_count() or 1)
        assert all(loop.is_alive() for loop in loops)
    assert not any(loop.is_alive() for loop in loops)
