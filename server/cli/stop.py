"""ottla stop [server.properties | --data FOLDER] [--timeout SECONDS]"""

from __future__ import annotations

import argparse
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ottla.replication import system
from ottla.replication.log.locks import holder_of
from ottla.replication.log.names import LOCK
from ottla.server.cli.command_line import EXIT_FAILED, EXIT_OK, EXIT_USAGE, fail, given_texts, seconds
from ottla.server.config.broker_config import ConfigError, default_data_directory
from ottla.server.config.server_config import FOLDER

TIMEOUT_S: Final = 60.0
LOOK_AGAIN_S: Final = 0.05
CONTROL: Final = ".control"

DESCRIPTION = """\
Stops the broker of a data directory, as Ctrl-C in its terminal does, and waits until it has ended. It hands over, flushes its logs
and ends in order. Who uses the directory is known by its lock, so that the right one is stopped whatever it listens on. Several
workers of one start are stopped together, and so are the brokers of `ottla cluster` if its folder is given.
"""

EXAMPLES = """\
examples:
  ottla stop                                     the broker of ~/.local/share/ottla
  ottla stop server.properties                   the broker that was started with this file
  ottla stop --data /srv/ottla                   the broker that has its data there
  ottla stop --data ~/.local/share/ottla/cluster
                                                 all brokers of an `ottla cluster`
"""


class NotStopped(Exception):
    """Error raised if there is no broker to stop, or it goes on. The text is one line for the user."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla stop`: the data directory and the patience."""
    file = "the settings file that it was started with, for its log.dirs"
    parser.add_argument("file", nargs="?", type=Path, metavar="server.properties", help=file)
    where = "its data directory, the first of log.dirs (default: $XDG_DATA_HOME/ottla)"
    parser.add_argument("--data", type=Path, metavar="FOLDER", help=where)
    wait = f"wait so long for its end (default: {TIMEOUT_S:g})"
    parser.add_argument("--timeout", type=seconds, default=TIMEOUT_S, metavar="SECONDS", help=wait)


def run(options: argparse.Namespace) -> int:
    """Stop the broker of the data directory and wait for its end; return the exit code."""
    try:
        chosen = _chosen(options)
    except ConfigError as error:
        return fail(str(error), EXIT_USAGE)
    folder = (chosen or default_data_directory()).absolute()
    try:
        hint = "" if chosen else "; --data FOLDER names another directory"
        pid = _pid_of(folder, hint)
        _end(pid, folder, options.timeout, lambda: _pid_of(folder, hint))
    except NotStopped as problem:
        return fail(str(problem), EXIT_FAILED)
    print(f"stopped: {folder} (pid {pid})")
    return EXIT_OK


def _chosen(options: argparse.Namespace) -> Path | None:
    """Return the directory of --data or of the settings file; None if the default is meant. Raises ConfigError."""
    data: Path | None = options.data
    if options.file is None:
        return data
    if data is not None:
        raise ConfigError("a settings file and --data both name the data directory: give one of them")
    texts = given_texts(options.file, [])
    named = (texts.get("log.dirs") or texts.get("log.dir") or "").split(",")[0].strip()
    return Path(named) if named else None


def _pid_of(folder: Path, hint: str) -> int:
    """Return the pid of the process that runs the broker, the workers or the cluster of `folder`. Raises NotStopped.

    `hint` ends the text of the error if there is none.
    """
    try:
        # The lock of several workers first: its holder is their supervisor, which stops all of them.
        locks = (str(folder / FOLDER / LOCK), str(folder / LOCK))
        pid = next((each for each in map(holder_of, locks) if each is not None), None)
    except PermissionError:
        raise NotStopped(f"{folder} belongs to another user, who may stop its broker") from None
    except OSError as error:
        raise NotStopped(f"cannot see who uses {folder}: {error.strerror or error}") from None
    if pid is None:
        pid = _pid_of_cluster(folder)
    if pid is None:
        raise NotStopped(f"no broker runs on {folder}{_elsewhere(folder) or hint}")
    if pid <= 0:
        raise NotStopped(f"the broker of {folder} runs in another container: stop it there")
    return pid


def _pid_of_cluster(folder: Path) -> int | None:
    """Return the pid of the `ottla cluster` that runs in `folder`; None if none does. Raises NotStopped."""
    try:
        if not (folder / CONTROL).exists():
            return None
    except OSError as error:
        raise NotStopped(f"cannot see who uses {folder}: {error.strerror or error}") from None
    from ottla.server.launch.cluster_control import ASKED_S, STATUS, Asked, NotRunning, Unanswered, ask

    try:
        pid = ask(folder, Asked(STATUS), timeout_s=ASKED_S).get("pid")
    except NotRunning:
        return None
    except Unanswered as problem:
        raise NotStopped(str(problem)) from None
    return pid if type(pid) is int and pid >= 0 else None


def _elsewhere(folder: Path) -> str:
    """Return a hint, if an `ottla cluster` runs in its default folder below `folder`; else nothing."""
    cluster = folder / "cluster"
    with suppress(NotStopped):  # for a hint alone
        return f"; an `ottla cluster` does: ottla stop --data {cluster}" if _pid_of_cluster(cluster) else ""
    return ""


def _end(pid: int, folder: Path, timeout_s: float, look_again: Callable[[], int]) -> None:
    """Send SIGTERM to a process and wait until it has ended. Raises NotStopped.

    `look_again` returns the pid of the process that has to be stopped, or raises NotStopped.
    """
    deadline_s = time.monotonic() + timeout_s
    try:
        descriptor = None if system.pidfd_open is None else system.pidfd_open(pid)
    except OSError:  # it has just ended, or a filter refuses
        descriptor = None
    try:
        # The process may have ended before there was a descriptor of it, and another one may have got its pid.
        if look_again() != pid:
            raise NotStopped(f"the broker of {folder} (pid {pid}) has just ended, and another one has begun")
        _terminate(pid, descriptor)
        while not _has_ended(pid, descriptor):
            if time.monotonic() >= deadline_s:
                raise NotStopped(
                    f"the broker of {folder} (pid {pid}) has not ended after {timeout_s:g} s; its log says what it is at"
                )
    except ProcessLookupError:
        pass
    except PermissionError:
        raise NotStopped(f"the broker of {folder} (pid {pid}) is another user's, who may stop it") from None
    except OSError as error:
        raise NotStopped(f"cannot stop the broker of {folder} (pid {pid}): {error.strerror or error}") from None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _terminate(pid: int, descriptor: int | None) -> None:
    if descriptor is not None and system.pidfd_send_signal is not None:
        system.pidfd_send_signal(descriptor, signal.SIGTERM)
    else:
        os.kill(pid, signal.SIGTERM)


def _has_ended(pid: int, descriptor: int | None) -> bool:
    """Wait a moment; return True if the process has ended. `descriptor`: its pidfd, None: there is none."""
    if descriptor is not None:
        return bool(select.select([descriptor], [], [], LOOK_AGAIN_S)[0])
    time.sleep(LOOK_AGAIN_S)
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return False
    return True
