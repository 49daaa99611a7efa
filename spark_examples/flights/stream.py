"""Joins each flight with the weather of its hour, and sums up the delays of every hour at each airport.

    python stream.py --bootstrap 127.0.0.1:9092 --output /tmp/flights

A Structured Streaming job that takes what is in the topics and ends (trigger availableNow); started again with the same
output folder, it goes on where its checkpoint says. One result, two sinks:

- Parquet, exactly once: a batch counts when its file list is in the sink's log, and is written over when repeated.
- the topic `delays`, at least once: a batch cut off in the middle is sent again, so that a reader takes the last record
  of a key. The repeated record is equal to the first, because a closed window never changes.
"""

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from reachable import require
from session import start

FLIGHT = "origin STRING, time_hour TIMESTAMP, dep_delay INT"
WEATHER = "origin STRING, time_hour TIMESTAMP, wind_speed DOUBLE, visib DOUBLE"

# Flights are in the order of days, not of hours: a cancelled one comes last, however early it should have left.
LATENESS = "2 days"

# A sixth of each topic at a time, so that the two streams keep pace. Their common watermark is the slower one's, and after
# a restart Spark knows a stream's own watermark again only when it has seen new rows of it.
RECORDS_PER_BATCH = {"flights": 60_000, "weather": 4_700}

SINKS = ("the topic", "Parquet")
POLL_S = 1

COLUMNS = ("hour", "origin", "flights", "departed", "delay_minutes", "mean_delay", "wind_speed", "visib")


def rows(spark: SparkSession, bootstrap: str, topic: str, schema: str, records_per_batch: int) -> DataFrame:
    """The JSON rows of a topic as a stream of columns. A value that is none ends the query."""
    place = f.format_string("partition %d, offset %d: no value", "partition", "offset")
    # `from_json` makes a null of a null, in every mode, and nobody would miss it.
    text = f.when(f.col("value").isNull(), f.raise_error(place)).otherwise(f.col("value").cast("string"))
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", records_per_batch)
        .load()
        .select(f.from_json(text, schema, {"mode": "FAILFAST"}).alias("row"))
        .select("row.*")
        .withWatermark("time_hour", LATENESS)
    )


def delays(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """One row for each hour and airport, given out when the watermark says that no more flights of that hour can come."""
    return (
        flights.join(weather, ["origin", "time_hour"], "leftOuter")
        .groupBy(f.window("time_hour", "1 hour").alias("hour"), "origin")
        .agg(
            f.count("*").alias("flights"),
            f.count("dep_delay").alias("departed"),
            f.sum("dep_delay").alias("delay_minutes"),
            f.avg("dep_delay").alias("mean_delay"),
            f.max("wind_speed").alias("wind_speed"),
            f.min("visib").alias("visib"),
        )
        .select(f.col("hour.start").alias("hour"), *COLUMNS[1:])
    )


def write_topic(result: DataFrame, bootstrap: str, topic: str, checkpoint: Path) -> StreamingQuery:
    record = f.to_json(f.struct(*COLUMNS), {"ignoreNullFields": "false"}).alias("value")
    return (
        result.select(f.concat_ws(" ", "origin", "hour").alias("key"), record)
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def write_parquet(result: DataFrame, folder: Path, checkpoint: Path) -> StreamingQuery:
    return (
        result.writeStream.format("parquet")
        .option("path", str(folder))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def start_queries(
    spark: SparkSession, bootstrap: str, output: Path, prefix: str = "", result: str = "delays"
) -> list[StreamingQuery]:
    """Both queries, each with a checkpoint of its own under the output folder; `result` is the topic written to."""
    flights = rows(spark, bootstrap, prefix + "flights", FLIGHT, RECORDS_PER_BATCH["flights"])
    weather = rows(spark, bootstrap, prefix + "weather", WEATHER, RECORDS_PER_BATCH["weather"])
    table = delays(flights, weather)
    return [
        write_topic(table, bootstrap, prefix + result, output / "checkpoint-topic"),
        write_parquet(table, output / "delays.parquet", output / "checkpoint-parquet"),
    ]


def follow(queries: list[StreamingQuery]) -> None:
    """Wait for the end of both, with a line for each batch that is done."""
    told = [-1] * len(queries)
    ended = [False]
    while not all(ended):
        # In its order: what is done by now is told below, also of a query that has just ended.
        ended = [bool(query.awaitTermination(POLL_S)) for query in queries]
        for number, query in enumerate(queries):
            for progress in query.recentProgress:
                if progress["batchId"] > told[number]:
                    told[number] = progress["batchId"]
                    print(
                        f"  batch {progress['batchId']} to {SINKS[number]}: {progress['numInputRows']:,} rows read",
                        flush=True,
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Sum up the delays of every hour at each airport.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--output", type=Path, required=True, help="folder for the Parquet files and the checkpoints")
    parser.add_argument("--prefix", default="", help="put before the names of the topics")
    options = parser.parse_args()
    require(options.bootstrap)
    print("Spark starts", flush=True)
    spark = start()
    follow(start_queries(spark, options.bootstrap, options.output, options.prefix))
    spark.read.parquet(str(options.output / "delays.parquet")).orderBy("hour", "origin").show(10)
    spark.stop()


if __name__ == "__main__":
    main()
