"""Writes the flights and the weather to two topics, as JSON, with kafka-python.

    python produce.py --bootstrap 127.0.0.1:9092

Every record carries its row's hour as its timestamp. Flights are keyed by flight number and spread over four partitions;
the weather has one partition, so that its offsets are the row numbers of the file. The producer is idempotent and waits
for all in-sync replicas: whatever happens to the broker meanwhile, each row is in its topic once, in order. What is in the
topics already is not written a second time.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator

from dataset import Row, flights, time_ms, weather
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, TopicAlreadyExistsError
from kafka.producer.future import FutureRecordMetadata
from reachable import require

# Event time goes on only with the rows. One row from after the year on each topic tells every reader that 2013 is over.
AFTER_THE_YEAR: Row = {"origin": "nowhere", "time_hour": "2014-02-01T00:00:00Z"}

PARTITIONS = {"flights": 4, "weather": 1, "delays": 2}
PROGRESS_ROWS = 50_000


def create_topics(bootstrap: str, prefix: str = "") -> None:
    """The two topics of the data and the one for the result; the rows of 2013 must not fall to the default retention."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics(
            {
                prefix + name: {"num_partitions": count, "replication_factor": 1, "configs": {"retention.ms": "-1"}}
                for name, count in PARTITIONS.items()
            }
        )
    finally:
        admin.close()


def produce_flights(bootstrap: str, prefix: str = "", months: int = 12) -> int:
    """Those of the first so many months, as `produce_weather` does, too."""
    return produce(bootstrap, prefix + "flights", with_progress(flights(months), "flights"), ("carrier", "flight"))


def produce_weather(bootstrap: str, prefix: str = "", months: int = 12) -> int:
    return produce(bootstrap, prefix + "weather", with_progress(weather(months), "weather"), ("origin",))


def produce(bootstrap: str, topic: str, rows: Iterable[Row], key_columns: tuple[str, ...]) -> int:
    """Sends every row and then the one after the year; returns how many records the broker has acknowledged."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=20, batch_size=64 * 1024
    )
    sent = 0
    failures: list[BaseException] = []
    try:
        for row in rows:
            send(producer, topic, row, key_columns).add_errback(failures.append)
            sent += 1
        producer.flush()
        send(producer, topic, AFTER_THE_YEAR, key_columns).add_errback(failures.append)
        producer.flush()
    finally:
        producer.close()
    if failures:
        raise RuntimeError(f"{len(failures)} of {sent} rows were not acknowledged, the first with {failures[0]!r}")
    return sent + 1


def send(producer: KafkaProducer, topic: str, row: Row, key_columns: tuple[str, ...]) -> FutureRecordMetadata:
    return producer.send(
        topic,
        key="".join(str(row.get(column) or "") for column in key_columns).encode(),
        value=json.dumps(row, separators=(",", ":")).encode(),
        timestamp_ms=time_ms(row),
    )


def with_progress(rows: Iterable[Row], what: str) -> Iterator[Row]:
    """The same rows, with a line for every 50,000 of them."""
    for number, row in enumerate(rows):
        if number and number % PROGRESS_ROWS == 0:
            print(f"  {what}: {number:,} rows are on their way", flush=True)
        yield row


def held(bootstrap: str, topic: str) -> int:
    """How many records the topic holds; 0 if there is none of that name."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        partitions = [TopicPartition(topic, index) for index in consumer.partitions_for_topic(topic) or ()]
        return sum(consumer.end_offsets(partitions).values()) if partitions else 0
    finally:
        consumer.close()


def say_what_is_there(bootstrap: str, prefix: str) -> None:
    """The topics exist: from an earlier run that was complete, which is fine, or from one that was not."""
    wanted = {"flights": sum(1 for _ in flights()) + 1, "weather": sum(1 for _ in weather()) + 1}
    found = {name: held(bootstrap, prefix + name) for name in wanted}
    told = ", ".join(f"{prefix}{name} with {found[name]:,} of {count:,} records" for name, count in wanted.items())
    if found == wanted:
        print(f"Everything is there already: {told}. `--prefix again-` writes the rows to topics of other names.")
    else:
        sys.exit(f"Topics of these names exist, from another run perhaps: {told}. Delete them, or choose a --prefix.")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the flights of 2013 and their weather to two topics.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--prefix", default="", help="put before the names of the topics")
    options = parser.parse_args()
    require(options.bootstrap)
    try:
        create_topics(options.bootstrap, options.prefix)
        print("weather rows:", produce_weather(options.bootstrap, options.prefix), flush=True)
        print("flight rows:", produce_flights(options.bootstrap, options.prefix), flush=True)
    except TopicAlreadyExistsError:
        say_what_is_there(options.bootstrap, options.prefix)
    except (KafkaError, RuntimeError) as error:
        sys.exit(f"The rows are not all there: {error}")


if __name__ == "__main__":
    main()
