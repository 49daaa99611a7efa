"""Writes an alert for each reading of a processor that is nearly busy, in one of Spark's three ways to run a stream.

    ottla spark-submit alerts.py --mode continuous --bootstrap 127.0.0.1:9092 --output /tmp/metrics

- available-now: batches until all is read, then it ends.
- continuous: tasks that do not end pass each record on within ms; it needs a core for each partition (--master 'local[6]').
- real-time: the same by Spark's newer engine, for stateful jobs, too; pyspark 4.1 and later have it.

The other two go on for ever; here they are stopped when they have read what was in the topic at the beginning. All are at least once:
the id of the reading is the key.
"""

import argparse
import inspect
import json
import sys
from pathlib import Path

import readings
from kafka import KafkaConsumer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from session import start

BUSY_PERCENT = 95
MODES = {
    "available-now": {"availableNow": True},
    "continuous": {"continuous": "1 second"},
    "real-time": {"realTime": "5 seconds"},
}
POLL_S = 1
PATIENCE_POLLS = 300


def has_mode(mode: str) -> bool:
    """Whether this pyspark has the trigger."""
    return set(MODES[mode]) <= inspect.signature(DataStreamWriter.trigger).parameters.keys()


def start_query(spark: SparkSession, bootstrap: str, topic: str, checkpoint: Path, mode: str) -> StreamingQuery:
    busy = (
        readings.stream(spark, bootstrap, topic)
        .where(f"problem IS NULL AND row.metric = 'cpu_percent' AND row.value >= {BUSY_PERCENT}")
        .select("row.*")
    )
    value = f.to_json(f.struct("id", "host", "value"))
    writer = (
        readings.record(busy, f.col("id"), value, ("host", "host"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", f"{topic}-alerts")
        .option("includeHeaders", "true")
        .option("checkpointLocation", str(checkpoint))
    )
    if mode == "real-time":
        writer = writer.outputMode("update")
    return writer.trigger(**MODES[mode]).start()


def ends(bootstrap: str, topic: str) -> dict[str, int]:
    """The end of each partition, by its number as Spark writes it."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        places = [TopicPartition(topic, index) for index in consumer.partitions_for_topic(topic) or ()]
        return {str(place.partition): end for place, end in consumer.end_offsets(places).items()}
    finally:
        consumer.close()


def committed(checkpoint: Path, topic: str) -> dict[str, int]:
    """Offsets up to which all is done, by partition, as the checkpoint has them; continuous processing tells no progress."""
    epochs = [int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdigit()]
    if not epochs:
        return {}
    lines = (checkpoint / "offsets" / str(max(epochs))).read_text().splitlines()
    offsets: dict[str, dict[str, int]] = json.loads(lines[-1])
    return offsets.get(topic, {})


def run_to_end(query: StreamingQuery, checkpoint: Path, topic: str, wanted: dict[str, int]) -> None:
    """Wait until it ends, or has read up to these offsets; then it is stopped."""
    for _ in range(PATIENCE_POLLS):
        if query.awaitTermination(POLL_S):
            return
        done = committed(checkpoint, topic)
        if all(done.get(partition, 0) >= end for partition, end in wanted.items()):
            query.stop()
            return
    query.stop()
    sys.exit(f"After {PATIENCE_POLLS} s it has not read everything.")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write alerts of busy processors.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="metrics")
    parser.add_argument("--mode", choices=MODES, default="available-now")
    parser.add_argument("--output", type=Path, required=True, help="folder for the checkpoint")
    options = parser.parse_args()
    if not has_mode(options.mode):
        sys.exit("This pyspark has no real-time mode; 4.1 and later have.")
    spark = start()
    wanted = ends(options.bootstrap, options.topic)
    checkpoint = options.output / f"checkpoint-alerts-{options.mode}"
    query = start_query(spark, options.bootstrap, options.topic, checkpoint, options.mode)
    run_to_end(query, checkpoint, options.topic, wanted)
    print(f"  alerts: all of {sum(wanted.values())} records are read, {options.mode}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
