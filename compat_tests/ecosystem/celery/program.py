"""Tasks of Celery, by kombu's transport for Kafka: program.py BOOTSTRAP QUEUE RESULTS, and a number of tasks to send them."""

import sys
from pathlib import Path

import celery

bootstrap, queue, results, *count = sys.argv[1:]
app = celery.Celery("tasks", broker=f"confluentkafka://{bootstrap}")
app.conf.update(
    broker_transport_options={"wait_time_seconds": 0.5},
    task_default_queue=queue,
    task_ignore_result=True,
    task_acks_late=True,
    worker_enable_remote_control=False,  # kombu's transport has no fanout
)


@app.task(name="square")
def square(number: int) -> None:
    with Path(results).open("a") as file:
        print(number * number, file=file)


if count:
    for number in range(int(count[0])):
        square.delay(number)
else:
    app.worker_main(
        ["worker", "--pool=solo", "--loglevel=INFO", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    )
