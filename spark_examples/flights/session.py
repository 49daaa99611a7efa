"""A small local Spark that knows Kafka.

pyspark comes without the connector for Kafka. `ottla spark-submit` brings it. For a program that Python runs alone Spark fetches it
itself if it is told to by one line of settings, as here where there is no Maven; `mvn dependency:copy-dependencies` (pom.xml) brings
the same jars once, to a folder of this repository.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent
JARS = HERE.parents[1] / ".cache" / "jars" / "spark_examples" / "flights"


def connector() -> tuple[str, str]:
    """The setting that brings the connector: jars that are here or that Maven brings, or else what Spark is to fetch."""
    if shutil.which("mvn") is None and not any(JARS.glob("*.jar")):
        return "spark.jars.packages", f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
    return "spark.jars", connector_jars()


def connector_jars() -> str:
    """The connector's jars, as `spark.jars` takes them; fetched with Maven the first time."""
    connector = JARS / f"spark-sql-kafka-0-10_2.13-{pyspark.__version__}.jar"
    if not connector.exists():
        fetch_jars()
    if not connector.exists():
        raise FileNotFoundError(f"pyspark is {pyspark.__version__}; pom.xml names another version of its connector")
    return ",".join(str(jar) for jar in sorted(JARS.glob("*.jar")))


def fetch_jars() -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise FileNotFoundError("Spark's connector for Kafka is fetched with Maven, and there is no mvn command here")
    shutil.rmtree(JARS, ignore_errors=True)
    subprocess.run([maven, "--quiet", "--batch-mode", "dependency:copy-dependencies"], cwd=HERE, check=True)


def start() -> SparkSession:
    builder = SparkSession.builder.appName("flights")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has begun, and has the connector
        builder = builder.master("local[2]").config(*connector())
    spark = (
        builder.config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
