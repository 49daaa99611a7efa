"""What the documentation tells to type does what it says. Blocks that cannot be run here say why, and are parsed."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from compat_tests.docs.pages import COURSE, PAGES, ROOT, Snippet, inline_codes, snippets
from compat_tests.docs.snippets import Reader, check_syntax
from compat_tests.support.brokers import OttlaProcess, free_port
from compat_tests.support.groups import ask_coordinator
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.server.cli.cli import parser_for
from ottla.server.cli.command_line import walk
from ottla.server.config.broker_config import load_config

RUN = ("sh", "python")
READ = ("yaml", "json", "properties")
SHOWN = ("text", "ini")
OTHERS = ("js", "go", "java")  # run by the tests that are named before them
ALL = [each for page in PAGES for each in snippets(page)]


@pytest.fixture(scope="module")
def reader_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Makes the readers of pages. One broker serves them all, so pages create topics of different names; a group has read there."""
    folder = tmp_path_factory.mktemp("docs")
    broker = OttlaProcess(folder, {})
    broker.settings = {"group.initial.rebalance.delay.ms": "0"}  # else what users have
    broker.start()
    _read_before(broker.bootstrap)
    yield lambda page: Reader(folder / page.stem, broker.bootstrap)
    broker.stop()


def _read_before(bootstrap: str) -> None:
    """The pages speak of a group `billing`, which has read some of `payments`."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("payments", b"one")
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    offsets = [TopicPartition("payments", 0, 1)]
    assert ask_coordinator(lambda: consumer.commit(offsets=offsets, asynchronous=False)) == 1
    consumer.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_tells_to_type_works(page: Path, reader_of) -> None:
    todo = [each for each in snippets(page) if each.language in RUN and each.mark in ("", "serves")]
    if todo:
        reader = reader_of(page)
        for snippet in todo:
            reader.serve(snippet, free_port()) if snippet.mark == "serves" else reader.run(snippet)


@pytest.mark.parametrize("snippet", ALL, ids=lambda each: each.place)
def test_a_block_can_be_read_and_says_how_it_is_tested(snippet: Snippet) -> None:
    assert snippet.language in (*RUN, *READ, *SHOWN) or (snippet.language in OTHERS and snippet.mark)
    check_syntax(snippet)
    if snippet.language == "yaml":
        assert yaml.safe_load(snippet.text)
    elif snippet.language == "json":
        json.loads(snippet.text)
    if snippet.mark == "tested by":
        test = ROOT / snippet.why
        assert test.is_file(), test
        assert test.name.startswith("test_")
    elif snippet.mark == "not run":
        assert len(snippet.why) > 10, "say why it cannot be run"


@pytest.mark.parametrize(
    "snippet", [each for each in ALL if each.language == "properties" and each.mark == ""], ids=lambda each: each.place
)
def test_settings_of_the_pages_are_settings(snippet: Snippet) -> None:
    """An unknown name or a value that cannot be is an error of `load_config`."""
    text = snippet.text.replace("\\\n", "")
    pairs = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
    load_config({name: value.strip() for name, value in pairs.items()})


@pytest.mark.parametrize("page", [*PAGES, *COURSE], ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_within_text_are_commands(page: Path) -> None:
    """They exist, and so do their options. `...` and `…` stand for something."""
    for line, code in inline_codes(page):
        if code.startswith("ottla ") and "..." not in code and "…" not in code:
            words = shlex.split(code)[1:]
            place = walk(parser_for(words)[0], words)
            assert place.unknown is None, f"{page.name}:{line}: `{code}`: there is no {place.unknown}"
