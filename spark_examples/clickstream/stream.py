"""Finds the visits of each user: clicks with less than half a minute between them.

    ottla spark-submit stream.py --bootstrap 127.0.0.1:9092 --output /tmp/clicks

Takes what is there and ends (trigger availableNow); started again with the same output folder, it goes on where it was, also after it was
killed. Visits are written by `foreachBatch`, exactly once: a batch that is repeated writes its own folder over. What is no click is written
beside them.
"""

import argparse
import shutil
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from session import start

CLICK = "id STRING, user STRING, page STRING, device STRING, time TIMESTAMP, _corrupt STRING"
GAP = "30 seconds"
LATENESS = "5 minutes"
RECORDS_PER_BATCH = 1000
TIME = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
POLL_S = 1


def clicks(spark: SparkSession, bootstrap: str, topic: str, records_per_batch: int) -> DataFrame:
    """The records with the click as `row`, and what is wrong with them as `problem`; null for a good one."""
    row = f.from_json(f.col("value").cast("string"), CLICK, {"columnNameOfCorruptRecord": "_corrupt"})
    problem = (
        f.when(f.col("value").isNull(), "no value")
        .when(f.col("row._corrupt").isNotNull(), "no click")
        .when(f.isnull("row.id") | f.isnull("row.user") | f.isnull("row.time"), "a field is missing")
    )
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", records_per_batch)
        .load()
        .withColumn("row", row)
        .withColumn("problem", problem)
    )


def visits(records: DataFrame) -> DataFrame:
    """One row for each visit, given out when the watermark has passed its end: no late click can make it longer then."""
    return (
        records.where("problem IS NULL")
        .select("row.*")
        .withWatermark("time", LATENESS)
        .dropDuplicatesWithinWatermark(["id"])
        .groupBy(f.session_window("time", GAP), "user")
        .agg(f.count("*").alias("clicks"), f.min("time").alias("first"), f.max("time").alias("last"))
        .select(
            "user", f.date_format("first", TIME).alias("first"), f.date_format("last", TIME).alias("last"), "clicks"
        )
    )


def write(rows: DataFrame, folder: Path, checkpoint: Path) -> StreamingQuery:
    """Write each batch to a folder of its own, `batch-N`, which appears when it is whole."""

    def write_batch(batch: DataFrame, number: int) -> None:
        partial, whole = folder / f".batch-{number}", folder / f"batch-{number}"
        batch.write.mode("overwrite").json(str(partial))
        shutil.rmtree(whole, ignore_errors=True)
        partial.rename(whole)

    writer = rows.writeStream.foreachBatch(write_batch).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def start_queries(
    spark: SparkSession, bootstrap: str, topic: str, output: Path, records_per_batch: int = RECORDS_PER_BATCH
) -> list[StreamingQuery]:
    records = clicks(spark, bootstrap, topic, records_per_batch)
    dead = records.where("problem IS NOT NULL").select(
        "partition", "offset", "problem", f.base64("value").alias("value")
    )
    return [
        write(visits(records), output / "visits", output / "checkpoint-visits"),
        write(dead, output / "dead", output / "checkpoint-dead"),
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
    parser = argparse.ArgumentParser(description="Find the visits of each user.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="clicks")
    parser.add_argument("--output", type=Path, required=True, help="folder for the files and the checkpoints")
    options = parser.parse_args()
    spark = start()
    follow(start_queries(spark, options.bootstrap, options.topic, options.output))
    spark.stop()


if __name__ == "__main__":
    main()
