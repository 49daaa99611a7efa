"""Writes the flights and the weather to two topics, as JSON, with kafka-python.

    python produce.py --bootstrap 127.0.0.1:9092

Every record carries its row's hour as its timestamp. Flights are keyed by flight number and spread over four partitions;
the weather has one partition, so that its offsets are the row numbers of the file. The producer is idempotent and waits
for all in-sync replicas: whatever happens to the broker meanwhile, each row is in its topic once, in order.
"""

import argparse
import json
from collections.abc import Iterable

from dataset import Row, flights, time_ms, weather
from kafka import KafkaAdminClient, KafkaProducer
from kafka.producer.future import FutureRecordMetadata

# Event time goes on only with the rows. One row from after the year on each topic tells every reader that 2013 is over.
AFTER_THE_YEAR: Row = {"origin": "nowhere", "time_hour": "2014-02-01T00:00:00Z"}

PARTITIONS = {"flights": 4, "weather": 1, "delays": 2}


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


def produce_flights(bootstrap: str, prefix: str = "") -> int:
    return produce(bootstrap, prefix + "flights", flights(), ("carrier", "flight"))


def produce_weather(bootstrap: str, prefix: str = "") -> int:
    return produce(bootstrap, prefix + "weather", weather(), ("origin",))


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


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the flights of 2013 and their weather to two topics.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--prefix", default="", help="put before the names of the topics")
    options = parser.parse_args()
    create_topics(options.bootstrap, options.prefix)
    print("weather rows:", produce_weather(options.bootstrap, options.prefix))
    print("flight rows:", produce_flights(options.bootstrap, options.prefix))


if __name__ == "__main__":
    main()
