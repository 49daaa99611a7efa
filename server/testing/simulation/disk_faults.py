"""Disks that fail a single call, run out of room, or a process that runs out of descriptors: faults that a seed decides.

What passes (descriptors, signals, room that comes back) must leave the broker as it was: it lives, and no directory of it is
offline afterwards. A disk that reports an error may be offline from then on, which the broker says; it is started anew later.
"""

import errno
import os
import random
from collections.abc import Awaitable, Callable

import trio

from ottla.server.testing.history.fault_kinds import FaultKind
from ottla.server.testing.history.history import FaultBegan, FaultEnded
from ottla.server.testing.memory.storage import ShortWrite
from ottla.server.testing.simulation.brokers import SimBroker
from ottla.server.testing.simulation.cluster import SimCluster

HOLD_S = (0.5, 2.0, 5.0, 10.0)
CALLS_BEFORE = 120  # at most, until the call that fails
ROOM_BYTES = 4000  # at most, that are left on a disk that fills up
OPENING = frozenset(("open", "read", "write", "names", "sync_directory", "lock"))
# A disk that fails here with any error is broken: nothing says what became of the bytes or names.
IRREPARABLE = frozenset(("sync", "sync_directory", "truncate", "rename"))
PASSING = (errno.EMFILE, errno.EINTR, errno.ENOSPC, errno.ENOMEM)


class FailingCall:
    """Fault of one disk: a later call to it fails."""

    def __init__(self, chance: random.Random, number: int) -> None:
        self.errno = number
        self.failed = ""
        self._left = chance.randrange(CALLS_BEFORE)
        self._share = chance.choice((0.0, 0.0, 0.3, 0.9, 1.0))

    def __call__(self, operation: str, path: str) -> OSError | None:
        if self.failed:
            return None
        if self._left > 0 or (self.errno in PASSING and operation in IRREPARABLE):
            self._left -= 1
            return None
        self.failed = f"{operation} {path}"
        text = os.strerror(self.errno)
        return ShortWrite(self.errno, text, self._share) if operation == "append" else OSError(self.errno, text, path)


class DiskFaults:
    """Faults of disks and descriptors. `borrow` gives a broker that nobody else stops or starts, `give_back` starts it if need be."""

    def __init__(
        self,
        simulation: SimCluster,
        chance: random.Random,
        borrow: Callable[[], SimBroker | None],
        give_back: Callable[[SimBroker, bool], None],
    ) -> None:
        self._simulation = simulation
        self._chance = chance
        self._borrow = borrow
        self._give_back = give_back

    async def fail_passing_call(self) -> None:
        """Let one call fail with an error that is not the disk's fault, such as an interruption."""
        await self._fail_call(self._chance.choice(PASSING))

    async def fail_call(self) -> None:
        """Let one call fail with an input/output error."""
        await self._fail_call(errno.EIO)

    async def _fail_call(self, number: int) -> None:
        call = FailingCall(self._chance, number)
        await self._with(f"{FaultKind.CALL_FAILED} {errno.errorcode[number]}", call, is_passing=number != errno.EIO)

    async def run_out_of_descriptors(self) -> None:
        """Let most files fail to open for a while."""
        share = self._chance.uniform(0.2, 1.0)

        def fail(operation: str, path: str) -> OSError | None:
            if operation in OPENING and self._chance.random() < share:
                return OSError(errno.EMFILE, "Too many open files", path)
            return None

        await self._with(f"{FaultKind.NO_DESCRIPTORS} {share:.0%}", fail, is_passing=True)

    async def run_out_of_room(self) -> None:
        """Fill the disk, and free it after a while."""
        target = self._borrow()
        if target is None:
            return
        is_passing = target.is_serving  # a start that meets the fault goes on without a directory, or ends
        target.disk.space_left = self._chance.randrange(ROOM_BYTES)
        life = target.broker
        await self._while(FaultKind.DISK_FULL, target)
        target.disk.space_left = None
        await self._end(target, life, FaultKind.DISK_FULL, is_passing=is_passing)

    async def _with(self, name: str, fail: Callable[[str, str], OSError | None], *, is_passing: bool) -> None:
        target = self._borrow()
        if target is None:
            return
        if self._chance.random() < 0.2:  # its start meets the fault
            await target.kill()
            target.disk.fail = fail
            self._simulation.start(target)
        is_passing = is_passing and target.is_serving
        target.disk.fail = fail
        life = target.broker
        await self._while(name, target)
        target.disk.fail = None
        words = f"{name} ({fail.failed})" if isinstance(fail, FailingCall) else name
        await self._end(target, life, words, is_passing=is_passing)

    async def _while(self, name: str, target: SimBroker) -> None:
        self._simulation.record.add(FaultBegan, name, str(target))
        await trio.sleep(self._chance.choice(HOLD_S) * self._chance.uniform(0.5, 1.5))
        self._simulation.record.add(FaultEnded, name, str(target))

    async def _end(self, target: SimBroker, life: object, words: str, *, is_passing: bool) -> None:
        offline = target.offline_directories()
        if is_passing and target.broker is not life:
            self._simulation.fail(f"{target} did not survive: {words}")
        if is_passing and offline:
            self._simulation.fail(f"{target} has {offline} offline over what has passed: {words}")
        if offline or not target.is_serving:
            await target.kill()
            await trio.sleep(1.0)
            self._give_back(target, True)
        else:
            self._give_back(target, False)


Fault = Callable[[], Awaitable[None]]


def weighted(faults: DiskFaults) -> list[tuple[int, Fault]]:
    """Return the disk faults, each with its weight among all faults."""
    return [
        (3, faults.fail_passing_call),
        (1, faults.fail_call),
        (1, faults.run_out_of_descriptors),
        (1, faults.run_out_of_room),
    ]
