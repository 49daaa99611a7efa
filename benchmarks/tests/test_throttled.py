from pathlib import Path

import pytest
from benchmarks.throttled import CASES, measure


@pytest.mark.parametrize("case", CASES)
def test_a_bystander_is_measured(case: str, tmp_path: Path) -> None:
    p50, p99 = measure(case, tmp_path, seconds=0.4)
    assert 0 < p50 <= p99
