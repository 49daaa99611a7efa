"""A small Spark session. Its connector for Kafka comes with `ottla spark-submit`, which knows the version that fits."""

from pyspark.sql import SparkSession


def start() -> SparkSession:
    spark = (
        SparkSession.builder.appName("secure")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
