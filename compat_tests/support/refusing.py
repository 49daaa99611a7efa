"""A broker that refuses some appends for a moment: `python -m compat_tests.support.refusing start ...`, else as `ottla`.

Every so many appends the in-sync replicas are too few for one instant, and the disk is full for one write. The append that
comes next finds all well again. That is how it goes when replicas come back, or when somebody makes room on a disk. Before
it refuses, the broker is busy for a moment, so that more requests come behind the one that is refused.
"""

import errno
import os
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from compat_tests.support.brokers import OttlaProcess

ROOT = Path(__file__).resolve().parents[2]
TOO_FEW_EVERY, FULL_EVERY = 37, 53
BUSY_S = 0.03


class RefusingProcess(OttlaProcess):
    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        return ["env", f"PYTHONPATH={paths}", python, "-m", "compat_tests.support.refusing", *arguments]


def _each(nth: int, refuse: Callable[..., Any], append: Callable[..., Any]) -> Callable[..., Any]:
    """The method `append` with `refuse` in its place at each n-th call."""
    numbers = count(1)

    def instead(self: Any, *given: Any, **named: Any) -> Any:
        if next(numbers) % nth:
            return append(self, *given, **named)
        time.sleep(BUSY_S)
        return refuse(append, self, *given, **named)

    return instead


def _too_few_for_an_instant(append: Callable[..., Any], partition: Any, *given: Any, **named: Any) -> Any:
    enough, partition.min_isr = partition.min_isr, len(partition.isr) + 1
    try:
        return append(partition, *given, **named)
    finally:
        partition.min_isr = enough


def _full_for_one_write(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def main() -> int:
    from ottla.replication.log.segment import Segment
    from ottla.replication.partition.partition import Partition
    from ottla.server.cli import cli

    too_few = _each(TOO_FEW_EVERY, _too_few_for_an_instant, Partition.append_as_leader)
    full = _each(FULL_EVERY, _full_for_one_write, Segment.append)
    with mock.patch.object(Partition, "append_as_leader", too_few), mock.patch.object(Segment, "append", full):
        return cli.main()


if __name__ == "__main__":
    sys.exit(main())
