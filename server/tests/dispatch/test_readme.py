"""README's table of what is served, and its commands of a clone. docs/compatibility.md has each request."""

import re
from pathlib import Path

README = Path(__file__).resolve().parents[3] / "README.md"
ROW = re.compile(r"^\| ([a-z].*) \|$", re.MULTILINE)


def test_the_table_says_what_is_served_without_protocol_keys():
    rows = ROW.findall(README.read_text().partition("## What is served\n")[2].partition("\n## ")[0])
    assert len(rows) > 5
    assert [each for each in rows if re.search(r"\b\d+(?:-\d+)?, \d", each)] == []


def test_the_commands_of_a_clone_stand_there_and_exist():
    readme, makefile = README.read_text(), (README.parent / "Makefile").read_text()
    _, _, section = readme.partition("## In a clone\n")
    section = section.partition("\n## ")[0]
    commands = re.findall(r"^make ([a-z-]+) +#", section, re.MULTILINE)
    assert commands == ["start", "check", "test"]
    for command in [*commands, *re.findall(r"`make ([a-z-]+)`", section)]:
        assert re.search(rf"^{command}:.*## ", makefile, re.MULTILINE), command
