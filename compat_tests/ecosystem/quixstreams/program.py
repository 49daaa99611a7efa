"""A running sum for each parity, by Quix Streams, exactly once: program.py BOOTSTRAP SOURCE TARGET STATE."""

import sys

from quixstreams import Application, State

bootstrap, source, target, state_folder = sys.argv[1:]
app = Application(
    broker_address=bootstrap,
    consumer_group="sums",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=0.5,
    state_dir=state_folder,
)


def add(number: int, state: State) -> int:
    total = state.get("total", 0) + number
    state.set("total", total)
    return total


numbers = app.dataframe(app.topic(source, value_deserializer="json"))
by_parity = numbers.group_by(lambda number: str(number % 2), name="parity")
by_parity.apply(add, stateful=True).to_topic(app.topic(target, value_serializer="json"))
app.run()
