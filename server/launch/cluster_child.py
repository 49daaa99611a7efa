"""A process of `ottla cluster`: its output goes to its log, and its end is noticed whatever else fails."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from ottla.replication.log.atomic_files import PRIVATE_FILE
from ottla.replication.system import dying_with_this_process, pidfd_open

SERVING: Final = b"listening on "
LOOK_AGAIN_S: Final = 0.1  # between two looks at a process whose end nobody tells


class Child:
    """A process of a cluster. Its output is appended to its log."""

    def __init__(self, name: str, command: list[str], log_path: Path) -> None:
        self.name, self.log_path = name, log_path
        self.exit_status: int | None = None
        self.serving_or_ended, self.ended = trio.Event(), trio.Event()
        self.ended.set()  # until it is started
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def start(self) -> None:
        """Start the process. Call this in the main thread: a child dies with the thread that started it."""
        with open(self.log_path, "ab", opener=_for_us_alone) as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                preexec_fn=dying_with_this_process(),  # noqa: PLW1509 - other threads write the tree's journal, and hold no lock that it needs
            )
        self.exit_status = None
        self.serving_or_ended, self.ended = trio.Event(), trio.Event()

    @property
    def pid(self) -> int:
        """The number of the process that runs, or ran last."""
        return self._process.pid if self._process is not None else 0

    async def until_ended(self) -> bool:
        """Write down what the process says, and wait for its end; gives whether it has ever served."""
        assert self._process is not None
        with suppress(OSError, trio.BrokenResourceError):  # what it says may be lost, its end may not
            await self._listen()
        has_served = self.serving_or_ended.is_set()
        await _wait_for(self._process)
        self.exit_status = self._process.returncode
        self.serving_or_ended.set()
        self.ended.set()
        return has_served

    async def _listen(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        with self._process.stdout as pipe:
            descriptor = os.dup(pipe.fileno())  # both Popen and the stream close theirs
        async with trio.lowlevel.FdStream(descriptor) as said:
            last = b""
            async for chunk in said:
                self._write_down(chunk)
                # The line may arrive in pieces.
                last = (last + chunk)[-4096:]
                if SERVING in last:
                    self.serves()

    def _write_down(self, chunk: bytes | bytearray) -> None:
        # There may be no room, or somebody has put something else in the place of the log.
        with suppress(OSError), open(self.log_path, "ab", opener=_for_us_alone) as log:
            log.write(chunk)

    def serves(self) -> None:
        self.serving_or_ended.set()

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and not self.ended.is_set():
            self._process.send_signal(number)

    @property
    def end(self) -> str:
        """Exit status or signal of the ended process, for people."""
        assert self.exit_status is not None
        by = f"signal {-self.exit_status}" if self.exit_status < 0 else f"exit status {self.exit_status}"
        return f"has ended ({by}; its log is {self.log_path})"

    def epitaph(self) -> str:
        """End of the process in one line, with the last line of its log if that can be read."""
        words: list[str] = []
        with suppress(OSError), self.log_path.open("rb") as log:
            # Not before this run: the log has the words of earlier ones.
            log.seek(max(self._log_start, self.log_path.stat().st_size - 4096))
            words = log.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(words) if line.strip()), "")
        return f"{self.name} {self.end}{': ' if last else ''}{last}"


def _for_us_alone(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE_FILE)


async def _wait_for(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process. Nobody else waits for it, so the number stays its own until then."""
    with suppress(OSError):  # there is no descriptor for this; or it has ended, and somebody asked for its status
        if pidfd_open is not None:
            descriptor = pidfd_open(process.pid)
            try:
                await trio.lowlevel.wait_readable(descriptor)
            finally:
                os.close(descriptor)
    while process.poll() is None:
        await trio.sleep(LOOK_AGAIN_S)
