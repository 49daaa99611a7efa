"""What chaos does to workers: as much as was wanted, then no more, and never what would keep a worker down."""

import random
from collections import Counter
from signal import SIGCONT, SIGKILL, SIGSTOP, Signals
from types import SimpleNamespace

import pytest
from compat_tests.history import several_workers
from compat_tests.history.several_workers import RESTARTS_MAX, SUPERVISOR, SeveralWorkers, Wanted
from compat_tests.support.workers import TREE

SUPERVISORS_PID = 1_000_000


class Machine:
    """Workers that are started again as soon as they are killed, on a clock of its own."""

    count = 4

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.present_log = ""
        self.process = SimpleNamespace(pid=SUPERVISORS_PID)
        self.stopped: set[int] = set()
        self.signals: Counter[tuple[str, Signals]] = Counter()
        self.ends: dict[str, list[float]] = {}
        self._pids = iter(range(1, 1_000_000))
        monkeypatch.setattr(several_workers, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(several_workers, "os", SimpleNamespace(kill=self._kill))
        self.restart()

    def restart(self) -> None:
        self.present_log = ""
        self.ends = {}
        for name in (TREE, *(f"worker {number}" for number in range(self.count))):
            self._begin(name)

    def kill(self) -> None:
        assert not self.stopped
        self.signals[SUPERVISOR, SIGKILL] += 1

    def pid(self, name: str) -> int:
        return int(self.present_log.rpartition(f"{name} begins as process ")[2].partition("\n")[0])

    def signal(self, name: str, number: Signals) -> None:
        self.signals[name, number] += 1
        ends = self.ends.setdefault(name, [])
        ends[:] = [each for each in ends if self.now - each <= 60] + [self.now]
        assert len(ends) <= RESTARTS_MAX, f"{name} stays down"
        self._begin(name)

    def wait_until_all_lead(self) -> None:
        assert not self.stopped

    def _begin(self, name: str) -> None:
        self.present_log += f"{name} begins as process {next(self._pids)}\n{name} serves again\n"

    def _kill(self, pid: int, number: Signals) -> None:
        if number == SIGSTOP:
            self.stopped.add(pid)
            self.signals[SUPERVISOR if pid == SUPERVISORS_PID else "a process", number] += 1
        else:
            assert number == SIGCONT
            self.stopped.remove(pid)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize("fault_s", [0.5, 5.0])
@pytest.mark.parametrize("wanted", [Wanted(200, 50), Wanted(40, 0), Wanted(0, 5)])
def test_a_run_ends_when_as_much_was_done_as_was_wanted(machine: Machine, wanted: Wanted, fault_s: float) -> None:
    cluster = SeveralWorkers(machine, wanted)
    for fault in cluster.faults("t", random.Random(1)):
        machine.now += fault_s
        assert fault.begin()
        machine.now += fault.hold_s
        fault.end()
        assert not machine.stopped
    killed = {name: count for (name, number), count in machine.signals.items() if number == SIGKILL}
    of_workers = sum(count for name, count in killed.items() if name.startswith("worker"))
    assert cluster.done["SIGKILL of workers"] == of_workers
    assert of_workers >= wanted.of_workers
    assert cluster.done[f"SIGKILL of {SUPERVISOR}"] == killed.get(SUPERVISOR, 0) >= wanted.of_supervisor
    if wanted.of_supervisor:  # not many more either, except that workers have had their share of a minute
        assert killed[SUPERVISOR] < wanted.of_supervisor + 2 + wanted.of_workers / 20
    else:
        assert SUPERVISOR not in killed


def test_without_a_wish_it_goes_on_and_hits_everybody(machine: Machine) -> None:
    cluster = SeveralWorkers(machine)
    faults = cluster.faults("t", random.Random(2))
    names = set()
    for _ in range(300):
        fault = next(faults)
        machine.now += 1.0
        fault.begin()
        machine.now += fault.hold_s
        fault.end()
        names.add(fault.name)
    hit = ("a worker", "all workers", TREE, SUPERVISOR)
    assert names == {f"{kind} of {who}" for kind in ("SIGKILL", "SIGSTOP") for who in hit}
