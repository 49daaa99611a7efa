"""Does every command end as it should when its stdout or stderr is closed, full, unread, or of an encoding that lacks characters?"""

from __future__ import annotations

import os
import pkgutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from compat_tests.support.brokers import OttlaProcess, free_port, wait_until

from ottla.server import cli as commands
from ottla.server.cli.cli import COMMANDS
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

VALUE = "\U0001f600 \u20ac \u202e \x1b[31m"
GROUP = "gr\u00fcppe-\u20ac"
LONG_RUNNING = ("start", "stop", "cluster", "registry", "rest")  # tested on their own
HANDED_ON = ("spark-submit", "test")  # another program has the streams
PROGRAM = [sys.executable, "-m", "ottla"]

ARGUMENTS: dict[str, Callable[[str, Path], list[str]]] = {
    "status": lambda bootstrap, folder: ["-b", bootstrap],
    "topics": lambda bootstrap, folder: ["list", "-b", bootstrap],
    "groups": lambda bootstrap, folder: ["describe", GROUP, "-b", bootstrap],
    "acls": lambda bootstrap, folder: ["-b", bootstrap],
    "users": lambda bootstrap, folder: ["-b", bootstrap],
    "quotas": lambda bootstrap, folder: ["-b", bootstrap],
    "tokens": lambda bootstrap, folder: ["--help"],  # only users that have logged in get delegation tokens
    "configs": lambda bootstrap, folder: ["-b", bootstrap],
    "transactions": lambda bootstrap, folder: ["-b", bootstrap],
    "why": lambda bootstrap, folder: ["told", "0", "0", "-b", bootstrap],
    "spread": lambda bootstrap, folder: ["--dry-run", "-b", bootstrap],
    "dirs": lambda bootstrap, folder: ["-b", bootstrap],
    "reassign": lambda bootstrap, folder: ["-b", bootstrap],
    "elect": lambda bootstrap, folder: ["preferred", "--all-topics", "-b", bootstrap],
    "features": lambda bootstrap, folder: ["-b", bootstrap],
    "produce": lambda bootstrap, folder: ["told", "-T", "-b", bootstrap],
    "consume": lambda bootstrap, folder: ["told", "-e", "-q", "-c", "1", "-b", bootstrap],
    "bench": lambda bootstrap, folder: ["--records", "10", "--round-trips", "1", "-b", bootstrap],
    "generate": lambda bootstrap, folder: ["clicks", "--records", "10", "-t", folder.name, "-b", bootstrap],
    "spark": lambda bootstrap, folder: [],
    "example": lambda bootstrap, folder: [],
    "certificates": lambda bootstrap, folder: [str(folder / "tls-\u20ac")],
    "settings": lambda bootstrap, folder: ["--markdown"],
    "logs": lambda bootstrap, folder: [str(folder / "t\u20ac-0"), "--records"],
    "check": lambda bootstrap, folder: [str(folder / "old-\u20ac")],
    "completion": lambda bootstrap, folder: ["zsh"],
    "ping": lambda bootstrap, folder: [bootstrap],
    "help": lambda bootstrap, folder: [],
    "version": lambda bootstrap, folder: [],
}
"""What each command is given so that it has something to print, some of it in no encoding but UTF-8."""

ACTIONS = (
    "topics create told --if-not-exists",
    "topics describe told --all-configs",
    "topics alter told -c retention.ms=-1 --dry-run",
    "topics trim told --to-latest --dry-run",
    f"groups reset {GROUP} --topic told --to-latest",
    f"groups members {GROUP}",
    f"groups delete {GROUP} --dry-run",
    f"groups delete-offsets {GROUP} --topic told --dry-run",
    "quotas set --user alice consumer_byte_rate=5 --dry-run",
    "configs topic told --all",
    "configs topic told --set retention.ms=5 --dry-run",
    "transactions hanging",
    "dirs topics",
    "status --json",
    "features describe --json",
    "consume told -J -e -q",
    "consume told -g reader -e -q",
    "consume told -g sharing --share -n 1 -q",
    "topics --help",
    "help consume",
    "--help",
    "--version",
    "settings log.retention.ms",
    "completion bash --line=ottla",
)
"""Command lines that print something, in addition to those of ARGUMENTS."""

USUAL = dict.fromkeys(COMMANDS, 0) | {"check": 1}
"""Exit codes of these command lines: an index is missing in the directory that is checked."""

SHORT = sorted(set(COMMANDS) - {*LONG_RUNNING, *HANDED_ON})
TROUBLES = ("closed", "full", "unread")


@pytest.fixture(scope="module")
def told_by(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker with a topic `told` and a group."""
    rules = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS"}
    process = OttlaProcess(tmp_path_factory.mktemp("broker"), rules).start()
    _done("topics", "create", "told", "-b", process.bootstrap)
    _done("produce", "told", "-b", process.bootstrap, stdin=VALUE.encode())
    _done("groups", "reset", GROUP, "--topic", "told", "--to-earliest", "--execute", "-b", process.bootstrap)
    # By default a share group would begin after the record.
    _done("configs", "group", "sharing", "--set", "share.auto.offset.reset=earliest", "-b", process.bootstrap)
    yield process.bootstrap
    process.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a log, and a data directory."""
    for name in ("t\u20ac-0", "old-\u20ac/t-0"):
        (tmp_path / name).mkdir(parents=True)
        batch = encode_batch([Record(0, 0, "k\u00fc".encode(), VALUE.encode(), (("h\u20ac".encode(), b"\xff"),))])
        (tmp_path / name / f"{0:020}.log").write_bytes(batch)
    return tmp_path


def _done(*arguments: str, stdin: bytes = b"") -> None:
    subprocess.run([*PROGRAM, *arguments], input=stdin, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def broken(trouble: str) -> Iterator[Callable[[int], dict[str, object]]]:
    """What makes a stream of a new process one that is closed, full, or read by nobody; by its number, for Popen."""
    if trouble == "closed":
        yield lambda number: {"preexec_fn": lambda: os.close(number)}
        return
    if trouble == "full":
        descriptor = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, descriptor = os.pipe()
        os.close(reading)
    yield lambda number: {("stdin", "stdout", "stderr")[number]: descriptor}
    os.close(descriptor)


@contextmanager
def started(*arguments: str, **streams: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process that serves, which the test stops; it is killed if that comes to nothing."""
    process = subprocess.Popen([*PROGRAM, *arguments], **{"stdin": subprocess.DEVNULL} | streams)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def command_line(command: str, bootstrap: str, folder: Path) -> list[str]:
    return [*PROGRAM, command, *ARGUMENTS[command](bootstrap, folder)]


def test_every_command_is_tested() -> None:
    found = {each.name.replace("_", "-") for each in pkgutil.iter_modules(commands.__path__) if not each.ispkg}
    texts = {name: Path(commands.__path__[0], f"{name.replace('-', '_')}.py").read_text() for name in found}
    runs = {name for name, text in texts.items() if "\ndef run(options" in text or "\ndef run_words(" in text}
    assert runs <= set(COMMANDS) == {*ARGUMENTS, *LONG_RUNNING, *HANDED_ON}


@pytest.mark.parametrize("command", SHORT)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_command_whose_output_nobody_gets_ends_in_order(
    command: str, trouble: str, told_by: str, folder: Path
) -> None:
    with broken(trouble) as of_stream:
        ended = subprocess.run(
            command_line(command, told_by, folder),
            **{"input": b"one\n", "stderr": subprocess.PIPE, "stdout": subprocess.PIPE} | of_stream(1),
            check=False,
        )
    said = ended.stderr.decode()
    if trouble == "unread":
        assert (ended.returncode, said) == (USUAL[command], "")
        return
    why = "it is closed" if trouble == "closed" else "No space left on device"
    assert (ended.returncode, said) == (1, f"ottla: cannot write to stdout: {why}\n")


@pytest.mark.parametrize("line", ACTIONS)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_an_action_whose_output_nobody_gets_ends_in_order(line: str, trouble: str, told_by: str) -> None:
    with broken(trouble) as of_stream:
        ended = subprocess.run(
            [*PROGRAM, *line.split()],
            env={**os.environ, "OTTLA_BOOTSTRAP_SERVERS": told_by},
            **{"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "stdout": subprocess.PIPE} | of_stream(1),
            check=False,
        )
    why = {"closed": "it is closed", "full": "No space left on device"}.get(trouble)
    wanted = (0, "") if why is None else (1, f"ottla: cannot write to stdout: {why}\n")
    assert (ended.returncode, ended.stderr.decode()) == wanted


@pytest.mark.parametrize("trouble", TROUBLES)
def test_consume_commits_no_record_that_it_could_not_write_out(trouble: str, told_by: str) -> None:
    group = f"reader-{trouble}"
    read = [*PROGRAM, "consume", "told", "-e", "-q", "-b", told_by]
    with broken(trouble) as of_stream:
        ended = subprocess.run([*read, "-g", group], stderr=subprocess.PIPE, **of_stream(1), check=False)
    assert ended.returncode == (0 if trouble == "unread" else 1)
    whole = subprocess.run(read, stdout=subprocess.PIPE, check=True).stdout
    assert subprocess.run([*read, "-g", group], stdout=subprocess.PIPE, check=True).stdout == whole != b""


# One part of the program refuses the arguments of all commands, so each trouble is tried with a third of them.
REFUSED = [(command, TROUBLES[number % len(TROUBLES)]) for number, command in enumerate(SHORT)]


@pytest.mark.parametrize(("command", "trouble"), REFUSED)
def test_a_refusal_that_nobody_gets_ends_in_order(command: str, trouble: str) -> None:
    with broken(trouble) as of_stream:
        run = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | of_stream(2)
        wrong = subprocess.run([*PROGRAM, command, "--nonsense"], **run, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, b"")


@pytest.mark.parametrize("command", SHORT)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_command_whose_errors_nobody_gets_ends_in_order(
    command: str, trouble: str, told_by: str, folder: Path
) -> None:
    with broken(trouble) as of_stream:
        run = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | of_stream(2)
        right = subprocess.run(command_line(command, told_by, folder), **run, check=False)
    assert right.returncode == USUAL[command] and b"Traceback" not in right.stdout


# What latin-1 lacks ascii lacks, too: it is tried with some of them.
ENCODED = [(command, encoding) for command in SHORT for encoding in ("ascii", "utf-8:strict")]
ENCODED += [(command, "latin-1") for command in ("groups", "logs", "consume", "check")]


@pytest.mark.parametrize(("command", "encoding"), ENCODED)
def test_a_command_escapes_what_an_encoding_lacks(command: str, encoding: str, told_by: str, folder: Path) -> None:
    ended = subprocess.run(
        command_line(command, told_by, folder),
        input=b"one\n",
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (USUAL[command], b"")
    assert b"\x1b[31m" not in ended.stdout or command == "consume"  # which prints what records hold
    if command in ("groups", "logs", "certificates") and encoding == "ascii":
        assert b"\\u20ac" in ended.stdout


def test_a_closed_stdin_is_no_traceback(told_by: str, folder: Path) -> None:
    with broken("closed") as of_stream:
        for command in SHORT:
            ended = subprocess.run(
                command_line(command, told_by, folder), **of_stream(0), capture_output=True, check=False
            )
            assert ended.returncode == (2 if command == "produce" else USUAL[command]), (command, ended.stderr)
            assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_broker_that_cannot_announce_itself_serves_all_the_same(trouble: str, tmp_path: Path) -> None:
    own = ["--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override", f"log.dirs={tmp_path / 'data'}"]
    log = tmp_path / "log"
    with (
        broken(trouble) as of_stream,
        log.open("wb") as errors,
        started("start", *own, **{"stderr": errors} | of_stream(1)) as process,
    ):
        wait_until(lambda: " is ready: " in log.read_text() or process.poll() is not None, "the broker serves")
        port = log.read_text().split(" is ready: PLAINTEXT on port ")[1].split()[0]
        _done("ping", f"127.0.0.1:{port}")
        process.terminate()
        assert process.wait(60) == 0
    assert "Traceback" not in log.read_text()
    lost = "The announcement is lost: cannot write to stdout: No space left on device"
    assert (lost in log.read_text()) == (trouble == "full")


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_broker_that_cannot_log_serves_all_the_same(trouble: str, workers: str, tmp_path: Path) -> None:
    own = ["--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override", f"log.dirs={tmp_path / 'data'}"]
    with (
        broken(trouble) as of_stream,
        started("start", "--workers", workers, *own, **{"stdout": subprocess.PIPE} | of_stream(2)) as process,
    ):
        assert process.stdout is not None
        address = next(line for line in process.stdout if line.startswith(b"listening on ")).decode().split()[-1]
        _done("ping", address)
        process.stdout.close()  # as `head -9` does
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_cluster_that_cannot_say_anything_serves_all_the_same(trouble: str, number: int, tmp_path: Path) -> None:
    own = ["--data", str(tmp_path / "data")]
    asking = [*PROGRAM, "cluster", "status", *own]
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with (
        broken(trouble) as of_stream,
        started("cluster", *own, "--brokers", "1", **streams | of_stream(number)) as process,
    ):
        wait_until(
            lambda: (
                subprocess.run(asking, capture_output=True, check=False).returncode == 0 or process.poll() is not None
            ),
            "the cluster answers",
        )
        told = subprocess.run(asking, capture_output=True, check=True).stdout.decode()
        pid = int(told.split("(pid ")[1].split(")")[0])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("command", ["registry", "rest"])
def test_a_service_that_cannot_say_anything_serves_all_the_same(
    command: str, trouble: str, number: int, told_by: str
) -> None:
    port = free_port()
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    def serves() -> bool:
        try:
            return urlopen(f"http://127.0.0.1:{port}/", timeout=5).read() == b"{}"
        except OSError:
            return process.poll() is not None

    with (
        broken(trouble) as of_stream,
        started(command, "--listen", f"127.0.0.1:{port}", "-b", told_by, **streams | of_stream(number)) as process,
    ):
        wait_until(serves, f"{command} serves")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_start_that_is_refused_says_so_wherever_it_can(tmp_path: Path) -> None:
    port = free_port()
    for trouble in ("closed", "full"):
        with broken(trouble) as of_stream:
            wrong = [
                *PROGRAM,
                "start",
                "--override",
                f"listeners=PLAINTEXT://127.0.0.1:{port}",
                "--override",
                "nothing=1",
            ]
            ended = subprocess.run(
                wrong, **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE} | of_stream(2), check=False
            )
        assert (ended.returncode, ended.stdout) == (2, b"")
