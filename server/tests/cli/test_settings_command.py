"""`ottla settings` shows what the declarations say, and says of each setting what a change of it does."""

import json
from pathlib import Path

import pytest

from ottla.groupcoord.group_settings import GroupSettings
from ottla.replication.config import LogConfig
from ottla.server.cli.cli import main
from ottla.server.cli.settings import described, table
from ottla.server.config.broker_config import known_names, settings_of_member
from ottla.server.config.reference import BROKER, GROUP, TOPIC, all_references, matching
from ottla.wire.settings import format_value, parse_value, settings_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "settings.md"


def test_every_setting_that_is_known_is_in_the_reference() -> None:
    names = {scope: [each.name for each in all_references() if each.scope == scope] for scope in (BROKER, TOPIC, GROUP)}
    assert set(names[BROKER]) == known_names()
    assert set(names[TOPIC]) == set(settings_of(LogConfig))
    assert set(names[GROUP]) == set(settings_of(GroupSettings))
    assert all(len(each) == len(set(each)) for each in names.values())
    for each in all_references():
        assert each.what and each.what.rstrip().endswith("."), each.name


def test_every_setting_that_can_be_changed_at_run_time_says_what_that_does() -> None:
    for each in all_references():
        assert bool(each.on_change) == (each.change != "read-only"), each.name
        assert each.on_change == "" or each.on_change.endswith("."), each.name
    # No sentence is left over from a setting that has become read-only, or is without effect.
    of_brokers = {name: each for name, each in settings_of_member().items() if each.is_read_only or not each.effective}
    without_effect = [
        each
        for config_class in (LogConfig, GroupSettings)
        for each in settings_of(config_class).values()
        if not each.effective
    ]
    assert [each.name for each in (*of_brokers.values(), *without_effect) if each.on_change] == []


def test_defaults_are_shown_as_they_are_read() -> None:
    for name, declared in settings_of_member().items():
        (shown,) = matching(name)[:1]
        assert shown.default == format_value(declared.kind, declared.default)
        if shown.default is not None and not declared.is_sensitive:
            assert parse_value(declared, shown.default) == declared.default, name


def test_a_name_is_looked_for_exactly_and_then_as_a_part() -> None:
    assert [each.name for each in matching("Log.Retention.MS")] == ["log.retention.ms"]
    assert {"log.retention.ms", "retention.ms", "log.retention.bytes"} <= {each.name for each in matching("retention")}
    assert [(each.scope, each.name) for each in matching("compression.type")] == [
        (BROKER, "compression.type"),
        (TOPIC, "compression.type"),
    ]
    assert matching("no.such.thing") == []


def test_one_setting_is_told_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "retention.ms"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("retention.ms\n  Age above which segments are deleted")
    assert "default from  log.retention.ms, log.retention.minutes, log.retention.hours" in told
    assert "allowed       at least -1" in told
    assert main(["settings", "num.io.threads"]) == 0
    assert "effect        none here" in capsys.readouterr().out
    assert main(["settings", "ssl.keystore.location"]) == 0
    assert "listener.name.<listener>.ssl.keystore.location" in capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_table_fits_the_terminal(width: int) -> None:
    shown = matching("log.")
    lines = table(shown, width)
    assert max(map(len, lines)) <= width
    for each in shown:
        assert any(line == each.name or line.startswith(each.name + " ") for line in lines)
    # Nothing of a sentence is lost when it is wrapped.
    words = " ".join(lines).split()
    assert all(word in words for each in shown for word in each.what.split())


def test_programs_get_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(each["scope"], each["name"]) for each in listed] == [(each.scope, each.name) for each in all_references()]
    (one,) = (each for each in listed if each["name"] == "num.io.threads")
    assert (one["type"], one["default"], one["change"], one["has_effect"]) == ("int", "8", "cluster-wide", False)


def test_an_unknown_name_is_one_line_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "log.retenton.ms"]) == 2
    streams = capsys.readouterr()
    assert (streams.out, streams.err.count("\n")) == ("", 1)
    assert "did you mean log.retention.ms?" in streams.err


def test_what_a_setting_does_is_shown_on_one_screen() -> None:
    for each in all_references():
        assert len(described(each)) <= 12
        # A name is not broken.
        assert all(len(line) <= 80 or max(map(len, line.split())) >= 60 for line in described(each, 80))


def test_the_page_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--markdown"]) == 0
    assert PAGE.read_text() == capsys.readouterr().out, "make it again: ottla settings --markdown >docs/settings.md"


def test_the_page_has_a_block_for_each_setting_and_no_table() -> None:
    """A table of them is some 2,700 pixels wide."""
    page = PAGE.read_text()
    assert page.count("\n### `") == len(all_references())
    assert "\n|" not in page
    block = page.partition("### `retention.ms`\n")[2].partition("\n### ")[0].strip().split("\n\n")
    defaults_from = "(`log.retention.ms`, `log.retention.minutes`, `log.retention.hours`)"
    assert block[-1] == f"long, at least -1; default `604800000` {defaults_from}; topic."
    (of_listeners,) = (each for each in page.split("\n### ") if each.startswith("`ssl.keystore.location`"))
    assert "for one listener `listener.name.<listener>.ssl.keystore.location`" in of_listeners


def test_of_settings_that_mean_one_thing_it_is_said_which_wins(capsys: pytest.CaptureFixture[str]) -> None:
    order = "log.retention.ms over log.retention.minutes over log.retention.hours"
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        assert main(["settings", name]) == 0
        assert order in " ".join(capsys.readouterr().out.split())
    assert main(["settings", "retention.ms"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "604800000 (7 days)" in shown
    assert "log.retention.ms, log.retention.minutes, log.retention.hours: the first that is set" in shown
    for name in ("num.partitions", "log.retention.bytes"):
        assert main(["settings", name]) == 0
        assert "wins" not in capsys.readouterr().out
