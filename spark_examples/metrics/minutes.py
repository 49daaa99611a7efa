"""Sums readings up by minute, host and metric into a topic, and sends what is no reading to a dead-letter topic.

    ottla spark-submit minutes.py --bootstrap 127.0.0.1:9092 --output /tmp/metrics

Takes what is there and ends (trigger availableNow); started again with the same output folder, it goes on where it was. A reading that
came twice counts once. Both sinks are at least once: keys tell a second copy, which is equal to the first.
"""

import argparse
from pathlib import Path

import readings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from session import start

# Three producers write at the same time, each at its own pace: one may be as far behind as the data is long.
LATENESS = "10 minutes"
RECORDS_PER_BATCH = 2000
MINUTE = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
POLL_S = 1


def minutes(records: DataFrame) -> DataFrame:
    """Count, min, max and sum, given out when the watermark has passed a minute."""
    return (
        records.where("problem IS NULL")
        .select("row.*")
        .withWatermark("time", LATENESS)
        .dropDuplicatesWithinWatermark(["id"])
        .groupBy(f.window("time", "1 minute").alias("window"), "host", "metric")
        .agg(
            f.count("*").alias("count"),
            f.min("value").alias("min"),
            f.max("value").alias("max"),
            f.sum("value").alias("sum"),
        )
        .withColumn("minute", f.date_format("window.start", MINUTE))
    )


def write(records: DataFrame, bootstrap: str, topic: str, checkpoint: Path) -> StreamingQuery:
    return (
        records.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("includeHeaders", "true")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def start_queries(
    spark: SparkSession, bootstrap: str, topic: str, output: Path, records_per_batch: int = RECORDS_PER_BATCH
) -> list[StreamingQuery]:
    records = readings.stream(spark, bootstrap, topic, records_per_batch)
    key = f.concat_ws(" ", "minute", "host", "metric")
    value = f.to_json(f.struct("minute", "host", "metric", "count", "min", "max", "sum"))
    totals = readings.record(minutes(records), key, value, ("metric", "metric"))
    poison = records.where("problem IS NOT NULL").select(
        f.concat_ws("-", "topic", "partition", "offset").alias("key"),
        "value",
        f.array(f.struct(f.lit("problem").alias("key"), f.col("problem").cast("binary").alias("value"))).alias(
            "headers"
        ),
    )
    return [
        write(totals, bootstrap, f"{topic}-minutes", output / "checkpoint-minutes"),
        write(poison, bootstrap, f"{topic}-dead", output / "checkpoint-dead"),
    ]


def follow(queries: list[StreamingQuery]) -> None:
    """Wait for the end of all, with a line for each batch of the first."""
    told = -1
    ended = [False]
    while not all(ended):
        ended = [bool(query.awaitTermination(POLL_S)) for query in queries]
        for progress in queries[0].recentProgress:
            if progress["batchId"] > told:
                told = progress["batchId"]
                print(f"  batch {told}: {progress['numInputRows']} records read", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Sum readings up by minute, host and metric.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="metrics")
    parser.add_argument("--output", type=Path, required=True, help="folder for the checkpoints")
    options = parser.parse_args()
    spark = start()
    follow(start_queries(spark, options.bootstrap, options.topic, options.output))
    spark.stop()


if __name__ == "__main__":
    main()
