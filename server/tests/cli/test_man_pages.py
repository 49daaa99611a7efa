"""Pages for man: all that the help says is in them, and nothing of it is taken for a request of roff."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.cli import help as man_pages
from ottla.server.cli.cli import COMMANDS, main, parser_for
from ottla.server.cli.command_line import commands_of, options_of

REQUESTS = {".TH", ".SH", ".TP", ".PP", ".nf", ".fi", ".BR"}


def test_every_command_has_a_page_with_all_its_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "share" / "man1"
    assert main(["help", "--man", str(folder)]) == 0
    assert capsys.readouterr().out == f"{len(COMMANDS) + 1} pages are in {folder}\n"
    assert {each.name for each in folder.iterdir()} == {"ottla.1", *(f"ottla-{name}.1" for name in COMMANDS)}
    for name, summary in COMMANDS.items():
        page = (folder / f"ottla-{name}.1").read_text(encoding="ascii")
        assert page.startswith(f'.TH "OTTLA\\-{man_pages.escaped(name.upper())}" "1" ')
        assert man_pages.escaped(summary) in page
        parser = commands_of(parser_for([name])[0])[name]
        for each in (parser, *commands_of(parser).values()):
            assert all(f"\\fB{man_pages.escaped(option)}\\fR" in page for option in options_of(each))
        assert {line.split()[0] for line in page.splitlines() if line[:1] in (".", "'")} <= REQUESTS
        assert "" not in page.splitlines()
        # Only these escapes are used.
        assert not re.search(r"\\(?![-e&]|\(dq|\(aq|\(ga|f[BIR])", page)


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["help", "--man", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err.startswith("ottla: cannot write ")
    assert main(["help", "start", "--man", str(tmp_path / "x")]) == 2
    assert not (tmp_path / "x").exists()


@given(st.text(alphabet="a.'\\-\"` \n\t%", max_size=30))
def test_no_text_begins_a_request(text: str) -> None:
    shown = man_pages._text(text)
    assert undone(shown).split() == text.split()
    lines = man_pages._verbatim(text)[1:-1]
    assert [undone(line) for line in lines] == text.rstrip().splitlines()
    for line in (shown, *lines):
        assert line[:1] not in (".", "'", "") and "\n" not in line


def undone(line: str) -> str:
    """The text that roff shows."""
    marks = {"\\&": "", "\\(dq": '"', "\\(aq": "'", "\\(ga": "`", "\\-": "-", "\\e": "\\"}
    return re.sub(r"\\(?:\(..|.)", lambda found: marks[found[0]], line)


def test_an_example_is_a_command_and_what_it_does() -> None:
    shown = list(man_pages._examples("  ottla a     first\n  ottla long\n                second\n"))
    assert shown == [".TP", "\\fBottla a\\fR", "first", ".TP", "\\fBottla long\\fR", "second"]


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff here")
def test_groff_has_nothing_to_say_against_them(tmp_path: Path) -> None:
    paths = man_pages.write_pages(tmp_path)
    done = subprocess.run(["groff", "-ww", "-man", "-Tutf8", "-z", *paths], check=True, capture_output=True, text=True)
    assert done.stderr == ""
