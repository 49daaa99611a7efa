"""OTTLA_PORTABLE=1: the broker does without everything that only Linux has, and nobody sees a difference.

The guard is shown to work first. `OTTLA_COMPAT_PORTABLE=1 make test ARGS=compat_tests/clients` runs whatever else is wanted
in this way; here are some of the clients' tests, and of those that kill the broker.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from compat_tests.support.portable import FORBIDDEN, GUARDED, environment

ROOT = Path(__file__).resolve().parents[1]
CHOSEN = {
    "compat_tests/clients/test_kafka_python.py": (
        "test_large_records_and_partitioning_by_key",
        "test_a_waiting_consumer_gets_a_record_when_it_is_produced",
        "test_assign_seek_and_positions",
    ),
    "compat_tests/clients/test_confluent_kafka.py": (
        "test_batches_larger_than_the_fetch_limits_still_arrive",
        "test_a_group_goes_on_where_it_committed",
    ),
    "compat_tests/clients/test_tls.py": ("test_librdkafka_with_a_certificate",),
    "compat_tests/test_restarts.py": ("test_a_torn_tail_and_spoilt_indexes_cost_nothing_that_was_whole",),
}
TRIED = {
    "os.sendfile": "os.sendfile(1, 0, 0, 1)",
    "os.preadv": "os.preadv(0, [bytearray(1)], 0, os.RWF_NOWAIT)",
    "os.fdatasync": "os.fdatasync(1)",
    "CLOCK_BOOTTIME": "time.clock_gettime(time.CLOCK_BOOTTIME)",
    "/proc/": "open('/proc/self/status')",
    "C's prctl": "ctypes.CDLL(None).prctl",
    "the option": "socket.socket().getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)",
    "MSG_MORE": "socket.socketpair()[0].send(b'x', socket.MSG_MORE)",
    "epoll": "select.epoll()",
    "trio's epoll": "type('Own', (trio._core._io_epoll.EpollIOManager,), {})",
}
PROGRAM = """
import ctypes, os, select, socket, time, trio
for text in sys.argv[2:]:
    try:
        eval(text)
    except AssertionError:
        pass
    else:
        print("let through:", text)
"""


def test_the_guard_stops_what_only_linux_has():
    command = [sys.executable, "-c", "import sys" + PROGRAM, "ottla", *TRIED.values()]
    done = subprocess.run(command, check=True, text=True, capture_output=True, env=os.environ | environment())
    assert done.stdout == ""
    guarded, *told = done.stderr.splitlines()
    assert guarded == GUARDED
    assert len(told) == len(TRIED)
    for line, what in zip(told, TRIED, strict=True):
        assert line.startswith(f"{FORBIDDEN}: {what}")


def test_a_broker_that_is_not_portable_is_stopped_by_the_guard(tmp_path):
    """Else the tests below would prove nothing: on Linux a start alone uses some of it."""
    own = environment() | {"OTTLA_GUARDED": "1", "OTTLA_PORTABLE": "0"}
    overrides = ["--override", f"log.dirs={tmp_path}", "--override", "listeners=PLAINTEXT://127.0.0.1:0"]
    command = [sys.executable, "-m", "ottla", "start", *overrides]
    done = subprocess.run(command, check=False, text=True, capture_output=True, env=os.environ | own, timeout=240)
    assert done.returncode != 0
    assert FORBIDDEN in done.stderr


@pytest.mark.timeout(900)
def test_clients_and_crashes_see_no_difference():
    tests = [f"{file}::{test}" for file, names in CHOSEN.items() for test in names]
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *tests]
    own = {"OTTLA_COMPAT_PORTABLE": "1", "OTTLA_COMPAT_BROKER": "", "OTTLA_COMPAT_GUARDED": ""}
    done = subprocess.run(
        command, check=False, text=True, capture_output=True, env=os.environ | own, cwd=ROOT, timeout=840
    )
    assert done.returncode == 0, done.stdout[-8000:]
    assert " passed" in done.stdout
