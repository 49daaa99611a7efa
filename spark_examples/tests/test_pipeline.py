"""`make pipeline` runs an example with a broker of its own."""

import pytest
from spark_examples import pipeline

RUN = """\
set -e
ottla ping "$1" --timeout 60
test ! -e "$2"
mkdir "$2"
exit "$3"
"""


@pytest.fixture
def examples(tmp_path, monkeypatch):
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "run.sh").write_text(RUN)
    (tmp_path / "tests").mkdir()
    monkeypatch.setattr(pipeline, "HERE", tmp_path)
    monkeypatch.setattr(pipeline, "OUTPUTS", tmp_path / "outputs")
    monkeypatch.delenv("OTTLA_COMPAT_BOOTSTRAP", raising=False)


def test_an_example_gets_a_broker_and_its_exit_code_is_the_result(examples, monkeypatch, capfd):
    monkeypatch.setattr("sys.argv", ["pipeline.py", "small", "3"])
    assert pipeline.main() == 3
    assert " answers\n" in capfd.readouterr().out


def test_a_result_stays_until_the_next_run(examples, broker, tmp_path, monkeypatch):
    monkeypatch.setenv("OTTLA_COMPAT_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setattr("sys.argv", ["pipeline.py", "small", "0"])
    for _ in range(2):
        assert pipeline.main() == 0
        assert (tmp_path / "outputs" / "small").is_dir()
        (tmp_path / "outputs" / "small" / "result").touch()


def test_an_example_with_a_broker_of_its_own_gets_none(examples, tmp_path, monkeypatch):
    (tmp_path / "small" / "broker.py").touch()
    (tmp_path / "small" / "run.sh").write_text('test "$1" = - && exit "$3"')
    monkeypatch.setattr("sys.argv", ["pipeline.py", "small", "3"])
    assert pipeline.main() == 3


@pytest.mark.parametrize("words", [[], ["tests"]])
def test_an_example_that_is_none_is_told(examples, words, monkeypatch, capfd):
    monkeypatch.setattr("sys.argv", ["pipeline.py", *words])
    assert pipeline.main() == 2
    assert capfd.readouterr().err == "make pipeline NAME=...: one of small\n"


def test_a_running_broker_is_taken(examples, broker, monkeypatch, capfd):
    monkeypatch.setenv("OTTLA_COMPAT_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setattr("sys.argv", ["pipeline.py", "small", "3"])
    assert pipeline.main() == 3
    assert f"{broker.bootstrap} answers" in capfd.readouterr().out
