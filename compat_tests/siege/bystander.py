"""A well-behaved client in a process of its own: produces a record, fetches it, and notes how long each took.

    python -m compat_tests.siege.bystander HOST:PORT FILE

FILE gets a line for each round: when it ended, in seconds of the monotonic clock, and the milliseconds of the produce
and of the fetch. The process ends with an error if a record that was acknowledged is not there, or is another.
"""

import struct
import sys
import time
from pathlib import Path

from compat_tests.support import raw

TOPIC = "bystander"
INTERVAL_S = 0.01


def main() -> None:
    host, port = sys.argv[1].rsplit(":", 1)
    with raw.Peer((host, int(port)), timeout_s=120) as peer, Path(sys.argv[2]).open("w", buffering=1) as lines:
        number = 0
        while True:
            value = f"{number:08d}".encode() * 128
            began = time.monotonic()
            answer = _call(peer, raw.produce(TOPIC, raw.batch([value])), "Produce", 7)
            (partition,) = answer.responses[0].partition_responses
            assert partition.error_code == 0, f"produce was answered {partition}"
            produced = time.monotonic()
            peer.send(raw.fetch(TOPIC, partition.base_offset))
            records = peer.receive()
            assert records is not None and value in records, f"the record at {partition.base_offset} is not there"
            fetched = time.monotonic()
            lines.write(f"{fetched:.6f} {(produced - began) * 1000:.3f} {(fetched - produced) * 1000:.3f}\n")
            number += 1
            time.sleep(INTERVAL_S)


def _call(peer: raw.Peer, frame: bytes, name: str, version: int) -> object:
    peer.send(frame)
    payload = peer.receive()
    assert payload is not None, "the broker closed the connection of the bystander"
    return raw.response(name, version, payload)


if __name__ == "__main__":
    try:
        main()
    except struct.error as error:  # an answer that is no answer
        raise SystemExit(f"the broker's answer cannot be read: {error}") from error
