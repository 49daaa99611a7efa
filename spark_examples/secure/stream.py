"""Counts the clicks on each page in each ten seconds: reads as one user, writes as another, and both are held back by quotas.

    ottla spark-submit stream.py FOLDER

Takes what is there and ends (trigger availableNow); started again with the same folder, it goes on where its checkpoint says. Spark's Kafka
sink is at least once: a batch that was cut off is written again. The key names page and time, and a count never changes once it is
written, so that whoever takes the last record of a key has each count exactly once.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import refused
import roles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from session import start

CLICK = "id STRING, user STRING, page STRING, device STRING, time TIMESTAMP, _corrupt STRING"
WIDTH = "10 seconds"
LATENESS = "5 minutes"
RECORDS_PER_BATCH = 2500
TIME = "yyyy-MM-dd'T'HH:mm:ss'Z'"
POLL_S = 1

# What Kafka's clients tell of a quota, and only there: no error, no line in the log.
THROTTLES = {
    roles.READER: ("kafka.consumer:type=consumer-fetch-manager-metrics,client-id=*", "fetch-throttle-time-max"),
    roles.WRITER: ("kafka.producer:type=producer-metrics,client-id=*", "produce-throttle-time-max"),
}


def clicks(spark: SparkSession, folder: Path, records_per_batch: int) -> DataFrame:
    """The records with the click as `row`, and what is wrong with them as `problem`; null for a good one."""
    row = f.from_json(f.col("value").cast("string"), CLICK, {"columnNameOfCorruptRecord": "_corrupt"})
    is_bad = f.col("row._corrupt").isNotNull() | f.isnull("row.id") | f.isnull("row.page") | f.isnull("row.time")
    return (
        spark.readStream.format("kafka")
        .options(**roles.for_spark(folder, roles.READER))
        .option("groupIdPrefix", roles.GROUP_PREFIX)
        .option("subscribe", roles.CLICKS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", records_per_batch)
        .load()
        .withColumn("row", row)
        .withColumn("problem", f.when(f.col("value").isNull(), "no value").when(is_bad, "no click"))
    )


def counts(records: DataFrame) -> DataFrame:
    """One record for each page and ten seconds, when the watermark has passed them; a doubled click counts once."""
    return (
        records.where("problem IS NULL")
        .select("row.*")
        .withWatermark("time", LATENESS)
        .dropDuplicatesWithinWatermark(["id"])
        .groupBy(f.window("time", WIDTH), "page")
        .agg(f.count("*").alias("clicks"))
        .withColumn("from", f.date_format("window.start", TIME))
        .select(
            f.concat_ws(" ", "page", "from").alias("key"), f.to_json(f.struct("page", "from", "clicks")).alias("value")
        )
    )


def dead_letters(records: DataFrame) -> DataFrame:
    """What is no click, as the bytes that it was; the key says where that was."""
    return records.where("problem IS NOT NULL").select(
        f.concat_ws("-", "topic", "partition", "offset").alias("key"), "value"
    )


def write(rows: DataFrame, folder: Path, topic: str) -> StreamingQuery:
    return (
        rows.writeStream.format("kafka")
        .options(**roles.for_spark(folder, roles.WRITER))
        .option("topic", topic)
        .option("checkpointLocation", str(folder / f"checkpoint-{topic}"))
        .trigger(availableNow=True)
        .start()
    )


def start_queries(
    spark: SparkSession, folder: Path, records_per_batch: int = RECORDS_PER_BATCH
) -> list[StreamingQuery]:
    records = clicks(spark, folder, records_per_batch)
    return [write(counts(records), folder, roles.COUNTS), write(dead_letters(records), folder, roles.DEAD)]


def throttled_ms(spark: SparkSession, role: str) -> float:
    """Longest time in the last minute for which a broker held back a client of this JVM; 0 if there is none."""
    pattern, attribute = THROTTLES[role]
    jvm = spark._jvm
    beans = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()

    def ask(method: str, kinds: list[str], *arguments: object) -> Any:
        # By the interface: the server's own class is one of those that Java 17 opens to nobody.
        gateway = spark.sparkContext._gateway
        classes = gateway.new_array(jvm.java.lang.Class, 2)
        values = gateway.new_array(jvm.java.lang.Object, 2)
        for place, (kind, argument) in enumerate(zip(kinds, arguments, strict=True)):
            classes[place] = jvm.java.lang.Class.forName(kind)
            values[place] = argument
        return (
            jvm.java.lang.Class.forName("javax.management.MBeanServer").getMethod(method, classes).invoke(beans, values)
        )

    names = ask(
        "queryNames",
        ["javax.management.ObjectName", "javax.management.QueryExp"],
        jvm.javax.management.ObjectName(pattern),
        None,
    )
    found = [
        ask("getAttribute", ["javax.management.ObjectName", "java.lang.String"], name, attribute) for name in names
    ]
    return max([0.0, *(each for each in found if not math.isnan(each))])


def follow(spark: SparkSession, queries: list[StreamingQuery]) -> dict[str, float]:
    """Wait for the end of all, with a line for each batch of the first; returns how long each role was held back, in ms."""
    told, longest = -1, dict.fromkeys(THROTTLES, 0.0)
    ended = [False]
    while not all(ended):
        ended = [bool(query.awaitTermination(POLL_S)) for query in queries]
        for role in longest:
            longest[role] = max(longest[role], throttled_ms(spark, role))
        for progress in queries[0].recentProgress:
            if progress["batchId"] > told:
                told = progress["batchId"]
                print(f"  batch {told}: {progress['numInputRows']} records read", flush=True)
    return longest


def main() -> None:
    parser = argparse.ArgumentParser(description="Count clicks.")
    parser.add_argument("folder", type=Path, help="that of broker.py or cluster.py; checkpoints go there, too")
    parser.add_argument("--records-per-batch", type=int, default=RECORDS_PER_BATCH)
    parser.add_argument("--refusals", action="store_true", help="show afterwards what Spark says to those who may not")
    options = parser.parse_args()
    spark = start()
    for role, longest in follow(spark, start_queries(spark, options.folder, options.records_per_batch)).items():
        if longest:  # on a cluster the clients are in other JVMs
            print(f"  a quota held {role} back for up to {longest:.0f} ms", flush=True)
    if options.refusals:
        refused.show(spark, options.folder)
    spark.stop()


if __name__ == "__main__":
    main()
