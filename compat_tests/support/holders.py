"""A process that holds the coordination tree of a cluster for tests, where an ensemble of ZooKeepers would be."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from pathlib import Path

from compat_tests.support.brokers import suspend

from ottla.server.cluster.coordination.tree_server import SOCKET_NAME

START_S = 60.0
PROGRAM = """
import sys, trio
from pathlib import Path
from ottla.server.cluster.coordination.tree_server import hold_tree

async def main():
    async with trio.open_nursery() as nursery:
        await nursery.start(hold_tree, Path(sys.argv[1]), Path(sys.argv[2]))
        print("serving", flush=True)

trio.run(main)
"""


class TreeHolder:
    """Its tree outlives any number of deaths. It is stopped by SIGKILL alone, as nothing else may be needed."""

    servers = ()

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.address = str(directory / SOCKET_NAME)

    @property
    def settings(self) -> dict[str, str]:
        """Of its members. The time is that of `settings_of`."""
        return {"coordination.socket": self.address, "coordination.session.timeout.ms": "3000"}

    def start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        with (self._directory / "log.txt").open("ab") as log:
            command = [sys.executable, "-c", PROGRAM, str(self._directory), self.address]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_S)
        said = self._process.stdout.readline() if readable else b""
        assert said == b"serving\n", f"nobody holds the tree: {(self._directory / 'log.txt').read_text()[-4000:]}"

    def leader(self) -> TreeHolder:
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        suspend(self._process)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
