"""Celery with kombu's transport for Kafka: every task is worked off, while the broker is killed."""

from compat_tests.applications.streams import make_topics
from compat_tests.ecosystem.programs import size, squares

COUNT = 300


def test_every_task_is_worked_off_while_the_broker_is_killed(start_broker, start_program, tmp_path, wait_until):
    broker = start_broker()
    make_topics(broker.bootstrap, 1, "tasks")
    results = tmp_path / "results.txt"
    results.touch()
    worker = (broker.bootstrap, "tasks", str(results))
    start_program("celery", *worker)
    sender = start_program("celery", *worker, str(COUNT))
    wait_until(lambda: results.read_text().count("\n") > 10, "the worker has begun")
    broker.kill()
    broker.restart()
    assert sender.process.wait(120) == 0, sender.log
    assert size(broker.bootstrap, "tasks") >= COUNT
    wait_until(lambda: set(squares(COUNT)) <= set(results.read_text().split()), "all tasks are done")
    assert set(results.read_text().split()) == set(squares(COUNT))
