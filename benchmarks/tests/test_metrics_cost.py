"""What the measurement of metrics cuts from the hot path is there."""

from pathlib import Path

import pytest
from benchmarks.metrics_cost import COUNTED, without

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("module", "lines"), COUNTED)
def test_what_is_cut_is_there_and_the_rest_is_python(module: str, lines: str) -> None:
    path = ROOT / Path(*module.split(".")[1:]).with_suffix(".py")
    source = path.read_text()
    rest = without(source, [lines])
    assert 0 < len(rest) < len(source)
    compile(rest, str(path), "exec")
