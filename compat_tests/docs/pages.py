"""The documentation as its tests read it: README.md and docs/, their links, headings and blocks of code."""

import itertools
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, *sorted(DOCS.glob("*.md"))]
COURSE = sorted((DOCS / "course").glob("*.md"))
"""Lessons and their table of contents; their blocks of code are run by `compat_tests.docs.lessons`."""

_MARK = re.compile(
    r"<!-- (?P<mark>serves|tested by|not run): ?(?P<text>.*?) ?-->|<!-- (?P<alone>serves) -->", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Snippet:
    """A block of code.

    A comment of HTML before it may say how it is tested: `<!-- serves -->` if its last command goes on until it is stopped,
    `<!-- tested by: FILE -->` if another test runs it, `<!-- not run: REASON -->` if it cannot be run here.
    """

    page: Path
    line: int
    language: str
    text: str
    mark: str = ""
    why: str = ""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def parsed(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text())


def snippets(page: Path) -> Iterator[Snippet]:
    before = ""
    for token in parsed(page):
        if token.type == "fence":
            found = _MARK.search(before)
            mark, why = ("", "") if found is None else (found["mark"] or found["alone"], found["text"] or "")
            yield Snippet(page, token.map[0] + 1, token.info.strip(), token.content, mark, why)
        before = token.content if token.type == "html_block" else ""


def links(page: Path) -> Iterator[tuple[int, str]]:
    """(line, target) of each link and picture."""
    for token in parsed(page):
        for child in token.children or ():
            target = child.attrGet("href") or child.attrGet("src")
            if target is not None:
                yield token.map[0] + 1, str(target)


def inline_codes(page: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of each piece of code within text."""
    for token in parsed(page):
        for child in token.children or ():
            if child.type == "code_inline":
                yield token.map[0] + 1, child.content


def headings(page: Path) -> list[str]:
    tokens = parsed(page)
    return [_text(inline) for opened, inline in itertools.pairwise(tokens) if opened.type == "heading_open"]


def _text(inline: Token) -> str:
    return "".join(child.content for child in inline.children or ())


def anchor_on_the_site(heading: str) -> str:
    """As MkDocs makes it (Python-Markdown's `toc.slugify`)."""
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def anchor_in_the_repository(heading: str) -> str:
    """As viewers of repositories make it: each blank becomes a hyphen."""
    return re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-")
