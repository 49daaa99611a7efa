"""Shows the errors that Spark ends with where a user lacks a right, the password is wrong, or the broker is not trusted.

ottla spark-submit refused.py FOLDER
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import roles
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from session import start

ERROR = re.compile(r"(?:org\.apache\.kafka\.common\.errors|javax\.net\.ssl)\.(\w+): ([^\n]*)")

# An offset that cannot be asked for is asked for again, which no right comes from.
ONCE = {"fetchOffset.numRetries": "1"}
DEPRECATED = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"

EXPECTED = {
    "a stranger reads": "TopicAuthorizationException: Topic authorization failed.",
    "the reader writes": "TopicAuthorizationException: Not authorized to access topics: [page-clicks]",
    "a group of another prefix": "GroupAuthorizationException: Not authorized to access group: spark-other",
    "a wrong password": "SaslAuthenticationException: Authentication failed during authentication due to invalid "
    "credentials with SASL mechanism SCRAM-SHA-512",
    "another authority": "SslAuthenticationException: SSL handshake failed",
}
"""Beginning of the error in each case."""


def read(spark: SparkSession, options: dict[str, str], prefix: str = roles.GROUP_PREFIX) -> None:
    source = spark.read.format("kafka").options(**ONCE, **options).option("groupIdPrefix", prefix)
    source.option("subscribe", roles.CLICKS).load().count()


def write(spark: SparkSession, options: dict[str, str]) -> None:
    row = spark.range(1).selectExpr("'key' AS key", "'value' AS value")
    row.write.format("kafka").options(**options).option("topic", roles.COUNTS).save()


def read_in_group(spark: SparkSession, options: dict[str, str], prefix: str) -> None:
    """Ask for offsets in the old way, the only one in which Spark joins a group."""
    spark.conf.set(DEPRECATED, "true")
    try:
        read(spark, options, prefix)
    finally:
        spark.conf.unset(DEPRECATED)


def error_of(attempt: Callable[[], None]) -> str:
    """The first error of Kafka's client behind that of Spark; "none" if there was no error."""
    try:
        attempt()
    except (PySparkException, Py4JJavaError) as error:
        found = ERROR.search(str(error))
        return f"{found[1]}: {found[2]}" if found else str(error)
    return "none"


def refusals(spark: SparkSession, folder: Path) -> dict[str, str]:
    """The error of each attempt, by its name in EXPECTED."""
    reader, stranger = (roles.for_spark(folder, role) for role in (roles.READER, roles.STRANGER))
    password = {
        "kafka.sasl.jaas.config": roles.LOGIN.sub('username="shop" password="guess"', reader["kafka.sasl.jaas.config"])
    }
    other = {"kafka.ssl.truststore.location": str(another_authority(folder))}
    return {
        "a stranger reads": error_of(lambda: read(spark, stranger)),
        "the reader writes": error_of(lambda: write(spark, reader)),
        "a group of another prefix": error_of(lambda: read_in_group(spark, reader, "spark-other")),
        "a wrong password": error_of(lambda: read(spark, reader | password)),
        "another authority": error_of(lambda: read(spark, reader | other)),
    }


def another_authority(folder: Path) -> Path:
    """The certificate of an authority that signed nothing of the broker's."""
    made = folder / "another"
    subprocess.run([sys.executable, "-m", "ottla", "certificates", made], check=True, stdout=subprocess.DEVNULL)
    return made / "authority.pem"


def show(spark: SparkSession, folder: Path) -> None:
    """Print the errors; end the program if one is not as expected."""
    # The errors are the subject: Spark need not log them as well.
    spark.sparkContext.setLogLevel("OFF")
    found = refusals(spark, folder)
    for name, error in found.items():
        print(f"  {name}: {error}", flush=True)
    if differ := [name for name, error in found.items() if not error.startswith(EXPECTED[name])]:
        sys.exit("NOT REFUSED AS EXPECTED: " + ", ".join(differ))


def main() -> None:
    parser = argparse.ArgumentParser(description="Show what Spark says to those who may not.")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    spark = start()
    show(spark, options.folder)
    spark.stop()


if __name__ == "__main__":
    main()
