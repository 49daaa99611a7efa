"""Table and picture of a run, from made-up numbers."""

import json
from xml.etree import ElementTree

from benchmarks import report, table
from benchmarks.picture import draw
from benchmarks.rows import Line, Metric, at_least, at_most

SVG = "{http://www.w3.org/2000/svg}"


def line(ottla: list[float], kafka: list[float], *, name: str = "row", errors: dict[str, str] | None = None) -> Line:
    metric = Metric("key", "MB/s", at_least(1.3), more_is_better=True, digits=0)
    return Line(
        "produce", name, metric, "C sink: 9", {"Ottla": ottla, "Apache Kafka": kafka, "tansu": [7.0]}, errors or {}
    )


LINES = [
    line([1400, 1300], [1000, 1000]),
    line([500], [1000], name="a | b <c>"),
    line([], [1000], name="broken", errors={"Ottla": "Failed: gone"}),
    Line("latency", "at 5", Metric("p", "us", at_most(0.7), label="p99"), "", {"Ottla": [50], "Apache Kafka": [100]}),
]


def test_a_line_of_text_has_numbers_ratio_spread_target_and_verdict():
    shown = table.text(LINES[0])
    for part in ("1,350 MB/s", "1,000 MB/s", "1.35", "1.30..1.40", ">= 1.3", "ok", "tansu: 7 MB/s", "limit: C sink: 9"):
        assert part in shown


def test_a_failure_is_told():
    assert "failed" in table.text(LINES[2])
    assert "Ottla: Failed: gone" in table.text(LINES[2])


def test_markdown_has_a_table_for_each_group_and_whole_rows():
    shown = table.markdown(LINES)
    assert shown.count("\n## ") == 2
    rows = [row for row in shown.splitlines() if row.startswith("| ")]
    assert len(rows) == len(LINES) + 2
    assert {row.count("|") for row in rows} == {10}
    assert "at 5: p99" in shown


def test_the_summary_counts_what_is_behind_and_what_failed():
    assert table.summary(LINES) == "4 lines, 4 with a target: 2 ok, 1 behind; 1 with a failure"


def test_the_picture_is_sound_and_has_a_mark_for_each_ratio():
    picture = ElementTree.fromstring(draw(LINES))
    marks = picture.findall(f"{SVG}circle")
    assert len(marks) == 3
    texts = [text.text or "" for text in picture.iter(f"{SVG}text")]
    assert sum(text.endswith("ok") for text in texts) == 2
    assert "2.00x ok" in texts
    assert "0.50x BEHIND" in texts
    assert "a | b <c> (MB/s)" in texts


def test_better_is_right_of_worse():
    picture = ElementTree.fromstring(draw(LINES))
    better, worse, faster = (float(mark.attrib["cx"]) for mark in picture.findall(f"{SVG}circle"))
    assert worse < better < faster


def test_a_picture_of_nothing_is_still_a_picture():
    assert ElementTree.fromstring(draw([])).tag == f"{SVG}svg"


def test_only_a_whole_run_replaces_the_results(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path / "RESULTS.md")
    monkeypatch.setattr(report, "PICTURE", tmp_path / "results.svg")
    monkeypatch.setattr(report, "JSON", tmp_path / "cache" / "results.json")
    report.write(LINES, {"date": "today"}, whole=False)
    assert not (tmp_path / "RESULTS.md").exists()
    report.write(LINES, {"date": "today"}, whole=True)
    assert "- date: today" in (tmp_path / "RESULTS.md").read_text()
    assert (tmp_path / "results.svg").read_text().startswith("<svg")
    kept = json.loads((tmp_path / "cache" / "results.json").read_text())["lines"]
    assert kept[0]["numbers"]["Ottla"] == [1400, 1300]
    assert kept[0]["ratio"] == [1.35, 1.3, 1.4]


def test_groups_measured_apart_replace_their_sections_and_leave_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path / "RESULTS.md")
    report.RESULTS.write_text(report.markdown(LINES, {"date": "today"}))
    before = report.RESULTS.read_text()
    new = [Line("cores", "at 9", LINES[0].metric, "", {"Ottla": [5], "Apache Kafka": [4]}), LINES[1]]
    report.keep(new, {"date": "tomorrow", "Ottla": "9"})
    after = report.RESULTS.read_text()
    assert after.partition("\n## ")[0] == before.partition("\n## ")[0]
    sections = {part.splitlines()[0]: part for part in after.split("\n## ")[1:]}
    assert list(sections) == ["produce", "latency", "cores"]
    assert sections["latency"].strip() == before.split("\n## ")[2].strip()
    for group, rows in (("produce", 1), ("cores", 1)):
        assert "date: tomorrow." in sections[group]
        assert sum(line.startswith("| ") for line in sections[group].splitlines()) == rows + 1
    report.keep(new, {"date": "the day after"})
    assert "tomorrow" not in report.RESULTS.read_text()
