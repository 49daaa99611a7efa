"""Have one record go through an installed broker: `python one_record.py COMMAND [option ...]`.

The command is `ottla`, by its path. It has to print its version, start on a free port with a new data folder, take a record of
kafka-python, which the interpreter that runs this has to have, give it back, and stop cleanly. Further words are given to
`ottla start`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence

DEADLINE_S = 60.0
LISTENING = "listening on "


def main(arguments: Sequence[str]) -> None:
    command, *options = arguments
    version = subprocess.run([command, "version"], check=True, text=True, capture_output=True, timeout=DEADLINE_S)
    with tempfile.TemporaryDirectory(prefix="ottla-data-") as folder:
        settings = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={folder}/data"]
        overrides = [word for setting in settings for word in ("--override", setting)]
        broker = subprocess.Popen([command, "start", *overrides, *options], stdout=subprocess.PIPE, text=True)
        # Whatever hangs ends with the broker.
        timer = threading.Timer(DEADLINE_S, broker.kill)
        timer.start()
        try:
            write_and_read(address(broker))
        finally:
            broker.send_signal(signal.SIGTERM)
            status = broker.wait()
            timer.cancel()
    if status != 0:
        raise SystemExit(f"the broker ended with status {status}")
    print(f"{version.stdout.strip()}: one record written and read")


def address(broker: subprocess.Popen[str]) -> str:
    assert broker.stdout is not None
    for line in broker.stdout:
        if line.startswith(LISTENING):
            return line.removeprefix(LISTENING).strip()
    raise SystemExit("the broker ended before it listened")


def write_and_read(bootstrap: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    producer.send("records", b"one").get(timeout=DEADLINE_S)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition("records", 0)])
    record = next(consumer)
    consumer.close()
    if record.value != b"one":
        raise SystemExit(f"the record came back as {record.value!r}")


if __name__ == "__main__":
    main(sys.argv[1:])
