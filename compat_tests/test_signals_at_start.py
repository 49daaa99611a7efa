"""A signal at any moment of a start ends the broker with exit code 0 and without a traceback, and the next start serves."""

import json
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottla import __main__ as command

MOMENTS = 20
PATIENCE_S = 60.0
SIGTERM_IS_CAUGHT = 1 << (signal.SIGTERM - 1)


class Start:
    """One `ottla start` on a directory."""

    def __init__(self, directory: Path, *options: str) -> None:
        settings = (f"log.dirs={directory}", "listeners=PLAINTEXT://127.0.0.1:0")
        overrides = [part for setting in settings for part in ("--override", setting)]
        command = [sys.executable, "-m", "ottla", "start", *overrides, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # Before the first line of Ottla has run, only Python itself could take a signal.
        while not self._catches_signals():
            assert self.process.poll() is None
        self.began_s = time.monotonic()

    def _catches_signals(self) -> bool:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught.partition(":")[2], 16) & SIGTERM_IS_CAUGHT)

    def says_something_within(self, seconds: float) -> bool:
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def end(self, number: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, errors.decode()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says which signals a process catches")
def test_a_signal_ends_a_start_at_any_moment(tmp_path: Path) -> None:
    whole = Start(tmp_path / "data")
    assert whole.says_something_within(PATIENCE_S)
    start_s = time.monotonic() - whole.began_s
    assert whole.end(signal.SIGTERM)[0] == 0
    for moment in range(MOMENTS):
        number = signal.SIGINT if moment % 2 else signal.SIGTERM
        # Half of them on a new directory, which is set up, half on one that was begun before.
        start = Start(tmp_path / ("data" if moment % 4 < 2 else str(moment)))
        start.says_something_within(start_s * moment / MOMENTS)
        code, errors = start.end(number)
        assert (code, "Traceback" in errors) == (0, False), f"{number.name} at {moment} of {MOMENTS}: {errors}"
    last = Start(tmp_path / "data", "--log-format", "json", "--log-level", "info")
    assert last.says_something_within(PATIENCE_S)
    code, errors = last.end(signal.SIGINT)
    assert code == 0
    told = [json.loads(line)["message"] for line in errors.splitlines()]
    assert [each for each in told if " is ready: PLAINTEXT on port " in each]
    assert told[-1] == "Broker 1 is stopped"


@pytest.mark.parametrize(
    ("words", "ends_cleanly"),
    [
        (["start", "--help"], True),
        (["cluster", "--help"], True),
        (["cluster", "start-broker", "2", "--help"], False),
        (["cluster", "--data", "x", "status", "--help"], False),
        (["topics", "--help"], False),
    ],
)
def test_only_what_runs_until_a_signal_comes_takes_it_for_success(
    words: list[str], ends_cleanly: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken: list[int] = []
    monkeypatch.setattr(sys, "argv", ["ottla", *words])
    monkeypatch.setattr(signal, "signal", lambda number, handler: taken.append(number))
    with pytest.raises(SystemExit):
        command.main()
    assert (signal.SIGTERM in taken) is ends_cleanly
