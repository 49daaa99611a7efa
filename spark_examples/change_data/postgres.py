"""A PostgreSQL of one's own, ready for logical replication, which is gone when it is closed.

It needs Debian's package `postgresql`. Everybody on this machine may log in. PostgreSQL refuses to run as root; for root it runs as the
user that the package made.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

USER = "postgres"
HOST = "127.0.0.1"


class Postgres:
    """Server with an empty database called `postgres`."""

    def __init__(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
        if not found:
            sys.exit("PostgreSQL is not on this machine (Debian: apt-get install postgresql)")
        self._bin = found[-1]
        self._folder = Path(tempfile.mkdtemp(prefix="change-data-"))
        self._prefix: list[str] = []
        if os.geteuid() == 0:
            shutil.chown(self._folder, USER)
            self._prefix = ["runuser", "-u", USER, "--"]
        with socket.create_server((HOST, 0)) as free:
            self.port = free.getsockname()[1]

    def start(self) -> None:
        """Make the database and its server. Ends the program if they cannot be made."""
        # A database that is thrown away needs no fsync.
        options = (
            f"-p {self.port} -c wal_level=logical -c listen_addresses={HOST} -c unix_socket_directories= -c fsync=off"
        )
        self._run("initdb", "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync")
        self._run("pg_ctl", "start", "-w", "-o", options, "-l", str(self._folder / "log.txt"))

    def close(self) -> None:
        if (self._folder / "data" / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "-m", "immediate")
        shutil.rmtree(self._folder)

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._prefix, self._bin / program, "-D", self._folder / "data", *arguments]
        # Not a pipe: the server would hold it open.
        done = subprocess.run(
            command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
        )
        if done.returncode:
            sys.exit(f"{program} ends with {done.returncode}; its files are in {self._folder}")

    def run(self, sql: str) -> list[str]:
        """Run statements, each in a transaction of its own; returns the lines of their results. Ends the program at an error."""
        command = [self._bin / "psql", "-h", HOST, "-p", str(self.port), "-U", USER, "-qAtX", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run(command, input=sql, text=True, capture_output=True, check=False)
        if done.returncode:
            sys.exit(f"PostgreSQL refuses it: {done.stderr}")
        return done.stdout.splitlines()
