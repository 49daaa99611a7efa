"""Writes ranges of the archive to topics: each record to its partition, in the order of its offsets.

    ottla spark-submit restore.py --archive /tmp/archive --offsets 100 900 --times 2026-01-01T00:01:00Z 2026-01-01T00:05:00Z

The records of these offsets of each partition go to `posts-offsets`, those of these times to `posts-times`. A range begins with its first
value and ends before its second one. Spark's sink gives records the time at which they are written, so a header keeps their own time, and
another one the offset.
"""

import argparse
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from session import start


def between_offsets(first: int, behind: int) -> Column:
    return (f.col("offset") >= first) & (f.col("offset") < behind)


def between_times(first: str, behind: str) -> Column:
    return (f.col("timestamp") >= f.to_timestamp(f.lit(first))) & (f.col("timestamp") < f.to_timestamp(f.lit(behind)))


def archived(spark: SparkSession, archive: Path | str) -> DataFrame:
    return spark.read.parquet(f"{archive}/records")


def restore(records: DataFrame, bootstrap: str, topic: str) -> None:
    """Write records; a task writes all of a partition, one after the other."""
    headers = f.array(
        f.struct(f.lit("offset").alias("key"), f.col("offset").cast("string").cast("binary").alias("value")),
        f.struct(f.lit("time").alias("key"), f.unix_millis("timestamp").cast("string").cast("binary").alias("value")),
    )
    (
        records.repartition("partition")
        .sortWithinPartitions("partition", "offset")
        .select("key", "value", headers.alias("headers"), f.col("partition").cast("int").alias("partition"))
        .write.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("includeHeaders", "true")
        .save()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Write ranges of the archive to topics.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="posts", help="the archived one; the others need as many partitions")
    parser.add_argument("--archive", required=True, help="the folder of archive.py")
    parser.add_argument("--offsets", nargs=2, type=int, metavar=("FIRST", "BEHIND"))
    parser.add_argument("--times", nargs=2, metavar=("FIRST", "BEHIND"))
    options = parser.parse_args()
    spark = start()
    records = archived(spark, options.archive)
    wanted = {}
    if options.offsets:
        wanted["offsets"] = between_offsets(*options.offsets)
    if options.times:
        wanted["times"] = between_times(*options.times)
    for name, is_wanted in wanted.items():
        restore(records.where(is_wanted), options.bootstrap, f"{options.topic}-{name}")
        print(f"  restored by {name} to {options.topic}-{name}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
