"""Writes what the feed sends into the topic of posts, and what is no post into the topic of dead letters.

    FEED_URL=http://... python produce.py --bootstrap 127.0.0.1:9092 --output /tmp/search

Posts are keyed by their author, so that those of one author stay in order. The last id whose records are all acknowledged is in the output
folder: started again after whatever ended it, the producer asks the feed for what came later. So posts are written at least once, and their
ids tell a second copy.
"""

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from kafka import KafkaProducer
from kafka.errors import KafkaError, MessageSizeTooLargeError
from posts import MAX_RECORD_BYTES, NoPost, dead_letter, post_of
from sse import Event, FeedFailed, follow

EVENTS_PER_FLUSH = 200


class Writer:
    """Two producers, because a dead letter may be larger than a post; and the delivery reports of both."""

    def __init__(self, bootstrap: str, topic: str, position: Path) -> None:
        self._topic, self._position = topic, position
        common = {"bootstrap_servers": bootstrap, "acks": "all", "enable_idempotence": True, "linger_ms": 20}
        self._posts = KafkaProducer(**common, max_request_size=MAX_RECORD_BYTES, batch_size=MAX_RECORD_BYTES // 4)
        self._dead = KafkaProducer(**common, max_request_size=4 << 20)
        self._failures: list[BaseException] = []
        self.posts = self.dead = 0

    def position(self) -> str:
        """The id behind which the feed has to go on; empty for its beginning."""
        return self._position.read_text() if self._position.exists() else ""

    def write(self, event: Event) -> None:
        try:
            post = post_of(event.data)
            sent = self._posts.send(self._topic, event.data, key=post["author"].encode())
            self.posts += 1
        except (NoPost, MessageSizeTooLargeError) as problem:
            why = str(problem) if isinstance(problem, NoPost) else "too large"
            sent = self._dead.send(**dead_letter(self._topic, f"feed-{event.id}", event.data, why))
            self.dead += 1
        sent.add_errback(self._failures.append)

    def acknowledge(self, last_id: str) -> None:
        """Wait for all delivery reports and remember the id. Raises the first failure."""
        self._posts.flush()
        self._dead.flush()
        if self._failures:
            raise self._failures[0]
        partial = self._position.with_suffix(".partial")
        partial.write_text(last_id)
        partial.replace(self._position)

    def close(self) -> None:
        self._posts.close()
        self._dead.close()


def write_all(writer: Writer, events: Iterable[Event], events_per_flush: int = EVENTS_PER_FLUSH) -> None:
    """Write posts to the end of the feed. Events of other names, of which an API may have some, are passed over."""
    last_id, unflushed = "", 0
    for event in events:
        if event.name == "update":
            writer.write(event)
        last_id, unflushed = event.id, unflushed + 1
        if unflushed >= events_per_flush:
            writer.acknowledge(last_id)
            unflushed = 0
    if last_id:
        writer.acknowledge(last_id)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the posts of a feed to a topic.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="posts")
    parser.add_argument("--feed", default=os.environ.get("FEED_URL"), metavar="URL", help="default: $FEED_URL")
    parser.add_argument("--output", type=Path, required=True, help="folder for the last id")
    options = parser.parse_args()
    if not options.feed:
        sys.exit("Which feed? --feed URL, or FEED_URL, which `python feed.py -- ...` sets.")
    options.output.mkdir(parents=True, exist_ok=True)
    writer = Writer(options.bootstrap, options.topic, options.output / "feed-position")
    try:
        write_all(writer, follow(options.feed, writer.position()))
    except (FeedFailed, KafkaError) as error:
        sys.exit(f"Not all posts are written, start again to go on: {error}")
    finally:
        writer.close()
    print(f"produced: {writer.posts:,} posts with their repetitions, {writer.dead} dead letters", flush=True)


if __name__ == "__main__":
    main()
