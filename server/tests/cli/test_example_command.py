"""`ottla example` writes the folder of an example, and nothing over what is there."""

from pathlib import Path

import pytest

from ottla.server.cli.cli import main
from ottla.server.cli.example import examples, summary


def test_all_are_listed(capsys: pytest.CaptureFixture[str]):
    assert main(["example"]) == 0
    told = capsys.readouterr().out
    assert "flights" in told and "payments" in told
    for name, folder in examples().items():
        assert summary(folder) and f"{name} " in told
        # What the next commands need, and what an example promises.
        assert {"README.md", "run.sh", "expected.py", "check.py"} <= {each.name for each in folder.iterdir()}


@pytest.mark.parametrize("name", examples())
def test_one_is_written(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    assert main(["example", name]) == 0
    told = capsys.readouterr().out
    # One that starts brokers itself needs none in another terminal.
    has_broker = (examples()[name] / "broker.py").exists()
    has_registry = "SCHEMA_REGISTRY" in (examples()[name] / "run.sh").read_text()
    start = "Next:" if has_broker else f"  ottla start{' --registry 8081' * has_registry}"
    assert told.splitlines()[-2:] == [start, f"  sh {name}/run.sh"]
    assert f"'ottla[spark{',security' * has_broker}{',registry' * has_registry}]'" in told
    written = {each.name for each in (tmp_path / name).iterdir()}
    assert {each.name for each in examples()[name].iterdir() if each.is_file()} == written
    assert (tmp_path / name / "run.sh").read_bytes() == (examples()[name] / "run.sh").read_bytes()
    assert main(["example", name]) == 1
    assert capsys.readouterr().err == f"ottla: {name} is there already, and not empty\n"
    assert main(["example", name, "--output", "another"]) == 0
    assert {each.name for each in (tmp_path / "another").iterdir()} == written


def test_failures_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert main(["example", "nonsense"]) == 2
    assert "there is no example nonsense; there are " in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["example", "flights", "--output", str(tmp_path / "file" / "below")]) == 1
    assert "cannot write" in capsys.readouterr().err
    monkeypatch.setattr("ottla.server.cli.example.EXAMPLES_FOLDER", tmp_path)
    assert main(["example"]) == 1
    assert "are not installed" in capsys.readouterr().err
