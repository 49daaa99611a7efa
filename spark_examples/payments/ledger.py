"""Takes the payments that were committed into Parquet, once each.

    python ledger.py --bootstrap 127.0.0.1:9092 --output /tmp/ledger

Takes what is in the topic and ends (trigger availableNow); started again with the same output folder, it goes on where its
checkpoint says.
"""

import argparse
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

PAYMENT = "payment INT, amount INT"


def start_query(
    spark: SparkSession, bootstrap: str, topic: str, output: Path, records_per_batch: int = 10_000
) -> StreamingQuery:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", records_per_batch)
        .load()
        .select("partition", "offset", f.from_json(f.col("value").cast("string"), PAYMENT).alias("row"))
        .select("partition", "offset", "row.*")
        .writeStream.format("parquet")
        .option("path", str(output / "ledger.parquet"))
        .option("checkpointLocation", str(output / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Take committed payments into Parquet.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="payments")
    parser.add_argument("--output", type=Path, required=True, help="folder for the Parquet files and the checkpoint")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "flights"))
    from session import start

    spark = start()
    start_query(spark, options.bootstrap, options.topic, options.output).awaitTermination()
    spark.read.parquet(str(options.output / "ledger.parquet")).groupBy("partition").sum("amount").show()
    spark.stop()


if __name__ == "__main__":
    main()
