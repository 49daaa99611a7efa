"""The runner of lessons: a lesson whose output is wrong fails, and each placeholder matches only its kind of value."""

from pathlib import Path

import pytest
from compat_tests.docs import fill_lesson, lessons
from compat_tests.docs.lessons import Differs, Student, steps


@pytest.fixture
def student(tmp_path: Path):
    student = Student(tmp_path / "desk", 12345)
    yield student
    student.close()


@pytest.fixture
def take(student: Student, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write the text of a lesson to a page, and have the student take it."""
    monkeypatch.setattr(lessons, "ROOT", tmp_path)

    def take(page: str) -> None:
        (tmp_path / "lesson.md").write_text(page)
        for step in steps(tmp_path / "lesson.md"):
            student.take(step)

    return take


def block(command: str, shown: str, marks: str = "") -> str:
    mark = f"<!-- {marks} -->\n" if marks else ""
    return f"{mark}```sh\n{command}\n```\n\nIt prints\n\n```text\n{shown}\n```\n"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("echo a   b", "a b"),
        ("echo at 2026-11-28T10:00:00.123Z 17 x_y-z", "at <time> <n> <id>"),
        ("printf 'a\\nb\\nc\\n'", "a\n..."),
        ("echo in sync 3,1", "in sync <1,3>"),
        ("echo runs, and more", "runs..."),
        ("echo see 127.0.0.1:9092", "see 127.0.0.1:9092"),
        ("echo on stderr >&2", "on stderr"),
    ],
)
def test_a_block_that_shows_the_output_passes(take, command: str, shown: str) -> None:
    take(block(command, shown))


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("echo b", "a"),
        ("echo a; echo b", "a"),
        ("echo soon", "<time>"),
        ("echo many", "<n>"),
        ("echo a", "a\nb"),
        ("echo a", "b..."),
    ],
)
def test_a_block_that_shows_another_output_fails(take, command: str, shown: str) -> None:
    with pytest.raises(Differs, match="the page shows"):
        take(block(command, shown))


def test_a_command_that_fails_has_to_be_marked(take) -> None:
    take(block("echo no; false", "no", "fails"))
    with pytest.raises(AssertionError, match="exit status 1"):
        take(block("echo no; false", "no"))
    with pytest.raises(AssertionError, match="exit status 0"):
        take(block("echo yes", "yes", "fails"))


def test_a_port_or_pid_of_the_page_stands_for_one_of_the_run(take) -> None:
    take(
        block("echo 127.0.0.1:23456, pid 77", "127.0.0.1:40001, pid 5")
        + block("echo 40001 5", "23456 77")
        + block("echo 127.0.0.1:23456", "127.0.0.1:40001")
    )
    with pytest.raises(Differs):
        take(block("echo 127.0.0.1:23457", "127.0.0.1:40001"))


def test_a_lesson_kills_only_processes_that_it_has_shown(take) -> None:
    with pytest.raises(AssertionError, match="no output has shown"):
        take("```sh\nkill -0 40002\n```\n")
    take(block("echo pid $$", "pid 40002") + "```sh\ntrue kill 40002\n```\n")


def test_a_second_terminal_runs_until_ctrl_c(take, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "<!-- terminal: a -->\n```sh\ntrap 'echo ended; exit' INT; echo ready; while :; do sleep 0.1; done\n```\n\n"
    page += "<!-- terminal: a -->\n```text\nready\n```\n\nPress Ctrl-C.\n\n<!-- Ctrl-C: a -->\n\n"
    page += "<!-- terminal: a -->\n```text\nended\n```\n"
    take(page)
    monkeypatch.setattr(lessons, "PATIENCE_S", 5)
    with pytest.raises(Differs):
        take(page.replace("ended\n```", "never\n```"))


def test_files_exported_variables_any_order_and_again(take) -> None:
    take("```python\n# say.py\nprint('hello')\n```\n\n" + block("python3 say.py", "hello"))
    take("```sh\nexport NAME=me\n```\n\n" + block("echo $NAME", "me"))
    take("```sh\nprintf 'b\\na\\n'\n```\n\n<!-- any order -->\n```text\na\nb\n```\n")
    take(block("echo x >>times; wc -l <times", "3", "again"))


def test_an_unknown_mark_or_block_or_an_output_without_a_command_fails(take) -> None:
    for page in ("<!-- terminl: a -->\n```sh\ntrue\n```\n", "```text\na\n```\n", "```ini\na=b\n```\n"):
        with pytest.raises((AssertionError, IndexError)):
            take(page)


def test_fill_lesson_replaces_placeholders_by_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lessons, "ROOT", tmp_path)
    monkeypatch.setattr(fill_lesson, "QUIET_S", 0.5)
    page = tmp_path / "lesson.md"
    page.write_text(
        block("echo true", "true")
        + block("echo 2026-11-28T10:00:00Z 127.0.0.1:9092 -xqi-_0kS8u8oknTbL4TVQ", "(output)")
        + "<!-- terminal: a -->\n```sh\necho ready; sleep 60\n```\n\n<!-- terminal: a -->\n```text\n(output)\n```\n"
    )
    assert fill_lesson.fill(page, tmp_path / "author") == 2
    shown = [step.shown or step.text for step in steps(page) if step.shown or step.kind == "see"]
    assert shown == ["true\n", "<time> 127.0.0.1:9092 <id>\n", "ready\n"]
    page.write_text(block("echo a", "(output)") + block("echo b", "not b"))
    with pytest.raises(Differs):
        fill_lesson.fill(page, tmp_path / "again")
    assert "```text\na\n```" in page.read_text()
