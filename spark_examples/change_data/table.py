"""Rebuilds the table `accounts` from the topic of its changes.

    ottla spark-submit table.py --bootstrap 127.0.0.1:9092 --output /tmp/accounts

Takes what is there and ends (trigger availableNow); started again with the same output folder, it goes on where it was, also after it was
killed. Batch N makes version N of the table from the version before, so a batch that is repeated makes the same version again. Of each row
the change with the highest LSN holds, however often and in which order changes come. A snapshot is of all rows: those that it does not have
are gone. What is no change of this table goes to a topic of dead letters.
"""

import argparse
import json
import shutil
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from session import start

TOPIC = "bank.public.accounts"
COLUMNS = ("balance", "id", "name")
ROW = "STRUCT<id: BIGINT, name: STRING, balance: BIGINT>"
CHANGE = f"op STRING, before {ROW}, after {ROW}, source STRUCT<lsn: BIGINT, snapshot: STRING>, _corrupt STRING"
ENVELOPE = "op STRING, before MAP<STRING, STRING>, after MAP<STRING, STRING>, source STRING, _corrupt STRING"
VERSION = (
    "id BIGINT, name STRING, balance BIGINT, lsn BIGINT, is_deleted BOOLEAN, is_change BOOLEAN, snapshot_lsn BIGINT"
)
READ, DELETE = "r", "d"
UNAVAILABLE = "__debezium_unavailable_value"
"""Stands for a large text that an update has not changed, in a table whose REPLICA IDENTITY is not FULL."""

PARTIAL = "incremental"
"""A snapshot that reads the rows bit by bit, between changes."""

OPERATIONS = (READ, "c", "u", DELETE)
RECORDS_PER_BATCH = 1000
POLL_S = 1


def records(spark: SparkSession, bootstrap: str, topic: str, records_per_batch: int) -> DataFrame:
    """The records with the change that they tell, and what is wrong with them as `problem`; null for good ones."""
    text, corrupt = f.col("value").cast("string"), {"columnNameOfCorruptRecord": "_corrupt"}
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", records_per_batch)
        .load()
        .withColumn("change", f.from_json(text, CHANGE, corrupt))
        .withColumn("envelope", f.from_json(text, ENVELOPE, corrupt))
        .withColumn("problem", problem(text))
    )


def problem(text: Column) -> Column:
    """Why a record tells no change of this table; null if it tells one, or is a tombstone."""
    # Java's strings have a replacement for what is not UTF-8, which would get into the table as a name.
    is_utf8 = f.regexp_replace(text, "^", "").cast("binary") == f.col("value")
    columns = f.array_sort(f.map_keys("envelope.after"))
    identity = f.from_json(f.col("key").cast("string"), "id BIGINT")["id"]
    fits = f.when(f.col("change.op") == DELETE, f.isnotnull("change.before.id")).otherwise(
        (columns == f.array(*map(f.lit, COLUMNS)))
        & f.isnotnull("change.after.id")
        & (f.col("change.after.name") != UNAVAILABLE)
        & f.isnotnull("change.after.balance")
    )
    return (
        f.when(f.isnull("value"), f.when(f.isnull(identity), "a null value of no row"))
        .when(~is_utf8, "not UTF-8")
        .when(f.isnotnull("envelope._corrupt") | f.isnull("envelope.op"), "no change")
        .when(~f.col("envelope.op").isin(*OPERATIONS), "an operation that is not known")
        .when(f.isnotnull("change._corrupt") | f.isnull("change.source.lsn"), "the row does not fit")
        .when(f.coalesce(fits, f.lit(False)), f.lit(None))
        .otherwise("the row does not fit")
    )


def rows_of(changes: DataFrame) -> DataFrame:
    """The rows as the changes leave them. Deleted ones stay, so that no older change that comes late brings them back."""
    operation, kind = f.col("change.op"), f.coalesce("change.source.snapshot", f.lit("true"))
    return changes.select(
        f.expr("coalesce(change.after, change.before) AS row"),
        f.col("change.source.lsn").alias("lsn"),
        (operation == DELETE).alias("is_deleted"),
        (operation != READ).alias("is_change"),
        f.when((operation == READ) & (kind != PARTIAL), f.col("change.source.lsn")).alias("snapshot_lsn"),
    ).select("row.*", "lsn", "is_deleted", "is_change", "snapshot_lsn")


def newest(rows: DataFrame) -> DataFrame:
    """Of each row the one with the highest LSN, and none from before the last snapshot.

    A snapshot may have the LSN of the first change after it, which is the newer one then. Where Kafka Connect was killed before it noted that
    its snapshot was done, it takes another one, and what was deleted between both is told by no change.
    """
    last = f.max_by(f.struct("*"), f.struct("lsn", "is_change")).alias("last")
    [[snapshot_lsn]] = rows.agg(f.coalesce(f.max("snapshot_lsn"), f.lit(0))).collect()
    alive = rows.groupBy("id").agg(last).select("last.*").where(f.col("lsn") >= snapshot_lsn)
    return alive.withColumn("snapshot_lsn", f.lit(snapshot_lsn).cast("bigint"))


def versions(output: Path) -> dict[int, Path]:
    """Whole versions of the table by their numbers."""
    return {int(path.name.partition("-")[2]): path for path in (output / "table").glob("version-*")}


def write_version(spark: SparkSession, rows: DataFrame, output: Path, number: int) -> None:
    """Make version `number` of the latest one before it and the rows that have changed."""
    older = {each: path for each, path in versions(output).items() if each < number}
    if older:
        rows = spark.read.schema(VERSION).parquet(str(older[max(older)])).union(rows)
    partial, whole = output / "table" / f".version-{number}", output / "table" / f"version-{number}"
    newest(rows).coalesce(1).write.mode("overwrite").parquet(str(partial))
    shutil.rmtree(whole, ignore_errors=True)
    partial.rename(whole)
    for each in sorted(older)[:-1]:
        shutil.rmtree(older[each])


def write_dead(batch: DataFrame, bootstrap: str, topic: str) -> None:
    """Write dead letters with the record's bytes and place. A batch that is repeated writes them again, with the same keys."""
    letters = batch.where("problem IS NOT NULL").select(
        f.concat_ws("-", "topic", "partition", "offset").alias("key"),
        "value",
        f.array(
            f.struct(f.lit("problem").alias("key"), f.col("problem").cast("binary").alias("value")),
        ).alias("headers"),
    )
    writer = letters.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    writer.option("includeHeaders", "true").option("topic", f"{topic}-dead").save()


def write_counts(batch: DataFrame, output: Path, number: int) -> None:
    """Write how many records of each kind the batch has."""
    kind = f.when(f.isnotnull("problem"), "dead").when(f.isnull("value"), "tombstone").otherwise(f.col("change.op"))
    found = {row["kind"]: row["count"] for row in batch.groupBy(kind.alias("kind")).count().collect()}
    (output / "counts").mkdir(exist_ok=True)
    (output / "counts" / f"batch-{number}.json").write_text(json.dumps(found))


def start_query(
    spark: SparkSession, bootstrap: str, topic: str, output: Path, records_per_batch: int = RECORDS_PER_BATCH
) -> StreamingQuery:
    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        write_dead(batch, bootstrap, topic)
        write_counts(batch, output, number)
        write_version(spark, rows_of(batch.where("problem IS NULL AND value IS NOT NULL")), output, number)
        batch.unpersist()

    output.mkdir(parents=True, exist_ok=True)
    writer = records(spark, bootstrap, topic, records_per_batch).writeStream.foreachBatch(write)
    return writer.option("checkpointLocation", str(output / "checkpoint")).trigger(availableNow=True).start()


def follow(query: StreamingQuery) -> None:
    """Wait for the end, with a line for each batch."""
    told, has_ended = -1, False
    while not has_ended:
        has_ended = bool(query.awaitTermination(POLL_S))
        for progress in query.recentProgress:
            if progress["batchId"] > told and progress["numInputRows"]:
                told = progress["batchId"]
                print(f"  batch {told}: {progress['numInputRows']} records read", flush=True)


def export(spark: SparkSession, output: Path) -> int:
    """Write the rows of the latest version to `table.jsonl`, a JSON object a line; returns their number."""
    found = versions(output)
    rows = spark.read.schema(VERSION).parquet(str(found[max(found)])).where("NOT is_deleted").orderBy("id").collect()
    lines = [json.dumps({"id": row.id, "name": row.name, "balance": row.balance}) + "\n" for row in rows]
    (output / "table.jsonl").write_text("".join(lines))
    return len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Rebuild the table of accounts from its changes.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument(
        "--output", type=Path, required=True, help="folder for the table, the counts and the checkpoint"
    )
    options = parser.parse_args()
    spark = start()
    follow(start_query(spark, options.bootstrap, options.topic, options.output))
    print(f"  {export(spark, options.output)} rows are in the table", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
