"""Lessons of docs/course: their commands print what the page shows, and each lesson has all parts of a lesson."""

import re
import shutil
from pathlib import Path

import pytest
from compat_tests.docs.lessons import Student, steps
from compat_tests.docs.pages import COURSE, ROOT, headings, links, parsed
from compat_tests.support.brokers import free_port

LESSONS = [page for page in COURSE if page.stem[0].isdigit()]
PARTS = ["What you will see", "Try it", "Questions", "Read on"]
LEARN = ROOT / "server" / "admin" / "console" / "static" / "lessons.js"

each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda page: page.stem)


def run_lesson(lesson: Path, folder: Path, *, in_full: bool) -> None:
    """Run the steps of a lesson; those marked `long` only if `in_full`."""
    if "curl " in lesson.read_text() and shutil.which("curl") is None:
        pytest.skip("curl is missing")
    student = Student(folder / "desk", free_port())
    try:
        for step in steps(lesson):
            if in_full or not step.long:
                student.take(step)
    finally:
        student.close()


@each_lesson
def test_a_lesson_shows_what_happens(lesson: Path, tmp_path: Path) -> None:
    run_lesson(lesson, tmp_path, in_full=False)


@pytest.mark.long
@pytest.mark.parametrize(
    "lesson", [page for page in LESSONS if any(step.long for step in steps(page))], ids=lambda page: page.stem
)
def test_a_lesson_in_full_length_shows_what_happens(lesson: Path, tmp_path: Path) -> None:
    run_lesson(lesson, tmp_path, in_full=True)


@each_lesson
def test_a_lesson_has_its_parts_in_order(lesson: Path) -> None:
    found = headings(lesson)
    assert found[0].startswith(f"{int(lesson.stem[:2])}. ")
    assert [each for each in found if each in PARTS] == PARTS
    text = lesson.read_text()
    questions = text.partition("\n## Questions\n")[2].partition("\n## Read on\n")[0]
    assert len(re.findall(r"^\d\. ", questions, re.MULTILINE)) == 3
    assert questions.count("<summary>Answer</summary>") == 3


@each_lesson
def test_the_index_links_each_lesson_and_the_lesson_links_the_next(lesson: Path) -> None:
    assert f"]({lesson.name})" in (lesson.parent / "index.md").read_text()
    place = LESSONS.index(lesson)
    targets = {target for _, target in links(lesson)}
    following = {LESSONS[place + 1].name} if place + 1 < len(LESSONS) else set()
    assert following <= targets


@each_lesson
def test_lessons_link_only_to_lasting_sites_and_to_entries_of_the_consoles_learn_tab(lesson: Path) -> None:
    outside = [target for _, target in links(lesson) if target.startswith("http")]
    assert outside, "the lesson links no further reading"
    allowed = ("https://kafka.apache.org/", "https://cwiki.apache.org/confluence/")
    own = "http://127.0.0.1:9644/#/learn/"
    assert [
        each
        for each in outside
        if not each.startswith((*allowed, own, "https://docs.python.org/3/", "https://www.sqlite.org/"))
    ] == []
    words = set(re.findall(r'title: "(.*?)"', LEARN.read_text()))
    learned = [each.removeprefix(own) for each in outside if each.startswith(own)]
    assert [each for each in learned if each not in {word.lower().replace(" ", "-") for word in words}] == []


def test_pictures_are_drawn_for_light_and_dark_and_say_what_they_show() -> None:
    pictures = [
        (page, child)
        for page in COURSE
        for token in parsed(page)
        for child in token.children or ()
        if child.type == "image"
    ]
    assert len(pictures) >= 5
    for page, picture in pictures:
        drawing = (page.parent / str(picture.attrGet("src"))).read_text()
        assert len(picture.content) > 40, f"{page.name}: the alternative text says too little"
        assert "prefers-color-scheme: dark" in drawing, page.name
        assert "<title id=" in drawing, page.name
        assert "href=" not in drawing and "url(http" not in drawing, page.name
