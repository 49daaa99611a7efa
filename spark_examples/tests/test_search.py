"""The search example loses no post of a feed that breaks off, limits and repeats, counts each once, and tells what is no post."""

import io
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from secrets import token_hex

import pytest
from hypothesis import given
from hypothesis import strategies as st

for package in ("kafka", "pyspark"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install '.[spark]')", allow_module_level=True)

from kafka import KafkaAdminClient, KafkaProducer
from pyspark.errors import StreamingQueryException
from spark_examples.tests.bulk_api import BulkApi
from spark_examples.tests.programs import HERE, programs_of

example = programs_of("search")
sse, feed, produce, expected, check, stream = (
    getattr(example, name) for name in ("sse", "feed", "produce", "expected", "check", "stream")
)

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:unclosed:ResourceWarning"),
]
# The index takes no other fields.
NOT_MAPPED = b'{"id": "not-mapped", "author": "a", "lang": "en", "time": "2026-01-01T10:00:00Z", "tags": [], "more": 1}'
HABITS = feed.Habits(cut_after=60, repeats=7, connections=3, window_s=0.5)


@pytest.fixture
def serve() -> Iterator[object]:
    """Starts a feed with the given events."""
    started = []

    def start(some: list[bytes], habits: feed.Habits = HABITS) -> feed.Feed:
        server = feed.Feed(some, habits)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        started.append((server, thread))
        return server

    yield start
    for server, thread in started:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def topic(broker, tmp_path) -> str:
    name = f"posts-{token_hex(4)}"
    example.record.create_topics(broker.bootstrap, name)
    return name


class Clock:
    """The feed's, in which time passes only while a client waits as long as the feed asks for: its other pauses are none.

    A client that is slow by itself would never connect so often that it is refused.
    """

    def __init__(self) -> None:
        self.now = 1_767_225_600.0

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        if seconds >= 1:
            self.now += seconds


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(feed, "time", clock)
    return clock


def read(text: bytes) -> list[sse.Event]:
    return list(sse.parsed(io.BytesIO(text)))


# Lines end with \n or \r\n, so that data that has \r itself cannot come back as it was.
@given(st.lists(st.binary(max_size=50).map(lambda data: data.replace(b"\r", b"")), max_size=5), st.data())
def test_events_come_back_as_they_were_framed(some, data):
    text = b"".join(feed.framed(number, each) for number, each in enumerate(some))
    assert read(text) == [sse.Event(str(number), "update", each) for number, each in enumerate(some)]
    cut = data.draw(st.integers(0, len(text)))
    assert read(text[:cut]) == read(text)[: len(read(text[:cut]))]


@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from([b"data", b"id", b":", b" ", b"\n", b"\r\n", b"x"])).map(b"".join)
)
def test_any_bytes_are_events_or_none(text):
    found = read(text)
    assert sum(len(event.data) for event in found) <= len(text)
    plain = text.replace(b"\r", b"")
    assert read(plain.replace(b"\n", b"\r\n")) == read(plain)


def test_an_event_that_is_too_long_is_cut_and_the_next_one_is_whole(monkeypatch):
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    text = b"data: " + b"x" * 950 + b"\n\ndata: a\n" * 2 + b"data:" + b"\ndata:" * 300 + b"\n\ndata: b\n\n"
    found = read(text)
    assert [len(each.data) <= 200 for each in found] == [True] * len(found)
    assert found[0].data.startswith(b"xxx") and found[-1].data == b"b"


def test_nothing_of_a_feed_is_lost(serve, clock):
    told: list[str] = []
    server = serve([b'"%d"' % number for number in range(500)])
    found = list(sse.follow(server.url, tell=told.append, sleep=clock.sleep))
    assert list(dict.fromkeys(each.id for each in found)) == [str(number + 1) for number in range(500)]
    assert all(each.data == b'"%d"' % (int(each.id) - 1) for each in found)
    assert len(found) > 500, "the feed has repeated nothing"
    assert server.refused and any("429" in line for line in told)
    assert any("503" in line for line in told) and server.cut > 5


def test_a_feed_that_is_none_is_told(serve):
    server = serve([b"1"])
    with pytest.raises(sse.FeedFailed, match="404"):
        list(sse.follow(server.url + "/nothing"))
    with pytest.raises(sse.FeedFailed, match="400"):
        list(sse.follow(server.url, "no-number"))
    server.shutdown()
    server.server_close()
    with pytest.raises(sse.FeedFailed, match="nothing in 3 attempts"):
        list(sse.follow(server.url, tell=lambda line: None, sleep=lambda seconds: None, attempts_max=3))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "no value"),
        (b"", "no JSON"),
        (b'{"id":', "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[1]", "no JSON object"),
        (b'{"id": 5}', "a field is missing"),
        (b'{"id": "1", "author": "a", "lang": "en", "time": "yesterday", "tags": []}', "no time with a zone"),
        (
            b'{"id": "1", "author": "a", "lang": "en", "time": "2026-01-01T00:00:00", "tags": []}',
            "no time with a zone",
        ),
        (b'{"id": "1", "author": "a", "lang": "en", "time": "2026-01-01T00:00:00Z", "tags": [1]}', "tags are no texts"),
    ],
)
def test_what_is_no_post(value, problem):
    with pytest.raises(example.posts.NoPost, match=f"^{problem}$"):
        example.posts.post_of(value)


def test_facets_are_those_that_were_written(spark, broker, topic, serve, clock, tmp_path):
    """The producer ends in the middle, with records that are not acknowledged, and goes on."""
    example.record.record(broker.bootstrap, topic, tmp_path, records=300)
    recorded = feed.recording(broker.bootstrap, f"{topic}-recorded")
    server = serve(feed.with_long_posts(recorded), feed.Habits(300, 20, 5, 0.5))
    position = tmp_path / "feed-position"
    for some in (450, None):
        with closing(produce.Writer(broker.bootstrap, topic, position)) as writer:
            came = sse.follow(server.url, writer.position(), tell=lambda line: None, sleep=clock.sleep)
            for event in itertools.islice(came, some):
                writer.write(event)
                if int(event.id) % 100 == 0:
                    writer.acknowledge(event.id)
            if some is None:
                writer.acknowledge(event.id)
        came.close()

    queries = stream.start_queries(spark, broker.bootstrap, topic, tmp_path, 800)
    stream.follow(queries)
    dropped = sum(each.numRowsDroppedByWatermark for p in queries[0].recentProgress for each in p.stateOperators)
    assert dropped == 0, "posts came later than the watermark allows, so the comparison would prove nothing"
    assert check.problems(broker.bootstrap, topic, tmp_path, None) == []
    why = check.dead_letters(broker.bootstrap, topic)[1]
    assert why.keys() >= {"too large", "no JSON", "no JSON object", "a field is missing"}, (
        "not all is known to the producer"
    )
    assert why.keys() & {"no value", "no post"}, "the job has found nothing"
    assert len(expected.records(broker.bootstrap, topic)) > 1200, "nothing was written twice"
    (tmp_path / "expected-9.jsonl").write_text('{"minute": "2026-01-01T08:00:00.000Z", "tag": "lost", "posts": 1}\n')
    assert check.problems(broker.bootstrap, topic, tmp_path, None) == ["posts that the generator told"]


def test_a_topic_that_is_deleted_ends_the_running_query(spark, broker, topic, tmp_path):
    example.record.generate(broker.bootstrap, topic, tmp_path, 1, "2026-01-01T09:59:45Z", 20)
    queries = stream.start_queries(spark, broker.bootstrap, topic, tmp_path, trigger={"processingTime": "0 seconds"})
    try:
        while not queries[0].recentProgress:
            assert not queries[0].awaitTermination(0.1)
        delete(broker, topic)
        with pytest.raises(StreamingQueryException, match="KAFKA_DATA_LOSS|UnknownTopicOrPartition"):
            queries[0].awaitTermination(240)
    finally:
        for query in queries:
            query.stop()


def delete(broker, topic: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        admin.delete_topics([topic])


def indexing(broker, topic: str, url: str, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "search" / "index.py"), "--bootstrap", broker.bootstrap, "--topic", topic]
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([*command, "--opensearch", url, *more], text=True, **both)


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code, and its last line."""
    told, _ = process.communicate(timeout=240)
    return process.returncode, told.splitlines()[-1] if told else ""


@pytest.fixture
def needs_client() -> None:
    if find_spec("opensearchpy") is None:
        pytest.skip("opensearch-py is not installed (pip install '.[test]')")


def test_each_post_is_indexed_once(broker, topic, needs_client, tmp_path):
    example.record.generate(broker.bootstrap, topic, tmp_path, 1, "2026-01-01T09:59:45Z", 900)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        producer.send(topic, NOT_MAPPED).get(timeout=60)
    killed: list[int] = []

    def kill(number: int) -> None:
        """After the fourth bulk request is written, and before it is answered."""
        if number == 4 and not killed:
            killed.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)

    with BulkApi("unanswered", "busy", "half", "lost", on_written=kill) as api:
        process = indexing(broker, topic, api.url)
        assert end_of(process)[0] == -signal.SIGKILL
        before = set(api.documents)
        assert end_of(indexing(broker, topic, api.url))[0] == 0
        nothing_new = "indexed: 0 posts, 0 that were there already, 0 dead letters"
        assert end_of(indexing(broker, topic, api.url)) == (0, nothing_new)
    posts, poison = expected.posts(record.value for record in expected.records(broker.bootstrap, topic))
    assert posts.pop("not-mapped")
    assert api.wrong == [] and before and before < posts.keys()
    assert api.documents.keys() == posts.keys()
    indexed, _ = expected.posts(json.dumps(each).encode() for each in api.documents.values())
    assert expected.facets(indexed.values()) == expected.facets(posts.values())
    letters, why = check.dead_letters(broker.bootstrap, topic)
    assert letters == poison + 1 and "OpenSearch: strict_dynamic_mapping_exception: as told" in why


def test_an_indexer_says_what_is_missing(broker, topic, needs_client, tmp_path):
    nowhere = f"{topic}-nothing"
    assert end_of(indexing(broker, nowhere, "http://127.0.0.1:1")) == (
        1,
        f"Not all posts are indexed: there is no topic {nowhere}",
    )
    code, told = end_of(indexing(broker, topic, ""))
    assert code == 0 and told.startswith("indexed: nothing, for there is no OpenSearch")
    example.record.generate(broker.bootstrap, topic, tmp_path, 1, "2026-01-01T09:59:45Z", 20)
    with BulkApi(on_written=lambda number: delete(broker, topic)) as api:
        code, told = end_of(indexing(broker, topic, api.url, "--keep-running"))
    assert code == 1 and topic in told, told


@pytest.mark.parametrize(
    ("variables", "path", "told"),
    [
        ({"OPENSEARCH_JARS": "/nowhere"}, None, "OpenSearch: left out, OPENSEARCH_JARS=/nowhere has no opensearch-"),
        ({}, "mvn", "OpenSearch: left out, it is fetched with Maven, and there is no mvn command"),
        ({}, "javac", "OpenSearch: left out, there is no javac command"),
        ({}, "opensearchpy", "OpenSearch: left out, its client is missing"),
        ({"OPENSEARCH_URL": "http://there"}, None, ""),
    ],
)
def test_a_command_runs_without_what_is_missing(variables, path, told, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(example.node, "CACHE", tmp_path)
    monkeypatch.setattr("shutil.which", lambda command: None if command == path else f"/usr/bin/{command}")
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None if package == path else package)
    for name in ("OPENSEARCH_URL", "OPENSEARCH_JARS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", ["node.py", "--", "sh", "-c", 'echo "at $OPENSEARCH_URL"; exit 3'])
    with pytest.raises(SystemExit) as ended:
        example.node.main()
    assert ended.value.code == 3
    out, err = capfd.readouterr()
    assert out == f"at {variables.get('OPENSEARCH_URL', '')}\n"
    assert err.startswith(told) and bool(err) == bool(told)
