"""A small Spark session. `ottla spark-submit --with avro,delta` brings the libraries of the versions that fit."""

from pyspark.sql import SparkSession


def start() -> SparkSession:
    spark = (
        SparkSession.builder.appName("clickstream")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        # State of one's own, and timers, want this one.
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
