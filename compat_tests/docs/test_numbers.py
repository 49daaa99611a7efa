"""The numbers of docs/limits.md are those of the code, and those of docs/comparison.md were measured."""

import importlib
import re

from compat_tests.docs.pages import DOCS, ROOT

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


MEASURED = re.compile(r"\d[\d,]*\.\d+|\d[\d,]*(?= (?:MB|us|of \d))|(?<=gives )[\d,]+")


def test_the_comparison_has_no_numbers_but_measured_ones() -> None:
    """They have to be in the last results; after `make bench` the page is looked through."""
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    text = (DOCS / "comparison.md").read_text().partition("\n## Apache Kafka\n")[2]
    numbers = [each.rstrip(".,") for each in MEASURED.findall(text)]
    assert len(numbers) > 10
    allowed = {"2.0", "0.1", "3.9", "3.9."}  # versions
    assert [each for each in numbers if each not in results and each not in allowed] == []


def test_operations_explains_each_alert_and_names_metrics_that_exist() -> None:
    dashboards = ROOT / "server" / "admin" / "http" / "dashboards"
    rules = (dashboards / "prometheus-alerts.yml").read_text()
    page = (DOCS / "operations.md").read_text()
    assert re.findall(r"^\| (Ottla\w+) \|", page, re.MULTILINE) == re.findall(r"- alert: (\w+)", rules)
    metrics = re.findall(r"`((?:kafka|ottla)_\w+)`", page)
    assert len(metrics) > 5
    assert [each for each in metrics if each not in rules] == []
