"""Puts the posts of the topic into an index of OpenSearch, each once, and what it refuses into the topic of dead letters.

    OPENSEARCH_URL=http://127.0.0.1:9200 python index.py --bootstrap 127.0.0.1:9092

Takes what is there and ends. Offsets are committed when OpenSearch has answered for what is before them, so that whoever is killed starts
again with some posts that are there already. They change nothing: the id of a document is the id of its post, and its version the offset.
"""

import argparse
import importlib.util
import json
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError
from posts import NoPost, dead_letter, post_of

RECORDS_PER_BULK = 200
PATIENCE_S = 60.0
BACKOFF_S = (0.2, 10.0)
POLL_MS = 1000
COMMIT_MS = 10_000
REQUEST_TIMEOUT_S = 30

MAPPING = {
    "settings": {"number_of_shards": 1, "number_of_replicas": 0},
    "mappings": {
        "dynamic": "strict",
        "properties": {
            "id": {"type": "keyword"},
            "author": {"type": "keyword"},
            "text": {"type": "text"},
            "tags": {"type": "keyword"},
            "lang": {"type": "keyword"},
            "time": {"type": "date"},
        },
    },
}


class IndexFailed(Exception):
    """OpenSearch or the topic is away for too long."""


class Indexer:
    """Takes records to OpenSearch, and commits them."""

    def __init__(self, client: Any, bootstrap: str, topic: str, instance: str = "1") -> None:
        self._client, self._topic = client, topic
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        self._topic_id = self._topic_id_now()
        self._dead = KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=f"{topic}-index",
            # A static member that is killed and started again need not wait until the group has missed it.
            group_instance_id=f"{topic}-index-{instance}",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_records=RECORDS_PER_BULK,
        )
        self.written = self.older = self.refused = 0

    def run(self, keeps_running: bool = False) -> None:
        """Index what is in the topic now, or go on for ever. Raises IndexFailed."""
        self._retried(self._create_index)
        ends: dict[Any, int] = {}
        while True:
            batches = self._consumer.poll(timeout_ms=POLL_MS)
            if records := [record for some in batches.values() for record in some]:
                self.index(records)
                self._commit()
            else:
                self._require_topic()
            assigned = self._consumer.assignment()
            if new := [place for place in assigned if place not in ends]:
                ends |= self._consumer.end_offsets(new)
            if not keeps_running and assigned and all(self._consumer.position(each) >= ends[each] for each in assigned):
                return

    def index(self, records: list[Any]) -> None:
        """Write posts by one bulk request, and again what OpenSearch had no room for; then the dead letters."""
        waiting, refused = [], []
        for record in records:
            try:
                waiting.append((record, post_of(record.value)))
            except NoPost as problem:
                refused.append((record, str(problem)))
        deadline, attempt = time.monotonic() + PATIENCE_S, 0
        while waiting:
            again = []
            for (record, post), answer in zip(waiting, self._retried(lambda: self._bulk(waiting)), strict=True):  # noqa: B023
                status = answer["status"]
                if status < 300:
                    self.written += 1
                elif status == 409:  # the index has this version of the post, or a newer one
                    self.older += 1
                elif status == 429 or status >= 500:
                    again.append((record, post))
                else:
                    refused.append((record, f"OpenSearch: {answer['error']['type']}: {answer['error']['reason']}"))
            waiting, attempt = again, attempt + 1
            if waiting:
                self._wait(attempt, deadline, f"OpenSearch has no room for {len(waiting)} posts")
        self._bury(refused)

    def _bulk(self, waiting: list[tuple[Any, dict[str, Any]]]) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = []
        for record, post in waiting:
            place = {"_id": post["id"], "version": record.offset, "version_type": "external_gte"}
            lines += [{"index": place}, post]
        body = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        return [item["index"] for item in self._client.bulk(index=self._topic, body=body)["items"]]

    def _bury(self, refused: list[tuple[Any, str]]) -> None:
        """Write dead letters; all are acknowledged before the offsets behind them are committed."""
        sent = [
            self._dead.send(
                **dead_letter(self._topic, f"{each.topic}-{each.partition}-{each.offset}", each.value, problem[:500])
            )
            for each, problem in refused
        ]
        for future in sent:
            future.get(timeout=60)
        self.refused += len(refused)

    def _create_index(self) -> None:
        from opensearchpy.exceptions import RequestError

        try:
            self._client.indices.create(index=self._topic, body=MAPPING)
        except RequestError as error:
            if error.error != "resource_already_exists_exception":
                raise

    def _retried(self, ask: Callable[[], Any]) -> Any:
        """Ask OpenSearch until it answers, or until patience ends."""
        from opensearchpy.exceptions import ConnectionError, TransportError

        deadline, attempt = time.monotonic() + PATIENCE_S, 0
        while True:
            try:
                return ask()
            except ConnectionError as error:
                reason = str(error.error)
            except TransportError as error:
                if error.status_code != 429 and error.status_code < 500:
                    raise
                reason = f"OpenSearch answers {error.status_code}"
            attempt += 1
            self._wait(attempt, deadline, reason)

    def _wait(self, attempt: int, deadline: float, reason: str) -> None:
        least, most = BACKOFF_S
        seconds = least + random.uniform(0, min(most, least * 2 ** min(attempt, 20)))
        if time.monotonic() + seconds > deadline:
            raise IndexFailed(reason)
        print(f"  {reason}; again in {seconds:.1f} s", flush=True)
        time.sleep(seconds)

    def _commit(self) -> None:
        try:
            self._consumer.commit(timeout_ms=COMMIT_MS)
        except KafkaTimeoutError:
            self._require_topic()
            raise

    def _require_topic(self) -> None:
        """Raise IndexFailed if the topic is gone. A consumer that asks for one may bring it back, empty, with another id."""
        if self._topic_id_now() != self._topic_id:
            raise IndexFailed(f"the topic {self._topic} was deleted, and made again")

    def _topic_id_now(self) -> object:
        [described] = self._admin.describe_topics([self._topic])
        if described["error_code"]:
            raise IndexFailed(f"there is no topic {self._topic}")
        return described["topic_id"]

    def close(self) -> None:
        self._consumer.close()
        self._admin.close()
        self._dead.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Put the posts of a topic into an index of OpenSearch.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="posts", help="the topic, and the index")
    parser.add_argument("--opensearch", default=os.environ.get("OPENSEARCH_URL"), metavar="URL")
    parser.add_argument("--instance", default="1", metavar="NAME", help="another one for each of several indexers")
    parser.add_argument("--keep-running", action="store_true", help="wait for more at the end, until it is stopped")
    options = parser.parse_args()
    if not options.opensearch:
        print("indexed: nothing, for there is no OpenSearch: --opensearch URL, or OPENSEARCH_URL")
        return
    if importlib.util.find_spec("opensearchpy") is None:
        sys.exit("Its client is missing: pip install -r requirements.txt")
    from opensearchpy import OpenSearch
    from opensearchpy.exceptions import OpenSearchException

    client = OpenSearch(options.opensearch, timeout=REQUEST_TIMEOUT_S, max_retries=0)
    try:
        with closing(Indexer(client, options.bootstrap, options.topic, options.instance)) as indexer:
            indexer.run(options.keep_running)
    except (IndexFailed, KafkaError, OpenSearchException) as error:
        sys.exit(f"Not all posts are indexed: {error}")
    print(
        f"indexed: {indexer.written:,} posts, {indexer.older} that were there already, {indexer.refused} dead letters"
    )


if __name__ == "__main__":
    main()
