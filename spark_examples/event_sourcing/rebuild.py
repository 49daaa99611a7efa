"""Rebuilds the state from the topic as a batch, and writes it to a file.

    ottla spark-submit rebuild.py --bootstrap 127.0.0.1:9092 --output /tmp/stock.json

A key is always in one partition, so that of its records the one with the highest offset is the last. A value that is no state ends the
job and names its place, because nobody knows what that key holds.
"""

import argparse
import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from session import start

STATE = "item STRING, place STRING, count INT, move INT, _corrupt STRING"


class Unreadable(Exception):
    """A record that says no state; the text names its place."""


def last_records(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """The last committed record of each key, without tombstones."""
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .load()
    )
    last = f.max_by(f.struct("partition", "offset", "value"), "offset").alias("last")
    return records.groupBy(f.col("key").cast("string").alias("key")).agg(last).where("last.value IS NOT NULL")


def state(spark: SparkSession, bootstrap: str, topic: str) -> dict[str, int]:
    """What places hold, by item@place. Raises Unreadable."""
    row = f.from_json(f.col("last.value").cast("string"), STATE, {"columnNameOfCorruptRecord": "_corrupt"})
    found: dict[str, int] = {}
    for each in last_records(spark, bootstrap, topic).select("key", "last", row.alias("row")).collect():
        if each.row is None or each.row["_corrupt"] is not None or each.row["count"] is None:
            place = f"partition {each.last.partition}, offset {each.last.offset}, key {each.key}"
            raise Unreadable(f"{place}: no state: {bytes(each.last.value)[:200]!r}")
        found[each.key] = each.row["count"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Rebuild the state of the warehouse.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="stock")
    parser.add_argument("--output", type=Path, required=True, help="the file that is written")
    options = parser.parse_args()
    spark = start()
    try:
        found = state(spark, options.bootstrap, options.topic)
    except Unreadable as error:
        sys.exit(str(error))
    finally:
        spark.stop()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1, sort_keys=True))
    print(f"  {len(found)} keys rebuilt", flush=True)


if __name__ == "__main__":
    main()
