"""Takes the payments that were committed into files, once each, and what is no payment into a dead-letter topic.

    ottla spark-submit ledger.py --bootstrap 127.0.0.1:9092 --output /tmp/ledger

Two queries read the topic, each with a checkpoint of its own. They take what is there and end (trigger availableNow); started again
with the same output folder, they go on where they were.

- bookings into JSON files, exactly once: a file counts when the sink's log names it.
- whatever cannot be read into the topic `payments-dead`, at least once, as the bytes that it was. The key says where it was, so that
  a letter that is written twice is known.
"""

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from session import start

BOOKING = "payment INT, account STRING, amount INT, _corrupt STRING"
RECORDS_PER_BATCH = 100
POLL_S = 1


def bookings(spark: SparkSession, bootstrap: str, topic: str, records_per_batch: int) -> DataFrame:
    """Committed records, with what is wrong with them; null for a good one."""
    row = f.from_json(f.col("value").cast("string"), BOOKING, {"columnNameOfCorruptRecord": "_corrupt"})
    problem = (
        f.when(f.col("value").isNull(), "no value")
        .when(f.col("row._corrupt").isNotNull(), "no JSON object")
        .when(f.isnull("row.payment") | f.isnull("row.account") | f.isnull("row.amount"), "a field is missing")
    )
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", records_per_batch)
        .load()
        .withColumn("row", row)
        .withColumn("problem", problem)
    )


def write_ledger(records: DataFrame, output: Path) -> StreamingQuery:
    return (
        records.where("problem IS NULL")
        .select("partition", "offset", "row.payment", "row.account", "row.amount")
        .writeStream.format("json")
        .option("path", str(output / "ledger"))
        .option("checkpointLocation", str(output / "checkpoint-ledger"))
        .trigger(availableNow=True)
        .start()
    )


def write_dead_letters(records: DataFrame, bootstrap: str, topic: str, output: Path) -> StreamingQuery:
    reason = f.array(f.struct(f.lit("problem").alias("key"), f.col("problem").cast("binary").alias("value")))
    return (
        records.where("problem IS NOT NULL")
        .select(f.concat_ws("-", "topic", "partition", "offset").alias("key"), "value", reason.alias("headers"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("includeHeaders", "true")
        .option("checkpointLocation", str(output / "checkpoint-dead"))
        .trigger(availableNow=True)
        .start()
    )


def start_queries(
    spark: SparkSession, bootstrap: str, topic: str, output: Path, records_per_batch: int = RECORDS_PER_BATCH
) -> list[StreamingQuery]:
    records = bookings(spark, bootstrap, topic, records_per_batch)
    return [write_ledger(records, output), write_dead_letters(records, bootstrap, f"{topic}-dead", output)]


def follow(queries: list[StreamingQuery]) -> None:
    """Wait for the end of all, with a line for each batch of the ledger."""
    told = -1
    ended = [False]
    while not all(ended):
        ended = [bool(query.awaitTermination(POLL_S)) for query in queries]
        for progress in queries[0].recentProgress:
            if progress["batchId"] > told:
                told = progress["batchId"]
                print(f"  batch {told}: {progress['numInputRows']} records read", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Take committed payments into a ledger.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="payments")
    parser.add_argument("--output", type=Path, required=True, help="folder for the files and the checkpoints")
    options = parser.parse_args()
    spark = start()
    follow(start_queries(spark, options.bootstrap, options.topic, options.output))
    spark.stop()


if __name__ == "__main__":
    main()
