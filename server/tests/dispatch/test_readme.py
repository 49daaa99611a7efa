"""README's table of what is served has each request that is served once, and no other."""

import re
from pathlib import Path

from ottla.server.dispatch.dispatch import all_routes

README = Path(__file__).resolve().parents[3] / "README.md"
ROW = re.compile(r"^\| [a-z][^|]* \| ([\d, -]+) \|", re.MULTILINE)


def test_the_table_has_every_served_request_once():
    keys = []
    for cell in ROW.findall(README.read_text()):
        for span in cell.split(", "):
            first, _, last = span.partition("-")
            keys += range(int(first), int(last or first) + 1)
    assert sorted(keys) == sorted(all_routes())


def test_the_commands_of_a_clone_stand_there_and_exist():
    readme, makefile = README.read_text(), (README.parent / "Makefile").read_text()
    _, _, section = readme.partition("## In a clone\n")
    section = section.partition("\n## ")[0]
    commands = re.findall(r"^make ([a-z-]+) +#", section, re.MULTILINE)
    assert commands == ["start", "check", "test"]
    for command in [*commands, *re.findall(r"`make ([a-z-]+)`", section)]:
        assert re.search(rf"^{command}:.*## ", makefile, re.MULTILINE), command
