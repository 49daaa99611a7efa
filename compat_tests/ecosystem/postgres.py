"""Debian's PostgreSQL as a process that ends with its test, ready for logical replication."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from compat_tests.support.brokers import free_port, wait_until

USER = "postgres"


class Postgres:
    """Everybody on this machine may log in. It refuses to run as root, so then it has another user and a folder of its own."""

    def __init__(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if not found:
            pytest.skip("PostgreSQL is not on this machine (`make ecosystem` brings it)")
        self.port = free_port()
        self._bin = found[-1].parent
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._as_user = []
        if os.geteuid() == 0:
            shutil.chown(self._folder, USER)
            ids = pwd.getpwnam(USER)
            self._as_user = ["setpriv", f"--reuid={ids.pw_uid}", f"--regid={ids.pw_gid}", "--clear-groups"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Postgres":
        data = self._folder / "data"
        make = [*self._as_user, self._bin / "initdb", "-D", data, "-U", USER, "-A", "trust", "-N", "-E", "UTF8"]
        subprocess.run(make, check=True, capture_output=True, cwd=self._folder, timeout=120)
        settings = {
            "wal_level": "logical",
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        with (self._folder / "log.txt").open("wb") as log:
            command = [*self._as_user, self._bin / "postgres", "-D", data, "-p", str(self.port), *options]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)
        wait_until(self._serves, f"PostgreSQL serves: {self._folder}")
        return self

    def _serves(self) -> bool:
        asked = [self._bin / "pg_isready", "-h", "127.0.0.1", "-p", str(self.port), "-q"]
        return subprocess.run(asked, check=False).returncode == 0

    def run(self, sql: str) -> list[list[str]]:
        """Run statements, each in a transaction of its own, and return the rows."""
        command = [
            self._bin / "psql",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-U",
            USER,
            "-qAt",
            "-v",
            "ON_ERROR_STOP=1",
        ]
        done = subprocess.run(command, input=sql, text=True, capture_output=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return [line.split("|") for line in done.stdout.splitlines()]

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
        shutil.rmtree(self._folder)
