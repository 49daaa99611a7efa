"""Common parts of commands that change a cluster: questions, failing steps, undo commands, and incomplete responses."""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.server.cli.changes import Step, agree, carry_out, report, undo_command
from ottla.server.cli.cli import parser_for
from ottla.server.cli.client.cluster import Cluster
from ottla.server.cli.client.configs import TOPIC, Resource, settings_of
from ottla.server.cli.client.groups import delete_offsets, delete_starts, set_starts
from ottla.server.cli.client.output import ConnectionLost, RequestFailed, UsageError, shown_command
from ottla.server.cli.command_line import option_of
from ottla.server.cli.replicas.moves import elect, reassign
from ottla.server.cli.security.users import _change
from ottla.server.tests.cli.commanded import Terminal
from ottla.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.wire.messages.elect_leaders import ElectLeadersResponse
from ottla.wire.messages.offsets import OffsetDeleteResponse
from ottla.wire.messages.partition_reassignments import AlterPartitionReassignmentsResponse
from ottla.wire.messages.scram_credentials import (
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
)
from ottla.wire.messages.share_group import AlterShareGroupOffsetsResponse, DeleteShareGroupOffsetsResponse


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def test_a_step_that_fails_names_those_before_it() -> None:
    done: list[str] = []
    steps = [Step("a is made", lambda: done.append("a")), Step("b is made", lambda: done.append("b"))]
    carry_out(steps)
    assert done == ["a", "b"]
    for error, words in (
        (RequestFailed("refused"), "refused; done before that: a is made, b is made"),
        (UsageError("too long"), "too long; done before that: a is made, b is made"),
        (ConnectionLost("lost"), "lost; it is not known whether c is made; done before that: a is made, b is made"),
    ):
        with pytest.raises(RequestFailed) as told:
            carry_out([*steps, Step("c is made", raising(error)), Step("never", raising(AssertionError()))])
        assert str(told.value) == words
    with pytest.raises(RequestFailed, match="^refused; nothing else was changed$"):
        carry_out([Step("c is made", raising(RequestFailed("refused")))])


def test_ctrl_c_says_what_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        carry_out([Step("a is made", lambda: None), Step("b is made", raising(KeyboardInterrupt()))])
    assert capsys.readouterr().err == (
        "ottla: interrupted; it is not known whether b is made; done before that: a is made\n"
    )


@pytest.mark.parametrize("answer", ["y\n", "YES\n", " yes \n"])
def test_a_question_is_agreed_to(
    answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    agree(argparse.Namespace(yes=False), "Delete \x1b[31mit\n")
    assert capsys.readouterr().err == "Delete \\x1b[31mit? [y/N] "


def test_ctrl_c_at_a_question_ends_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(Terminal):
        def readline(self, size: int | None = -1, /) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        agree(argparse.Namespace(yes=False), "Delete it")
    assert capsys.readouterr().err == "Delete it? [y/N] \n"


def test_without_a_stdin_there_is_nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UsageError, match="There is nobody to ask: give --yes"):
        agree(argparse.Namespace(yes=False), "Delete it")
    agree(argparse.Namespace(yes=True), "Delete it")


@pytest.mark.parametrize("name", ["plain", "with blank", "-x", "--all-topics", "it's", "a\tb"])
def test_an_undo_command_keeps_names_of_any_kind(name: str) -> None:
    options = argparse.Namespace(bootstrap_server="a:1", command_config="client.properties")
    line = undo_command(options, "groups", "reset", "--topic", "t:0", "--to-offset", "1", "--execute", names=[name])
    words = shlex.split(line)
    parser, _ = parser_for(words[1:])
    parsed = parser.parse_args(words[1:])
    assert (parsed.name, parsed.topic, parsed.bootstrap_server) == (name, ["t:0"], "a:1")
    assert str(parsed.command_config) == "client.properties" and option_of(parser, "--version") is not None


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize("name", ["a\nTo undo: rm -rf /", "it's\n\n", "\n", "plain"])
def test_a_name_with_line_breaks_stays_one_line_and_what_it_is(name: str) -> None:
    """A stranger's name of a group must not look like a line of this command."""
    line = shown_command(shlex.join(["printf", "%s", name]))
    assert "\n" not in line
    assert subprocess.run(["bash", "-c", line], stdout=subprocess.PIPE, text=True, check=True).stdout == name


def test_control_characters_in_a_former_value_are_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    options = argparse.Namespace(dry_run=False)
    report(options, {}, lambda: None, [undo_command(options, "topics", "alter", "-c", "a=\x1b[2J", names=["t"])])
    assert capsys.readouterr().out == "To undo: ottla topics alter t -c 'a=\\x1b[2J'\n"


class Silent(Cluster):
    """A cluster whose brokers answer without any result."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def coordinator(self, key: str, *, of_transaction: bool = False, timeout_s: float = 0.0) -> Any:
        return SimpleNamespace(ask=lambda request: self.answer)

    def controller(self) -> Any:
        return self.coordinator("")

    def ask_any(self, question: Callable[[Any], Any]) -> Any:
        return question(self.controller())


@pytest.mark.parametrize(
    ("answer", "ask"),
    [
        (ElectLeadersResponse(throttle_time_ms=0, replica_election_results=[]), lambda c: elect(c, 0, [("t", 0)])),
        (
            AlterPartitionReassignmentsResponse(throttle_time_ms=0, error_code=0, error_message=None, responses=[]),
            lambda c: reassign(c, {("t", 0): [1]}),
        ),
        (OffsetDeleteResponse(error_code=0, topics=[]), lambda c: delete_offsets(c, "g", [("t", 0)])),
        (AlterShareGroupOffsetsResponse(error_code=0, responses=[]), lambda c: set_starts(c, "g", {("t", 0): 1})),
        (DeleteShareGroupOffsetsResponse(error_code=0, responses=[]), lambda c: delete_starts(c, "g", ["t"])),
        (
            AlterUserScramCredentialsResponse(results=[]),
            lambda c: _change(c, [ScramCredentialDeletion(name="u", mechanism=1)], []),
        ),
    ],
)
def test_a_change_without_a_result_from_the_broker_counts_as_failed(
    answer: object, ask: Callable[[Cluster], None]
) -> None:
    with pytest.raises(RequestFailed, match="the broker does not say what became of (t|t-0|u); is it"):
        ask(Silent(answer))


def test_a_setting_that_a_broker_tells_twice_is_shown_twice() -> None:
    """One of the two has no value: sorting must not compare values."""
    configs = [
        DescribeConfigsResourceResult(
            name="a", value=value, read_only=False, config_source=5, is_sensitive=False, synonyms=[]
        )
        for value in ("1", None)
    ]
    result = DescribeConfigsResult(
        error_code=0, error_message=None, resource_type=2, resource_name="t", configs=configs
    )
    found = settings_of(Silent(DescribeConfigsResponse(results=[result])), Resource(TOPIC, "t"))
    assert [each.value for each in found] == ["1", None]
