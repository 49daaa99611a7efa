"""Counts posts, tags and languages by hour into a topic, and sends what is no post to the topic of dead letters.

    ottla spark-submit stream.py --bootstrap 127.0.0.1:9092 --output /tmp/search

Takes what is there and ends (trigger availableNow); started again with the same output folder, it goes on where it was. A post that came
twice counts once. Both sinks are at least once: keys tell a second copy, which is equal to the first.
"""

import argparse
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from session import start

POST = "id STRING, author STRING, text STRING, tags ARRAY<STRING>, lang STRING, time TIMESTAMP, _corrupt STRING"
# Partitions are read at about the same pace: one may be some posts ahead, and between two of them may lie an hour.
LATENESS = "6 hours"
RECORDS_PER_BATCH = 2000
HOUR = "yyyy-MM-dd'T'HH:mm:ss'Z'"
POLL_S = 1
AVAILABLE_NOW = {"availableNow": True}


def posts(spark: SparkSession, bootstrap: str, topic: str, records_per_batch: int) -> DataFrame:
    """The records with the post as `row`, and what is wrong with them as `problem`; null for a good one."""
    row = f.from_json(f.col("value").cast("string"), POST, {"columnNameOfCorruptRecord": "_corrupt"})
    missing = [f.isnull(f"row.{name}") for name in ("id", "author", "tags", "lang", "time")]
    problem = (
        f.when(f.col("value").isNull(), "no value")
        .when(f.col("row._corrupt").isNotNull(), "no post")
        .when(missing[0] | missing[1] | missing[2] | missing[3] | missing[4], "a field is missing")
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


def facets(records: DataFrame) -> DataFrame:
    """One row for each hour and facet, given out when the watermark has passed the hour."""

    def facet(name: str, value: object) -> object:
        return f.struct(f.lit(name).alias("facet"), value.alias("of"))

    tags = f.transform("tags", lambda tag: facet("tag", tag))
    every = f.concat(f.array(facet("posts", f.lit("")), facet("lang", f.col("lang"))), tags)
    return (
        records.where("problem IS NULL")
        .select("row.*")
        .withWatermark("time", LATENESS)
        .dropDuplicatesWithinWatermark(["id"])
        .select("time", f.explode(every).alias("each"))
        .groupBy(f.window("time", "1 hour").alias("window"), "each.facet", "each.of")
        .agg(f.count("*").alias("posts"))
        .select(f.date_format("window.start", HOUR).alias("hour"), "facet", "of", "posts")
        .select(f.concat_ws(" ", "hour", "facet", "of").alias("key"), f.to_json(f.struct("*")).alias("value"))
    )


def dead_letters(records: DataFrame) -> DataFrame:
    problem = f.struct(f.lit("problem").alias("key"), f.col("problem").cast("binary").alias("value"))
    place = f.concat_ws("-", "topic", "partition", "offset")
    return records.where("problem IS NOT NULL").select(place.alias("key"), "value", f.array(problem).alias("headers"))


def write(records: DataFrame, bootstrap: str, topic: str, checkpoint: Path, trigger: dict) -> StreamingQuery:
    return (
        records.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("includeHeaders", "true")
        .option("checkpointLocation", str(checkpoint))
        .trigger(**trigger)
        .start()
    )


def start_queries(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    output: Path,
    records_per_batch: int = RECORDS_PER_BATCH,
    trigger: dict = AVAILABLE_NOW,
) -> list[StreamingQuery]:
    records = posts(spark, bootstrap, topic, records_per_batch)
    return [
        write(facets(records), bootstrap, f"{topic}-facets", output / "checkpoint-facets", trigger),
        write(dead_letters(records), bootstrap, f"{topic}-dead", output / "checkpoint-dead", trigger),
    ]


def follow(queries: list[StreamingQuery]) -> None:
    """Wait for the end of all, with a line for each batch of the first. Raises the error of a query that fails."""
    told = -1
    ended = [False]
    while not all(ended):
        ended = [bool(query.awaitTermination(POLL_S)) for query in queries]
        for progress in queries[0].recentProgress:
            if progress["batchId"] > told:
                told = progress["batchId"]
                print(f"  batch {told}: {progress['numInputRows']} records read", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count posts, tags and languages by hour.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="posts")
    parser.add_argument("--output", type=Path, required=True, help="folder for the checkpoints")
    parser.add_argument("--keep-running", action="store_true", help="wait for more at the end, until it is stopped")
    options = parser.parse_args()
    trigger = {"processingTime": "1 second"} if options.keep_running else AVAILABLE_NOW
    spark = start()
    try:
        follow(start_queries(spark, options.bootstrap, options.topic, options.output, trigger=trigger))
    except StreamingQueryException as error:
        sys.exit(f"The job has ended, and its checkpoint has what was done: {error}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
