"""All of the search example with OpenSearch itself; and an index that is right though broker and indexer are killed."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from secrets import token_hex

import pytest

for package in ("kafka", "opensearchpy"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install '.[test,spark]')", allow_module_level=True)

from opensearchpy import OpenSearch
from spark_examples.tests import submitting
from spark_examples.tests.programs import programs_of
from spark_examples.tests.test_search import end_of, indexing

example = programs_of("search")
check, expected, node, record = example.check, example.expected, example.node, example.record
JARS = submitting.JARS / "search"

pytestmark = [
    pytest.mark.ecosystem,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:unclosed:ResourceWarning"),
]


@pytest.fixture(autouse=True)
def jars(monkeypatch) -> None:
    if not (JARS / ".ready").exists():
        pytest.skip("OpenSearch is not on this machine (`make ecosystem` brings it)")
    monkeypatch.setenv("OPENSEARCH_JARS", str(JARS))


@pytest.fixture
def opensearch(tmp_path) -> Iterator[str]:
    try:
        with node.running(tmp_path) as url:
            yield url
    except node.Missing as missing:
        pytest.fail(str(missing))


def until(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 240
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def test_the_example_says_equal(run_example):
    told = run_example("search").splitlines()
    assert told[-1] == "equal"
    assert "OpenSearch: not compared" not in " ".join(told)
    assert sum(line.startswith("  OpenSearch ") for line in told) == check.SHOWN


def test_broker_and_indexer_are_killed(killable, opensearch, tmp_path):
    topic = f"posts-{token_hex(4)}"
    record.create_topics(killable.bootstrap, topic)

    def documents() -> int:
        with contextlib.suppress(OSError):  # there is no index yet
            return check.ask(opensearch, f"{topic}/_count")["count"]
        return 0

    def write(seed: int) -> None:
        record.generate(killable.bootstrap, topic, tmp_path, seed, f"2026-01-01T0{seed}:59:45Z", 1000)

    write(1)
    indexer = indexing(killable, topic, opensearch, "--keep-running")
    until(lambda: documents() > 0, "documents appear")
    killable.kill()
    killable.start()
    write(2)
    until(lambda: documents() > 1000, "documents go on")
    indexer.kill()
    assert end_of(indexer)[0] == -signal.SIGKILL
    write(3)
    assert end_of(indexing(killable, topic, opensearch))[0] == 0
    posts, poison = expected.posts(each.value for each in expected.records(killable.bootstrap, topic))
    assert len(posts) > 2800 and poison
    assert check.of_opensearch(opensearch, topic) == expected.facets(posts.values())
    assert documents() == len(posts)
    assert check.dead_letters(killable.bootstrap, topic)[0] == poison
    OpenSearch(opensearch).delete(index=topic, id=next(iter(posts)), refresh=True)
    assert check.of_opensearch(opensearch, topic) != expected.facets(posts.values())
