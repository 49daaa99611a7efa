"""An index of OpenSearch that a consumer fills: each record once, while the broker and the consumer are killed."""

import contextlib
import json
import urllib.request

import pytest
from compat_tests.applications.streams import make_topics
from compat_tests.ecosystem.programs import Program, feeder, java_command
from compat_tests.support.brokers import free_port, wait_until

pytestmark = pytest.mark.ecosystem
COUNT = 3000
LANGUAGES = ("cs", "de", "en")


def ask(address: str, path: str, body: object = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def serves(address: str) -> bool:
    with contextlib.suppress(OSError):
        return ask(address, "_cluster/health")["status"] in ("green", "yellow")
    return False


def count(address: str) -> int:
    with contextlib.suppress(OSError):  # there is no index yet
        return ask(address, "posts/_count")["count"]
    return 0


@pytest.mark.timeout(600)
def test_each_record_is_indexed_once(start_broker, start_program, tmp_path):
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = java_command("opensearch", "SearchNode", tmp_path)
    node = Program([*command, str(tmp_path / "home"), str(port)], tmp_path / "opensearch")
    broker = start_broker()
    make_topics(broker.bootstrap, 3, "posts")
    producer = feeder(broker.bootstrap)

    def write(numbers: range) -> None:
        for number in numbers:
            post = {"number": number, "language": LANGUAGES[number % len(LANGUAGES)]}
            producer.produce("posts", key=str(number), value=json.dumps(post))

    with contextlib.closing(node.start()):
        wait_until(lambda: serves(address), "OpenSearch serves", 180)
        indexer = start_program("opensearch", broker.bootstrap, "posts", address)
        write(range(COUNT // 3))
        wait_until(lambda: count(address) > 0, f"documents appear: {indexer.log}", 120)
        write(range(COUNT // 3, 2 * COUNT // 3))
        broker.kill()
        broker.restart()
        wait_until(lambda: count(address) > COUNT // 3, "documents go on", 120)
        indexer.kill()
        write(range(2 * COUNT // 3, COUNT))
        assert producer.flush(60) == 0
        start_program("opensearch", broker.bootstrap, "posts", address)
        wait_until(lambda: count(address) >= COUNT, "all are indexed", 120)
        facets = {"size": 0, "track_total_hits": True, "aggs": {
            "languages": {"terms": {"field": "language.keyword"}}, "sum": {"sum": {"field": "number"}},
            "different": {"cardinality": {"field": "number", "precision_threshold": 40_000}},
        }}  # fmt: skip
        found = ask(address, "posts/_search", facets)
    told = {each["key"]: each["doc_count"] for each in found["aggregations"]["languages"]["buckets"]}
    assert found["hits"]["total"]["value"] == COUNT
    assert told == dict.fromkeys(LANGUAGES, COUNT // len(LANGUAGES))
    assert found["aggregations"]["sum"]["value"] == sum(range(COUNT))
    assert found["aggregations"]["different"]["value"] == COUNT
