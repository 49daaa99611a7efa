"""Finds the visits of each user: clicks with less than half a minute between them.

    ottla spark-submit --with avro,delta stream.py --bootstrap 127.0.0.1:9092 --output /tmp/clicks

Takes what is there and ends (trigger availableNow); started again with the same output folder, it goes on where it was, also after it was
killed. Each visit is written once (`sinks.py`), and what is no click beside them.
"""

import argparse
import sys
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.streaming.query import StreamingQuery
from registry import NoSchemas, Schemas, schemas
from session import start
from sinks import DELTA, FILES, write
from visits import HAS_STATE, by_state, by_windows

RECORDS_PER_BATCH = 1000
POLL_S = 1
FRAME = 5


def clicks(spark: SparkSession, bootstrap: str, topic: str, known: Schemas, records_per_batch: int) -> DataFrame:
    """The records with the click as `row`, and what is wrong with them as `problem`; null for a good one."""
    value = f.col("value")
    is_framed = (f.length(value) >= FRAME) & (f.substring(value, 1, 1) == f.lit(b"\x00"))
    schema_id = f.when(is_framed, f.conv(f.hex(f.substring(value, 2, 4)), 16, 10).cast("long"))
    problem = (
        f.when(value.isNull(), "no value")
        .when(f.col("schema_id").isNull(), "no schema is named")
        .when(
            ~f.col("schema_id").isin(list(known.by_id)),
            f.format_string("schema %d is not one of the topic's", "schema_id"),
        )
        .when(f.isnull("row.id") | f.isnull("row.user") | f.isnull("row.time"), "it does not fit its schema")
    )
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", records_per_batch)
        .load()
        .withColumn("schema_id", schema_id)
        .withColumn("row", decoded(known))
        .withColumn("problem", problem)
    )


def decoded(known: Schemas) -> Column:
    """The click, as the latest schema has it; null for bytes that are none. Each record is read by the schema that it names."""
    data = f.expr(f"substring(value, {FRAME + 1})")
    options = {"avroSchema": known.latest, "mode": "PERMISSIVE"}
    return f.coalesce(
        *(
            f.when(f.col("schema_id") == schema_id, from_avro(data, schema, options))
            for schema_id, schema in known.by_id.items()
        )
    )


def start_queries(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    output: Path,
    known: Schemas,
    *,
    sink: str = DELTA,
    has_state: bool = HAS_STATE,
    records_per_batch: int = RECORDS_PER_BATCH,
) -> list[StreamingQuery]:
    records = clicks(spark, bootstrap, topic, known, records_per_batch)
    good = records.where("problem IS NULL").select("row.*")
    dead = records.where("problem IS NOT NULL").select(
        "partition", "offset", "problem", f.base64("value").alias("value")
    )
    visits = by_state(good) if has_state else by_windows(good)
    return [
        write(visits, sink, output / "visits", output / "checkpoint-visits"),
        write(dead, sink, output / "dead", output / "checkpoint-dead"),
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
    parser.add_argument("--registry", default="http://127.0.0.1:8081")
    parser.add_argument("--topic", default="clicks")
    parser.add_argument("--output", type=Path, required=True, help="folder for the tables and the checkpoints")
    parser.add_argument("--sink", choices=(DELTA, FILES), default=DELTA)
    parser.add_argument("--by", choices=("state", "windows"), default="state" if HAS_STATE else "windows")
    options = parser.parse_args()
    try:
        known = schemas(options.registry, f"{options.topic}-value")
    except NoSchemas as problem:
        sys.exit(f"there are no schemas to read clicks by: {problem}")
    spark = start()
    has_state = options.by == "state"
    queries = start_queries(
        spark, options.bootstrap, options.topic, options.output, known, sink=options.sink, has_state=has_state
    )
    follow(queries)
    spark.stop()


if __name__ == "__main__":
    main()
