from pathlib import Path

import pytest

from ottla import __version__
from ottla.server.cli.cli import main, parser_for


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"ottla {__version__}\n"


def test_without_a_command_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "ottla start" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--override", "log.retention.hour=1"], "did you mean log.retention.hours?"),
        (["--override", "num.partitions=many"], "num.partitions"),
        (["--override", "zookeeper.connect=zk:2181"], "zookeeper.connect"),
        (["--override", "nothing"], "--override nothing: must be name=value"),
        (["--override", "=x"], "must be name=value"),
        (["/no/such/file"], "cannot read /no/such/file: No such file or directory"),
    ],
)
def test_a_bad_configuration_is_one_line_and_exit_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["start", *arguments]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.startswith("ottla: ")
    assert streams.err.count("\n") == 1
    assert words in streams.err


def test_overrides_win_over_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# comment\nnum.partitions=x\n")
    assert main(["start", str(file)]) == 2
    assert "num.partitions" in capsys.readouterr().err
    assert main(["start", str(file), "--override", "num.partitions = 3", "--override", "listeners=x"]) == 2
    assert "listeners=x" in capsys.readouterr().err
    file.write_text("a=\\u12")
    assert main(["start", str(file)]) == 2
    assert "line 1" in capsys.readouterr().err


def test_an_equals_sign_is_a_value_as_in_kcat() -> None:
    parser, _ = parser_for(["consume"])
    options = parser.parse_args(["consume", "orders", "-K=", "-D", "=", "-n=5"])
    assert (options.key_delimiter, options.delimiter, options.count) == ("=", "=", 5)
