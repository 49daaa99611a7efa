"""Options of `ottla registry` that cannot be used are refused in one line, before anything is served."""

import socket
from pathlib import Path

import pytest

from ottla.server.cli import start
from ottla.server.cli.cli import main, parser_for
from ottla.server.registry import command
from ottla.server.registry.command import _config, _identity


def config(*arguments: str) -> object:
    parser, _ = parser_for(["registry"])
    return _config(parser.parse_args(["registry", *arguments]), ("127.0.0.1", 8081))


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["--listen", "nowhere"], "--listen nowhere: must be HOST:PORT"),
        (["--compatibility", "SOME"], "--compatibility SOME: must be one of NONE, BACKWARD"),
        (["--users", "missing.properties"], "--users: cannot read missing.properties"),
        (["--certificate", "missing.pem"], "--certificate missing.pem: it cannot be used"),
        (["--authority", "missing.pem"], "--authority missing.pem: it cannot be used"),
        (["--advertise", "a:b"], "--advertise a:b: must be HOST or HOST:PORT"),
        (["-b", ":"], "is not HOST:PORT"),
        (["-X", "security.protocol=NONE"], "security.protocol=NONE: must be one of"),
        (["--tipic", "x"], "did you mean --topic?"),
    ],
)
def test_wrong_options(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    where = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
    assert main(["registry", *where, *arguments]) == 2
    assert told in capsys.readouterr().err


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["registry", "--listen", f"127.0.0.1:{taken.getsockname()[1]}"]) == 1
    assert "cannot listen on" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, address, url",
    [
        ([], ("127.0.0.1", 8081), "http://127.0.0.1:8081"),
        ([], ("0.0.0.0", 8081), f"http://{socket.gethostname()}:8081"),
        (["--advertise", "a"], ("0.0.0.0", 8081), "http://a:8081"),
        (["--advertise", "a:80"], ("0.0.0.0", 8081), "http://a:80"),
        (["--advertise", "[::1]:80"], ("::", 8081), "http://[::1]:80"),
        (["--certificate", "x.pem"], ("127.0.0.1", 8081), "https://127.0.0.1:8081"),
    ],
)
def test_the_address_that_others_are_told(arguments: list[str], address: tuple[str, int], url: str) -> None:
    parser, _ = parser_for(["registry"])
    identity = _identity(parser.parse_args(["registry", *arguments]), address)
    assert identity.url == url and identity.is_eligible


def test_an_only_instance_has_no_identity_and_a_modest_one_is_not_eligible() -> None:
    assert config("--alone").identity is None
    assert config("--never-primary").identity.is_eligible is False
    assert config("--compatibility", "full_transitive").compatibility == "FULL_TRANSITIVE"


def test_the_help_tells_all_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["registry", "--help"])
    told = capsys.readouterr().out
    for name in ("--listen", "--users", "--certificate", "--advertise", "--command-config", command.LISTEN):
        assert name in told


@pytest.mark.parametrize(
    "arguments, url",
    [
        (["--registry", "8081"], "http://127.0.0.1:8081"),
        (["--registry", "0.0.0.0:8081"], "http://127.0.0.1:8081"),
        (["--registry", "[::1]:8081"], "http://[::1]:8081"),
        (["--registry", "8081", "--override", "http.console.schema.registry=http://other:1"], "http://other:1"),
        ([], None),
    ],
)
def test_the_console_knows_the_registry_beside_its_broker(arguments: list[str], url: str | None) -> None:
    parser, _ = parser_for(["start"])
    given = start._given(parser.parse_args(["start", *arguments]), None)
    assert given.get("http.console.schema.registry") == url
