"""A running sum for each parity, by Faust, exactly once: program.py BOOTSTRAP SOURCE TARGET DATA. Its table is a topic, too."""

import sys

import faust

bootstrap, source, target, folder = sys.argv[1:]
app = faust.App(
    "sums",
    broker=f"kafka://{bootstrap}",
    datadir=folder,
    processing_guarantee="exactly_once",
    topic_partitions=2,
    web_enabled=False,
    consumer_auto_offset_reset="earliest",
    broker_commit_interval=0.5,
)
by_parity = app.topic(source, value_type=bytes, value_serializer="raw", key_serializer="raw")
answers = app.topic(target, value_serializer="raw", key_serializer="raw")
totals = app.Table("totals", default=int, partitions=2)


@app.agent(by_parity)
async def add(numbers):
    async for key, value in numbers.items():
        parity = key.decode()
        totals[parity] += int(value)
        await answers.send(key=key, value=str(totals[parity]).encode())


faust.Worker(app, loglevel="INFO").execute_from_commandline()
