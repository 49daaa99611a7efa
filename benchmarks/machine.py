"""What the machine tells of a process and of itself: processor time, memory, files, versions."""

import contextlib
import datetime
import os
import platform
import re
import resource
import time
from collections.abc import Iterator
from pathlib import Path

MB = 1e6
CPUCLOCK_SCHED = 2  # of Linux: what the scheduler has counted


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of a process so far, those that have ended too.

    It is the sum of utime and stime in /proc/PID/stat, without their rounding to 10 ms: clock_getcpuclockid(3) of the process.
    """
    return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)


def own_cpu_seconds() -> float:
    """The same of this process."""
    return time.process_time()


def ended_children_cpu_seconds() -> float:
    """The same of all programs that this process has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def processors() -> int:
    """How many there are for the programs that are started from here."""
    return len(os.sched_getaffinity(0))


def resident_mb(pid: int, of: str = "VmRSS") -> float:
    """Resident memory in 10^6 bytes; of="VmHWM": the most it ever was."""
    found = re.search(rf"{of}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024 / MB


@contextlib.contextmanager
def on_cpu(index: int) -> Iterator[None]:
    """What is started in here runs on this processor only, if there are at least two to tell apart."""
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        yield
        return
    os.sched_setaffinity(0, {sorted(before)[index]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def wait_until_quiet(*pids: int, seconds: float = 0.2, patience_s: float = 20.0) -> None:
    """Returns when the processes have used less than a tenth of a processor each for a while."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        before = sum(map(cpu_seconds, pids))
        time.sleep(seconds)
        if sum(map(cpu_seconds, pids)) - before < len(pids) * seconds / 10:
            return


def allow_many_files() -> None:
    """For thousands of connections and partitions, here and in the brokers that are started from here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def about_this_machine() -> dict[str, str]:
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{processor_name()}, {processors()} processors, {memory_gb():.0f} GB of memory",
        "system": platform.platform(),
        "python": platform.python_version(),
        "load average before": f"{os.getloadavg()[0]:.2f}",
    }


def processor_name() -> str:
    with contextlib.suppress(OSError):
        if found := re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()):
            return found[1]
    return platform.machine()


def memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
