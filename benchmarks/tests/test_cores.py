"""What several workers are asked to add to one, where their clients share the processors."""

from pathlib import Path

import pytest
from benchmarks import machine
from benchmarks.rows import measure
from benchmarks.workloads import cores


@pytest.mark.parametrize(
    ("busy", "wanted", "fits"),
    [
        pytest.param(1.0, "1.5", "2.00", id="there-is-room"),
        pytest.param(1.6, "1.12", "1.25", id="clients-take-the-rest"),
    ],
)
def test_the_target_is_what_the_processors_allow(
    busy: float, wanted: str, fits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "processors", lambda: 2)
    workers = cores.Workers(tmp_path / "workers")
    several, one = [{"MB/s": 120.0}, {"MB/s": 130.0}], [{"MB/s": 100.0, "busy": busy}, {"MB/s": 100.0, "busy": busy}]
    row = cores._times_one_worker("produce", [workers], several, one)
    (line,) = measure("cores", row, 0)
    assert line.numbers == {workers.name: [1.25]}
    assert str(line.metric.target) == f">= {wanted} times"
    assert line.beside == [f"as many as the processors allow: {workers.name} {fits} times"]
    assert line.ok is (float(wanted) <= 1.25)
