"""The client's side of spark.py: reads whole topics, as standard input names them, and says how long each took."""

import json
import sys
import tempfile
import time

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, length
from pyspark.sql.functions import sum as sum_of
from spark_examples.flights.session import start

OFFSETS_PER_BATCH = 100_000


def main() -> None:
    spark = start()
    for line in sys.stdin:
        bootstrap, topic, how = line.split()
        print(json.dumps((read if how == "batch" else stream)(spark, bootstrap, topic)), flush=True)
    spark.stop()


def read(spark: SparkSession, bootstrap: str, topic: str) -> dict[str, float]:
    """Read a topic in one query."""
    began = time.perf_counter()
    frame = spark.read.format("kafka").options(**options(bootstrap, topic)).load()
    (row,) = frame.agg(sum_of(length(col("value"))).alias("bytes"), count("*").alias("records")).collect()
    return {"seconds": time.perf_counter() - began, "records": row["records"], "bytes": row["bytes"]}


def stream(spark: SparkSession, bootstrap: str, topic: str) -> dict[str, float]:
    """Read a topic as a stream, micro-batch by micro-batch, up to its end."""
    with tempfile.TemporaryDirectory() as checkpoint:
        began = time.perf_counter()
        frame = spark.readStream.format("kafka").options(**options(bootstrap, topic))
        frame = frame.option("maxOffsetsPerTrigger", OFFSETS_PER_BATCH).load()
        sink = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query = sink.start()
        query.awaitTermination()
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "records": sum(each["numInputRows"] for each in query.recentProgress)}


def options(bootstrap: str, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}


if __name__ == "__main__":
    main()
