"""The client's side of spark.py: reads whole topics, as standard input names them, and says how long each took."""

import json
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, length
from pyspark.sql.functions import sum as sum_of
from spark_examples.flights.session import start


def main() -> None:
    spark = start()
    for line in sys.stdin:
        bootstrap, topic = line.split()
        print(json.dumps(read(spark, bootstrap, topic)), flush=True)
    spark.stop()


def read(spark: SparkSession, bootstrap: str, topic: str) -> dict[str, float]:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    began = time.perf_counter()
    frame = spark.read.format("kafka").options(**options).load()
    (row,) = frame.agg(sum_of(length(col("value"))).alias("bytes"), count("*").alias("records")).collect()
    return {"seconds": time.perf_counter() - began, "records": row["records"], "bytes": row["bytes"]}


if __name__ == "__main__":
    main()
