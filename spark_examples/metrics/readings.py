"""The topic of readings as a stream, and records for Kafka's sink. Both jobs use it."""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

READING = "id STRING, host STRING, metric STRING, value INT, time TIMESTAMP, _corrupt STRING"
PARTITIONS = 2
"""Partitions of the topics that are written to: hosts with even and with odd numbers."""


def stream(spark: SparkSession, bootstrap: str, topic: str, records_per_batch: int | None = None) -> DataFrame:
    """The records with the reading as `row`, and what is wrong with them as `problem`; null for a good one."""
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )
    if records_per_batch is not None:  # continuous processing has no batches
        source = source.option("maxOffsetsPerTrigger", records_per_batch)
    row = f.from_json(f.col("value").cast("string"), READING, {"columnNameOfCorruptRecord": "_corrupt"})
    missing = f.isnull("row.id") | f.isnull("row.host") | f.isnull("row.metric") | f.isnull("row.value")
    problem = (
        f.when(f.col("value").isNull(), "no value")
        .when(f.col("row._corrupt").isNotNull(), "no reading")
        .when(missing | f.isnull("row.time"), "a field is missing")
    )
    return source.load().withColumn("row", row).withColumn("problem", problem)


def record(rows: DataFrame, key: Column, value: Column, header: tuple[str, str]) -> DataFrame:
    """Records for Kafka's sink, with a key, a header of the given name and column, and the partition of the host."""
    name, column = header
    return rows.select(
        key.alias("key"),
        value.alias("value"),
        f.array(f.struct(f.lit(name).alias("key"), f.col(column).cast("binary").alias("value"))).alias("headers"),
        (f.substring("host", 6, 2).cast("int") % PARTITIONS).alias("partition"),
    )
