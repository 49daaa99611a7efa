"""Compares what was restored with the same ranges of the first topic, by count and checksum.

python check.py --bootstrap 127.0.0.1:9092
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime

import expected

OFFSETS = (100, 900)
TIMES = ("2026-01-01T00:01:00Z", "2026-01-01T00:05:00Z")


def ms(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1000)


def is_same(name: str, restored: Sequence[expected.Record], wanted: Sequence[expected.Record]) -> bool:
    """Whether bytes, offsets and times are the same; shows both sides."""
    sides = [
        ("restored", expected.checksum(restored), len(restored)),
        ("expected", expected.checksum(wanted), len(wanted)),
    ]
    for side, digest, count in sides:
        print(f"{name:8} {side}: {count:6} records, {digest[:32]}")
    kept = sorted((each.partition, *(int(value) for _, value in each.headers)) for each in restored)
    return sides[0][1:] == sides[1][1:] and kept == sorted((e.partition, e.offset, e.timestamp) for e in wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare restored topics with the first one.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="posts")
    options = parser.parse_args()
    posts = expected.records(options.bootstrap, options.topic)
    ranges = {
        "offsets": expected.between_offsets(*OFFSETS),
        "times": expected.between_times(*map(ms, TIMES)),
    }
    same = [
        is_same(
            name,
            expected.records(options.bootstrap, f"{options.topic}-{name}"),
            [each for each in posts if is_wanted(each)],
        )
        for name, is_wanted in ranges.items()
    ]
    if not all(same):
        sys.exit("NOT EQUAL")
    print("equal")


if __name__ == "__main__":
    main()
