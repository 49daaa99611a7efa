"""Reads a piece of a topic as a batch: once between two offsets, once between two moments.

python batch.py --bootstrap 127.0.0.1:9092
"""

import argparse
import json
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from reachable import require
from session import start

NEW_YORK = ZoneInfo("America/New_York")


def records(spark: SparkSession, bootstrap: str, topic: str, options: dict[str, str]) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


def weather_rows(spark: SparkSession, bootstrap: str, first: int, last: int, prefix: str = "") -> DataFrame:
    """The weather rows from `first` up to, not including, `last`: the topic has one partition, an offset is a row number."""
    topic = prefix + "weather"
    offsets = {"startingOffsets": json.dumps({topic: {"0": first}}), "endingOffsets": json.dumps({topic: {"0": last}})}
    row = f.from_json(f.col("value").cast("string"), "origin STRING, time_hour STRING, temp DOUBLE").alias("row")
    return records(spark, bootstrap, topic, offsets).orderBy("offset").select(row).select("row.*")


def flights_of_day(spark: SparkSession, bootstrap: str, day: date, prefix: str = "") -> DataFrame:
    """Flights, departures and minutes of delay at each airport on one New York day.

    The topic holds the days one after the other, each within its own midnights: the records between the first one
    stamped at or after the one midnight and the first one at or after the next are exactly the flights of the day.
    """
    midnights = {"startingTimestamp": _midnight_ms(day), "endingTimestamp": _midnight_ms(day + timedelta(days=1))}
    row = f.from_json(f.col("value").cast("string"), "origin STRING, dep_delay INT").alias("row")
    return (
        records(spark, bootstrap, prefix + "flights", midnights)
        .select(row)
        .groupBy("row.origin")
        .agg(f.count("*"), f.count("row.dep_delay"), f.sum("row.dep_delay"))
        .toDF("origin", "flights", "departed", "delay_minutes")
    )


def _midnight_ms(day: date) -> str:
    return str(round(datetime(day.year, day.month, day.day, tzinfo=NEW_YORK).timestamp() * 1000))


def main() -> None:
    parser = argparse.ArgumentParser(description="Read an offset range and a timestamp range.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--prefix", default="", help="put before the names of the topics")
    options = parser.parse_args()
    require(options.bootstrap)
    spark = start()
    print("weather, offsets 1000 to 1010")
    weather_rows(spark, options.bootstrap, 1000, 1010, options.prefix).show()
    print("flights of 4 July 2013")
    flights_of_day(spark, options.bootstrap, date(2013, 7, 4), options.prefix).show()
    spark.stop()


if __name__ == "__main__":
    main()
