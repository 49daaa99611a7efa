"""Kafka Connect: two workers share connectors and pass them on, and a source writes each line exactly once."""

import contextlib

import pytest
from compat_tests.applications.connect import Worker, running_on
from compat_tests.applications.streams import take

FILE = "org.apache.kafka.connect.file.FileStream"


@pytest.fixture
def workers(java_with_tools, bootstrap, unique, tmp_path, wait_until):
    """Two workers of one group."""
    name = unique("connect")
    with contextlib.ExitStack() as stack:
        started = [Worker(java_with_tools, bootstrap, name, tmp_path / f"worker-{number}") for number in range(2)]
        for worker in started:
            worker.start()
            stack.enter_context(contextlib.closing(worker))
        for worker in started:
            wait_until(lambda worker=worker: worker.ask("/connectors") == [], "the worker serves", timeout_s=180)
        yield started


@pytest.mark.timeout(900)  # each of its waits may take minutes on a busy machine
def test_a_source_writes_each_line_once_while_its_worker_is_killed(
    workers, bootstrap, make_topic, unique, tmp_path, wait_until
):
    topic, source, sink = make_topic(), tmp_path / "source.txt", tmp_path / "sink.txt"
    reading, writing = unique("source"), unique("sink")
    source.touch()
    first = workers[0]
    configs = {
        reading: {"connector.class": f"{FILE}SourceConnector", "file": str(source), "topic": topic},
        writing: {"connector.class": f"{FILE}SinkConnector", "file": str(sink), "topics": topic,
                  "consumer.override.isolation.level": "read_committed"},
    }  # fmt: skip
    for name, config in configs.items():
        wait_until(lambda name=name, config=config: first.ask("/connectors", {"name": name, "config": config | {"tasks.max": "1"}}),
                   "the connector is made", timeout_s=180)  # fmt: skip
    wait_until(lambda: all(running_on(first, name) for name in configs), "the tasks run", timeout_s=180)
    lines = []

    def write_more():
        more = [f"line {i}" for i in range(len(lines), len(lines) + 300)]
        lines.extend(more)
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in more)

    write_more()
    take(bootstrap, topic, lambda found: len(found) >= 100)
    victim = next(worker for worker in workers if worker.name == running_on(first, reading))
    survivor = next(worker for worker in workers if worker is not victim)
    write_more()
    victim.close()
    write_more()
    wait_until(lambda: running_on(survivor, reading) == survivor.name, "the source has moved", timeout_s=180)
    found = take(bootstrap, topic, lambda found: len(found) >= len(lines))
    assert [value.decode() for _, value in found] == lines
    wait_until(lambda: set(lines) <= set(sink.read_text().splitlines()), "the sink has all", timeout_s=180)
