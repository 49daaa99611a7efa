"""The measured work is the broker's own code, which changes: it is tried with little of everything."""

from pathlib import Path

import pytest
from benchmarks import longest_hold


@pytest.mark.parametrize("name", ["offsets", "producers", "retention", "groups"])
async def test_work_can_be_measured(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for size in ("OFFSETS", "PRODUCERS", "SEGMENTS", "MEMBERS"):
        monkeypatch.setattr(longest_hold, size, 1000)
    await longest_hold.WORK[name](tmp_path)
    assert "longest wait" in capsys.readouterr().out
