"""Takes a topic into Parquet files, by day and partition, each record once.

    ottla spark-submit archive.py --bootstrap 127.0.0.1:9092 --output /tmp/archive

Nothing is decoded: what is poison to others is archived as the bytes that it is. Takes what is there and ends (trigger availableNow);
started again with the same output folder, it goes on where it was. If retention has removed what was not archived yet, the job ends with
an error; with --accept-loss it goes on with what is left.
"""

import argparse
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from session import start

RECORDS_PER_BATCH = 1000
POLL_S = 1


def records(
    spark: SparkSession, bootstrap: str, topic: str, records_per_batch: int, *, accepts_loss: bool = False
) -> DataFrame:
    """The records of the topic, with their day."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", records_per_batch)
        .option("failOnDataLoss", str(not accepts_loss).lower())
        .load()
        .select("key", "value", "partition", "offset", "timestamp", f.to_date("timestamp").alias("day"))
    )


def start_query(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    output: Path | str,
    *,
    records_per_batch: int = RECORDS_PER_BATCH,
    accepts_loss: bool = False,
) -> StreamingQuery:
    return (
        records(spark, bootstrap, topic, records_per_batch, accepts_loss=accepts_loss)
        .writeStream.format("parquet")
        .partitionBy("day", "partition")
        .option("path", f"{output}/records")
        .option("checkpointLocation", f"{output}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )


def follow(query: StreamingQuery) -> None:
    """Wait for its end, with a line for each batch. Raises StreamingQueryException if it fails."""
    told = -1
    is_ended = False
    while not is_ended:
        is_ended = bool(query.awaitTermination(POLL_S))
        for progress in query.recentProgress:
            if progress["batchId"] > told:
                told = progress["batchId"]
                print(f"  batch {told}: {progress['numInputRows']} records archived", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Archive a topic as Parquet.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="posts")
    parser.add_argument("--output", required=True, help="folder for the files and the checkpoint; also hdfs://...")
    parser.add_argument("--accept-loss", action="store_true", help="go on if records are gone (failOnDataLoss=false)")
    options = parser.parse_args()
    spark = start()
    try:
        follow(start_query(spark, options.bootstrap, options.topic, options.output, accepts_loss=options.accept_loss))
    except StreamingQueryException as error:
        sys.exit(f"The archive is not whole: {str(error).splitlines()[0]}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
