"""A broker in a thread of this process, and commands that are run beside it, for tests of what commands change."""

from __future__ import annotations

import io
import json
import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio

from ottla.server.broker import Broker
from ottla.server.cli.cli import main
from ottla.server.cli.client.cluster import Cluster, parse_bootstrap
from ottla.server.cli.client.security import Security
from ottla.server.config.broker_config import load_config
from ottla.server.serving import serve
from ottla.server.serving_state import Stop

FAR_S = 60.0
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}


@contextmanager
def broker_in_thread(directory: Path, **more: str) -> Iterator[tuple[Broker, str]]:
    """A broker that serves, and the address of its first listener; `more`: settings by name, with _ for dots and __ for _."""
    named = {name.replace("__", "/").replace("_", ".").replace("/", "_"): text for name, text in more.items()}
    texts = SETTINGS | {"log.dirs": str(directory)} | named
    config = load_config(texts)
    found: list[tuple[Broker, trio.lowlevel.TrioToken]] = []
    stop, ready, ended = Stop(), threading.Event(), threading.Event()
    problems: list[BaseException] = []

    def on_ready(broker: Broker) -> None:
        found.append((broker, trio.lowlevel.current_trio_token()))
        ready.set()

    def run() -> None:
        try:
            trio.run(partial(serve, config, stop=stop, on_ready=on_ready))
        except BaseException as problem:  # noqa: BLE001 - told in the test's own thread
            problems.append(problem)
        finally:
            ended.set()
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(FAR_S) and not problems, problems
    broker, token = found[0]
    port = broker.listeners[0].port
    try:
        yield broker, f"127.0.0.1:{port}"
    finally:
        if not ended.is_set():
            token.run_sync_soon(stop.requested.set)
        thread.join(FAR_S)
    assert not problems and not thread.is_alive(), problems


@contextmanager
def local_zone(name: str) -> Iterator[None]:
    """Local times are those of a zone, such as America/New_York."""
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TZ", name)
            time.tzset()
            yield
    finally:
        time.tzset()


class Told(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def refusal(self, code: int = 1) -> str:
        """Return the one line on stderr of a command that failed with this exit code."""
        assert (self.code, self.out, self.err.count("\n")) == (code, "", 1), self
        return self.err.removeprefix("ottla: ").rstrip("\n")


class Terminal(io.StringIO):
    """Stdin that claims to be a terminal, with typed text."""

    def isatty(self) -> bool:
        return True


def _pipe(text: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode("utf-8", "surrogateescape")), "utf-8")


class Shell:
    """Runs commands beside a broker. `answer` is what somebody at the terminal types; None: there is no terminal."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.bootstrap, self._capsys, self._monkeypatch = bootstrap, capsys, monkeypatch

    def __call__(self, *words: str, answer: str | None = None, stdin: str = "") -> Told:
        self._capsys.readouterr()
        self._monkeypatch.setattr("sys.stdin", _pipe(stdin) if answer is None else Terminal(answer))
        self._monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", self.bootstrap)
        try:
            code = main(words)
        except SystemExit as ended:
            code = int(str(ended.code))
        return Told(code, *self._capsys.readouterr())

    def undo(self, told: Told) -> list[Told]:
        """Run the commands that a change has named to take it back."""
        lines = [line.removeprefix("To undo: ") for line in told.lines if line.startswith("To undo: ")]
        assert lines, told
        done = [self(*shlex.split(line)[1:], answer="y\n") for line in lines]
        assert all(each.code == 0 for each in done), done
        return done

    @contextmanager
    def cluster(self) -> Iterator[Cluster]:
        """A client, to ask over the wire whether a command has done what it says."""
        cluster = Cluster.reached(parse_bootstrap(self.bootstrap), Security(), FAR_S)
        try:
            yield cluster
        finally:
            cluster.close()
