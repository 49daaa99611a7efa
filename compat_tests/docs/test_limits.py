"""The numbers of docs/limits.md are those of the code."""

import importlib
import re

from compat_tests.docs.pages import DOCS

UNITS = {"": 1, "KiB": 1024, "MiB": 1024 * 1024}
ROW = re.compile(r"^\| .* \| ([\d,]+) ?(KiB|MiB|) \| `([\w.]+)` \|$", re.MULTILINE)


def test_each_number_is_its_constant() -> None:
    rows = ROW.findall((DOCS / "limits.md").read_text())
    assert len(rows) > 25
    for number, unit, constant in rows:
        module, _, name = constant.rpartition(".")
        value = getattr(importlib.import_module(f"ottla.{module}"), name)
        assert int(number.replace(",", "")) * UNITS[unit] == value, constant


def test_each_row_of_a_table_is_read() -> None:
    """A number in another form would not be looked at."""
    lines = [line for line in (DOCS / "limits.md").read_text().splitlines() if line.startswith("| ")]
    rows = [line for line in lines if not line.startswith(("| what ", "| - "))]
    assert [line for line in rows if not ROW.match(line)] == []
