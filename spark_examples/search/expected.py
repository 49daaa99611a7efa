"""The facets, found by plain Python in the bytes of the topic; and what the generator told.

    python expected.py --bootstrap 127.0.0.1:9092

Nothing here knows of Spark or OpenSearch.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition

Facet = tuple[str, str, str]
"""Hour; posts, tag or lang; which one."""

LAST = "end"
"""Id of the post that ends the data. It belongs to no facet."""


def records(bootstrap: str, topic: str) -> list[Any]:
    """All records of a topic."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        places = [TopicPartition(topic, index) for index in sorted(consumer.partitions_for_topic(topic) or ())]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        found: list[Any] = []
        while any(consumer.position(place) < ends[place] for place in places):
            for some in consumer.poll(timeout_ms=1000).values():
                found += some
        return found
    finally:
        consumer.close()


def posts(values: Iterable[bytes | None]) -> tuple[dict[str, dict[str, Any]], int]:
    """Each post once, by its id, and the number of values that are none."""
    found, poison = {}, 0
    for value in values:
        try:
            post = json.loads(value or b"null")
            found[post["id"]] = post | {"hour": hour(post["time"]), "tags": list(post["tags"]), "lang": post["lang"]}
        except (ValueError, TypeError, KeyError):
            poison += 1
    return found, poison


def hour(time: str) -> str:
    return datetime.fromisoformat(time).strftime("%Y-%m-%dT%H:00:00Z")


def facets(some: Iterable[dict[str, Any]]) -> dict[Facet, int]:
    """Posts of each hour, and of each tag and language in it."""
    found: Counter[Facet] = Counter()
    for post in some:
        if post["id"] != LAST:
            found[post["hour"], "posts", ""] += 1
            found[post["hour"], "lang", post["lang"]] += 1
            for tag in post["tags"]:
                found[post["hour"], "tag", tag] += 1
    return dict(found)


def told_tags(output: Path) -> dict[Facet, int]:
    """Posts of each tag in each hour, as the generator told them of what it wrote: also of what may have been lost since."""
    found: Counter[Facet] = Counter()
    for path in output.glob("expected-*.jsonl"):
        for row in map(json.loads, path.read_text().splitlines()):
            found[hour(row["minute"]), "tag", row["tag"]] += row["posts"]
    return dict(found)


def told_poison(output: Path) -> int:
    """Records that are no posts, in the recording and in the topic."""
    told = [json.loads(path.read_text()) for path in output.glob("generated-*.json")]
    return sum(Counter(each["poison"]).total() for each in told)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the first facets.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="posts")
    options = parser.parse_args()
    values = (record.value for record in records(options.bootstrap, options.topic))
    for facet, number in sorted(facets(posts(values)[0].values()).items())[:10]:
        print(*facet, number)


if __name__ == "__main__":
    main()
