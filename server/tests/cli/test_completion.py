"""Shells complete commands, options, settings and files, from the parsers of the commands."""

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.cli.cli import COMMANDS, main, parser_for
from ottla.server.cli.command_line import options_of, shown_actions
from ottla.server.cli.completion import FILES, candidates
from ottla.server.config.broker_config import known_names

DEADLINE_S = 60


def texts(line: str) -> list[str]:
    return [each.text for each in candidates(line)]


def test_commands_are_completed() -> None:
    assert texts("ottla ") == list(COMMANDS)
    assert texts("ottla ce") == ["certificates"]
    assert texts("/usr/bin/ottla ce") == ["certificates"]
    assert texts("DEBUG=1 ottla ce") == ["certificates"]
    assert texts("ottla nonsense ") == []


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_of_each_command_is_completed(command: str) -> None:
    parser, _ = parser_for([command])
    (commands,) = (each for each in parser._actions if each.choices and command in each.choices)
    assert commands.choices is not None
    of_command = dict(commands.choices)[command]
    assert texts(f"ottla {command} -") == list(options_of(of_command))
    assert all("\n" not in each.what for each in candidates(f"ottla {command} -"))
    # What is meant to be typed is completed, or is something that nobody can guess.
    assert all(each.help for each in shown_actions(of_command))


def test_commands_and_their_actions_are_completed_behind_help() -> None:
    assert texts("ottla help topi") == ["topics"]
    assert texts("ottla help topics cr") == ["create"]
    assert texts("ottla help nothing ") == texts("ottla help topics create ") == texts("ottla help start ") == []


def test_settings_are_completed_and_their_values() -> None:
    assert texts("ottla start --override ") == [f"{name}=" for name in sorted(known_names())]
    assert texts("ottla start --override log.retention.h") == ["log.retention.hours="]
    assert texts("ottla start --override=log.retention.h") == ["--override=log.retention.hours="]
    assert texts("ottla cluster --override log.cleanup.policy=") == [
        "log.cleanup.policy=compact",
        "log.cleanup.policy=delete",
    ]
    assert texts("ottla start --override auto.create.topics.enable=f") == ["auto.create.topics.enable=false"]
    assert texts("ottla start --override nonsense=") == []
    assert texts("ottla topics create orders -c retention.") == ["retention.bytes=", "retention.ms="]
    assert texts("ottla topics alter orders --config=compression.type=l") == ["--config=compression.type=lz4"]
    assert texts("ottla generate clicks -c cleanup.policy=c") == ["cleanup.policy=compact"]
    assert texts("ottla settings share.auto") == ["share.auto.offset.reset"]


def test_files_are_left_to_the_shell() -> None:
    for line in (
        "ottla start ",
        "ottla start some/pa",
        "ottla cluster --data ",
        "ottla start --accept-empty-log-dir=x",
    ):
        assert candidates(line) == [FILES], line
    assert candidates("ottla start server.properties ") == []
    assert candidates("ottla cluster --brokers ") == []
    assert candidates("ottla start -- -") == [FILES]


@given(st.text(alphabet=st.sampled_from("ottla strtcmpeid-='\" \\\n\t:.é$"), max_size=40))
def test_any_line_has_an_answer(line: str) -> None:
    found = candidates(f"ottla {line}")
    assert len(found) <= len(known_names()) + 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("strat", "ottla has no command strat; did you mean start?"),
        ("stat", "ottla has no command stat; did you mean status?"),
        ("-b localhost:9092 status", "options follow the command: ottla status -b ..."),
        ("topics list orders", "unrecognized arguments: orders (ottla topics list --help)"),
        ("start --overide num.partitions=1", "ottla start has no option --overide; did you mean --override?"),
        ("start --overide=num.partitions=1", "did you mean --override?"),
        ("certificates --brokr broker1", "did you mean --broker?"),
        ("settings --jsn", "did you mean --json?"),
        ("--verison", "ottla has no option --verison; did you mean --version?"),
        ("start --zzz", "ottla start has no option --zzz (ottla start --help)"),
        ("zzz", "ottla has no command zzz (ottla --help)"),
        ("completion tcsh", "ottla: tcsh: must be bash, zsh or fish (ottla completion --help)"),
        ("cluster stop-broker 2", "ottla: stop-broker: must be status or start-broker (ottla cluster --help)"),
        (
            "consume --commit often t",
            "ottla: --commit often: must be regularly, each, end or never (ottla consume --help)",
        ),
        ("certificates", "the following arguments are required: FOLDER"),
        ("cluster --brokers", "expected one argument"),
        ("cluster --brokers many", "many is not a number"),
        ("start --override", "expected one argument"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(arguments: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main(shlex.split(arguments))
    except SystemExit as end:
        code = end.code
    streams = capsys.readouterr()
    assert (code, streams.out, streams.err.count("\n")) == (2, "", 1)
    assert streams.err.startswith("ottla: ")
    assert words in streams.err


def test_a_value_is_not_taken_for_a_misspelt_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["start", "--over", "num.partitions=x"]) == 2  # one that begins like this is meant
    assert "num.partitions" in capsys.readouterr().err
    assert main(["start", "--override", "listeners=x", "--", "--overide"]) == 2
    assert "cannot read --overide" in capsys.readouterr().err


def test_a_reader_who_has_seen_enough_gets_no_traceback(command: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run([command, "settings"], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")


# ---------------------------------------------------------------------- in the shells themselves


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """A command called ottla, which the scripts ask."""
    file = tmp_path / "bin" / "ottla"
    file.parent.mkdir()
    program = "import sys; from ottla.__main__ import main; sys.exit(main())"
    file.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(program)} "$@"\n')
    file.chmod(0o755)
    return file


@pytest.fixture
def surroundings(command: Path, tmp_path: Path) -> dict[str, str]:
    path = f"{command.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(tmp_path), "TERM": "dumb", "PYTHONWARNINGS": ""}


def shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name} here")
    return found


BASH = """
eval "$(ottla completion bash)"
complete_line() { COMP_LINE=$1 COMP_POINT=${#1}; _ottla; printf '<%s>\\n' "${COMPREPLY[@]}"; }
complete_line 'ottla star'
complete_line 'ottla start --override log.retention.h'
complete_line 'ottla start --override log.cleanup.policy=c'
complete_line 'ottla start '
complete -p ottla
"""


def test_bash_completes(surroundings: dict[str, str]) -> None:
    ended = subprocess.run(
        [shell("bash"), "--norc"], input=BASH, env=surroundings, capture_output=True, text=True, check=True
    )
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        "<start >",
        "<log.retention.hours=>",
        "<compact >",
        "<>",
        "complete -o default -o nospace -F _ottla ottla",
    ]


FISH = """
ottla completion fish | source
complete -C 'ottla star'
complete -C 'ottla start --override log.retention.h'
cd (mktemp -d); touch a.properties
complete -C 'ottla start a.p'
"""


def test_fish_completes(surroundings: dict[str, str]) -> None:
    ended = subprocess.run(
        [shell("fish"), "--no-config"], input=FISH, env=surroundings, capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines() == [
        "start\trun a broker in the foreground",
        "log.retention.hours=",
        "a.properties",
    ]


def test_zsh_completes(surroundings: dict[str, str], tmp_path: Path) -> None:
    program = shell("zsh")
    setup = 'PROMPT="ready> "; autoload -U compinit; compinit -D -u; eval "$(ottla completion zsh)"\n'
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execve(program, ["zsh", "-f", "-i"], surroundings)
    try:
        os.write(terminal, setup.encode())
        read_until(terminal, r"ready> $")
        os.write(terminal, b"ottla star\t")
        read_until(terminal, r"ottla start $")
        os.write(terminal, b"--override log.retention.h\t")
        read_until(terminal, r"log\.retention\.hours=$")
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def read_until(terminal: int, pattern: str) -> None:
    """Read what a terminal shows until it ends like this."""
    shown, until_s = "", time.monotonic() + DEADLINE_S
    while not re.search(pattern, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x07", "", shown)):
        assert time.monotonic() < until_s, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 4096).decode()
