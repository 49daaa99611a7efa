"""docs/log-lines.md has every warning and error that the code can log, and nothing else."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_tests.docs.log_lines import BUG, lines_of, log_lines
from compat_tests.docs.pages import DOCS, ROOT, parsed

PAGE = DOCS / "log-lines.md"
QUIET = "Warnings that ask for nothing"
REMOVED = "Removed records"


def told() -> Iterator[tuple[str, str]]:
    """(heading, line) of each row of the page's tables."""
    tokens, heading = parsed(PAGE), ""
    for number, token in enumerate(tokens):
        if token.type == "heading_open" and token.tag == "h2":
            heading = tokens[number + 1].content
        elif token.type == "tr_open" and tokens[number + 1].type == "td_open":
            codes = [each.content for each in tokens[number + 2].children or () if each.type == "code_inline"]
            yield heading, codes[0]


def test_every_warning_and_error_is_on_the_page_and_nothing_else() -> None:
    logged = {each.message: each.place for each in log_lines() if not each.message.startswith(BUG)}
    on_the_page = [line for heading, line in told() if heading != REMOVED]
    assert sorted(set(on_the_page)) == sorted(on_the_page), "a line is on the page twice"
    missing = {line: place for line, place in logged.items() if line not in on_the_page}
    assert missing == {}, "say on docs/log-lines.md what to do about these"
    assert set(on_the_page) - set(logged) == set(), "nobody logs these any more"


def test_the_page_has_exactly_the_log_lines_about_removed_records() -> None:
    lines = lines_of(ROOT / "replication/partition/removals.py", ("info",))
    assert {line for heading, line in told() if heading == REMOVED} == {each.message for each in lines}


def test_whoever_waits_is_named() -> None:
    """With "this is waited for" a reader knows neither who waits nor what to do."""
    assert [each.message for each in log_lines() if "is waited for" in each.message] == []


def test_no_error_is_among_the_lines_that_ask_for_nothing() -> None:
    quiet = {line for heading, line in told() if heading == QUIET}
    assert quiet
    loud = {each.message for each in log_lines() if each.level in ("error", "critical", "exception")}
    assert quiet & loud == set()


SOURCE = """
class It:
    def say(self, reminder, error):
        logger.error("%s is gone", error)
        logger.log(level, "%d of %s", 1, error)
        reminder.tell(error, logger.warning, "told once a minute: %.9r", error)
        text = "by a name" if error else f"by {error} name"
        log_with_count(1, partial(logger.critical, exc_info=error), text)
        self._tell("as an argument")
        logger.info("nobody has to act")

    def _tell(self, message):
        logger.exception(message)
"""


def test_lines_are_found_however_they_are_logged(tmp_path: Path) -> None:
    """Otherwise the tests above would be content with lines that they do not see."""
    file = tmp_path / "it.py"
    file.write_text(SOURCE)
    assert sorted((each.level, each.message) for each in lines_of(file)) == [
        ("critical", "by a name"),
        ("critical", "by … name"),
        ("error", "… is gone"),
        ("exception", "as an argument"),
        ("log", "… of …"),
        ("warning", "told once a minute: …"),
    ]


def test_a_line_without_a_text_that_can_be_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "it.py"
    file.write_text("def say(text):\n    logger.error(text.upper())\n")
    with pytest.raises(AssertionError, match=re.escape("it.py:2")):
        list(lines_of(file))
