"""Kafka Streams: applications with state, repartition topics and joins, whose output is compared with what is right.

`OTTLA_STREAMS_KILLS=20` kills the application and the broker so many times each.
"""

import contextlib
import os
from collections import Counter, defaultdict

import pytest
from compat_tests.applications.streams import StreamsApplication, class_path, make_topics, put, take

KILLS = int(os.environ.get("OTTLA_STREAMS_KILLS", "2"))
WORDS = ["kafka", "ottla", "franz", "milena", "felice", "dora", "max"]
AT_LEAST_ONCE = pytest.param("at_least_once", marks=pytest.mark.long)  # asks for less of the same
GUARANTEES = pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, "exactly_once_v2"])
WORDS_COUNTED = pytest.mark.parametrize(
    ("release", "guarantee"),
    [
        pytest.param("streams_4", "at_least_once", marks=pytest.mark.long),
        ("streams_4", "exactly_once_v2"),
        pytest.param("streams_3", "at_least_once", marks=pytest.mark.long),
        ("streams_3", "exactly_once_v2"),
    ],
)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    return lambda release: class_path(release, folder)


@pytest.fixture
def start_application(compiled, tmp_path):
    with contextlib.ExitStack() as stack:

        def start(release, bootstrap, topology, name, number=0, **settings):
            folder = tmp_path / f"application-{number}"
            application = StreamsApplication(compiled(release), folder, bootstrap, topology, name, **settings)
            stack.enter_context(contextlib.closing(application)).start()
            return application

        yield start


def lines(count, start=0):
    """Lines of three words, and how often each word is in them."""
    texts = [" ".join(WORDS[(i * step) % len(WORDS)] for step in (1, 2, 3)) for i in range(start, start + count)]
    return texts, Counter(word for text in texts for word in text.split())


def counts_of(found):
    """The counts that were written for each word, in their order."""
    counts = defaultdict(list)
    for word, count in found:
        counts[word.decode()].append(int(count))
    return counts


@WORDS_COUNTED
def test_words_are_counted(bootstrap, unique, start_application, release, guarantee):
    name = unique("words")
    make_topics(bootstrap, 2, f"{name}-lines", f"{name}-counts")
    texts, expected = lines(300)
    put(bootstrap, f"{name}-lines", [(str(i), text, 1000 + i) for i, text in enumerate(texts)])
    start_application(release, bootstrap, "words", name, processing_guarantee=guarantee)
    found = take(bootstrap, f"{name}-counts", lambda found: len(found) >= expected.total())
    assert counts_of(found) == {word: list(range(1, count + 1)) for word, count in expected.items()}


@GUARANTEES
def test_streams_are_joined_in_windows(bootstrap, unique, start_application, guarantee):
    name = unique("window")
    make_topics(bootstrap, 2, *(f"{name}-{each}" for each in ("left", "right", "joined")))
    # Of each key the records are 15 s apart, so that each has one on the other side within ten seconds.
    left = [(f"k{i % 5}", f"l{i}", 1_000_000 + 15_000 * (i // 5)) for i in range(100)]
    right = [(key, f"r{value[1:]}", timestamp + 4000) for key, value, timestamp in left]
    put(bootstrap, f"{name}-left", left)
    put(bootstrap, f"{name}-right", right)
    start_application("streams_4", bootstrap, "window", name, processing_guarantee=guarantee)
    found = take(bootstrap, f"{name}-joined", lambda found: len(found) >= len(left))
    assert sorted(found) == sorted((f"k{i % 5}".encode(), f"l{i}+r{i}".encode()) for i in range(100))


@GUARANTEES
def test_tables_are_joined_by_a_foreign_key(bootstrap, unique, start_application, guarantee):
    name = unique("foreign")
    make_topics(bootstrap, 2, *(f"{name}-{each}" for each in ("orders", "customers", "named")))
    customers = [(f"c{i}", f"name{i}", 1000) for i in range(10)]
    orders = [(f"o{i}", f"c{i % 10} item{i}", 2000 + i) for i in range(100)]
    put(bootstrap, f"{name}-customers", customers)
    put(bootstrap, f"{name}-orders", orders)
    start_application("streams_4", bootstrap, "foreignKey", name, processing_guarantee=guarantee)
    expected = {f"o{i}".encode(): f"c{i % 10} item{i} name{i % 10}".encode() for i in range(100)}
    take(bootstrap, f"{name}-named", lambda found: dict(found) == expected)
    # A change of one customer reaches all of its orders.
    put(bootstrap, f"{name}-customers", [("c3", "other", 5000)])
    expected |= {f"o{i}".encode(): f"c3 item{i} other".encode() for i in range(3, 100, 10)}
    take(bootstrap, f"{name}-named", lambda found: dict(found) == expected)


def test_each_word_is_counted_exactly_once_while_broker_and_application_are_killed(
    start_broker, unique, start_application
):
    broker, name = start_broker(), unique("killed")
    make_topics(broker.bootstrap, 2, f"{name}-lines", f"{name}-counts")
    applications = [
        start_application(
            "streams_4", broker.bootstrap, "words", name, number, processing_guarantee="exactly_once_v2",
            transaction_timeout_ms="5000",
        )
        for number in range(2)
    ]  # fmt: skip
    applications[0].wait_until_running()
    expected, sent = Counter(), 0

    def send_and_wait():
        nonlocal sent
        texts, more = lines(100, sent)
        put(broker.bootstrap, f"{name}-lines", [(str(sent + i), text, sent + i) for i, text in enumerate(texts)])
        sent += len(texts)
        expected.update(more)

    for kill in range(KILLS):
        send_and_wait()
        victim = applications[kill % 2]
        take(broker.bootstrap, f"{name}-counts", lambda found: len(found) > expected.total() - 300)
        victim.kill()
        send_and_wait()
        broker.kill()
        broker.restart()
        victim.start()
    send_and_wait()
    found = take(broker.bootstrap, f"{name}-counts", lambda found: len(found) >= expected.total(), timeout_s=180)
    assert counts_of(found) == {word: list(range(1, count + 1)) for word, count in expected.items()}
