"""What somebody meets who has just installed Ottla: the banner, short options, help, and a port that is taken."""

import argparse
import errno
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import trio

from ottla import __version__
from ottla.server.broker import Broker
from ottla.server.cli import ping, start
from ottla.server.cli.cli import COMMANDS, main, parser_for
from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.config.endpoint import Endpoint
from ottla.server.launch.banner import broker_banner, first_commands
from ottla.server.serving import StartupError, bind_all, cannot_listen, serve
from ottla.server.serving_state import Stop

DELAY = "group.initial.rebalance.delay.ms"


def options_of(*words: str) -> argparse.Namespace:
    parser, _ = parser_for(["start", *words])
    return parser.parse_args(["start", *words])


async def banner_of(texts: dict[str, str]) -> list[str]:
    stop, lines = Stop(), list[str]()

    def on_ready(broker: Broker) -> None:
        lines.extend(broker_banner(broker))
        stop.requested.set()

    with trio.fail_after(60):
        await serve(load_config(texts), stop=stop, on_ready=on_ready)
    return lines


async def test_the_banner_names_commands_that_work_as_they_stand(tmp_path: Path) -> None:
    lines = await banner_of({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    address = lines[-1].removeprefix("listening on ")
    for command in (f"produce greetings -b {address}", f"consume greetings -e -b {address}", f"status -b {address}"):
        assert any(line.endswith(f"ottla {command}") for line in lines)
        words = command.split()
        parser_for(words)[0].parse_args(words)
    assert f"  stop            Ctrl-C stops it; from elsewhere: ottla stop --data {tmp_path}" in lines
    assert "  groups          the first consumer of a group waits 3 s for others" in lines


async def test_nobody_is_told_of_a_wait_that_there_is_not(tmp_path: Path) -> None:
    texts = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0", DELAY: "0"}
    assert not [line for line in await banner_of(texts) if "waits" in line]


def test_where_the_commands_look_anyway_no_address_is_needed() -> None:
    near = Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=9092)
    assert [line.strip() for line in first_commands(near, "PLAINTEXT")][-1] == "ottla status"
    far = Endpoint(listener="S", host="::1", port=9093)
    last = first_commands(far, "SASL_SSL")[-1].strip()
    assert last == "ottla status -b [::1]:9093 --command-config client.properties"


def given(*words: str) -> dict[str, str]:
    options = options_of(*words)
    return start._given(options, start._environment() if options.settings_from_environment else None)


def test_a_port_alone_is_the_console_on_this_machine() -> None:
    assert [given("--http", each)["http.listener"] for each in ("9644", ":9644", "0.0.0.0:9644", "h\u0663:1")] == [
        ":9644",
        ":9644",
        "0.0.0.0:9644",
        "h\u0663:1",
    ]


def test_two_addresses_of_the_console_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"--http 9644: --override http.listener=:1 is given, too"):
        given("--http", "9644", "--override", "http.listener=:1")


def test_without_a_settings_file_the_first_consumer_waits_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KAFKA_NODE_ID", "OTTLA_NODE_ID"):
        monkeypatch.delenv(name, raising=False)
    assert given()[DELAY] == "0"
    assert given("--override", f"{DELAY}=7")[DELAY] == "7"
    assert given("--settings-from-environment")[DELAY] == "0"
    monkeypatch.setenv("OTTLA_NODE_ID", "3")
    assert DELAY not in given("--settings-from-environment")
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\n")
    assert DELAY not in given(str(file))


def test_a_port_is_a_listener_on_loopback() -> None:
    assert given("--port", "9093")["listeners"] == "PLAINTEXT://127.0.0.1:9093"
    assert given("--port", "0")["listeners"] == "PLAINTEXT://127.0.0.1:0"
    assert given("--port", "9093", "--settings-from-environment")["listeners"] == "PLAINTEXT://127.0.0.1:9093"


@pytest.mark.parametrize("text", ["-1", "65536", "9o92", "", "٣", "123456"])
def test_what_is_no_port_is_wrong_use(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["start", f"--port={text}"])
    assert ended.value.code == 2
    assert "is not a port from 0 to 65535" in capsys.readouterr().err


def test_a_port_beside_listeners_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=SSL://:9094\n")
    for words in ([str(file)], ["--override", "listeners=SSL://:9094"]):
        assert main(["start", "--port", "9093", *words]) == 2
        assert capsys.readouterr().err == (
            "ottla: --port 9093: listeners=SSL://:9094 is given, too; change the port there\n"
        )


def test_a_port_that_is_taken_says_what_to_do() -> None:
    taken = OSError(errno.EADDRINUSE, "Address already in use")
    config = load_config({})
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        place = f"PLAINTEXT://127.0.0.1:{port}"
        with pytest.raises(StartupError) as refused:
            bind_all(load_config({"listeners": place}))
    assert str(refused.value) == (
        f"port {port} is taken: is another broker running? Stop it, or change the port of {place}"
    )
    assert "listeners" not in config.static
    assert str(cannot_listen("PLAINTEXT://127.0.0.1:9092", 9092, taken, "Use --port N, or stop it")) == (
        "port 9092 is taken: is another broker running? Use --port N, or stop it"
    )
    refused_port = OSError(errno.EACCES, "Permission denied")
    assert str(cannot_listen("X://h:1", 1, refused_port)) == "cannot listen on X://h:1: Permission denied"


def test_nobody_chose_the_default_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def bind(*_: object, **__: object) -> socket.socket:
        raise OSError(errno.EADDRINUSE, "Address already in use")

    monkeypatch.setattr("ottla.server.serving.bind", bind)
    with pytest.raises(StartupError) as refused:
        bind_all(load_config({}))
    assert str(refused.value) == "port 9092 is taken: is another broker running? Use --port N, or stop it"


def test_help_of_a_command_is_what_its_option_prints(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["start"], ["topics", "create"], ["spark-submit"]):
        assert main(["help", *words]) == 0
        asked = capsys.readouterr().out
        with pytest.raises(SystemExit) as ended:
            main([*words, "--help"])
        assert ended.value.code == 0
        assert asked == capsys.readouterr().out


def test_help_alone_lists_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


def test_help_of_nothing_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "topcs"]) == 2
    assert "did you mean topics?" in capsys.readouterr().err
    assert main(["help", "topics", "creat"]) == 2
    assert "did you mean create?" in capsys.readouterr().err


def test_the_version_has_a_short_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["-V"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"ottla {__version__}\n"


def test_ping_and_status_take_an_address_both_ways(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(ping, "_ask", lambda host, port, timeout_s, **_: asked.append(port))
    for words in (["here:1"], ["-b", "here:1"], ["--bootstrap-server", "here:1"]):
        assert main(["ping", *words]) == 0
        assert capsys.readouterr().out == "here:1 answers\n"
    assert asked == [1, 1, 1]
    for words in (["127.0.0.1:1"], ["-b", "127.0.0.1:1"]):
        assert main(["status", *words, "--timeout", "0.1"]) == 1
        assert "127.0.0.1:1" in capsys.readouterr().err
    for command in ("ping", "status", "bench"):
        assert main([command, "here:1", "-b", "there:1"]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("is_ignored", [False, True])
def test_a_closed_terminal_is_a_stop_unless_the_start_ignores_it(is_ignored: bool) -> None:
    """As `nohup` does."""
    program = "import signal; from ottla.server.launch.signals import STOPPING; print(signal.SIGHUP in STOPPING)"
    prefix = ["nohup"] if is_ignored else []
    shown = subprocess.run([*prefix, sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert shown.stdout.strip() == str(not is_ignored)


def test_the_console_needs_no_extra() -> None:
    """README's `--http` works after README's `pip install`."""
    project = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text())["project"]
    assert any(each.startswith("h11") for each in project["dependencies"])
    assert not any(each.startswith("h11") for extra in project["optional-dependencies"].values() for each in extra)


def test_a_folder_without_a_cluster_is_answered_with_the_option_for_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "status", "--data", str(tmp_path)]) == 1
    assert f"no `ottla cluster` runs in {tmp_path}; --data FOLDER names another" in capsys.readouterr().err
