"""ottla spark: the Spark that is here, and its connector for Kafka, which pyspark does not bring

Spark and its connector have to be of one version, and of one version of Scala. Both are read from the name of a jar that every Spark
has. `ottla spark-submit` (`spark_submit.py` beside this) uses what is found here.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ottla.server.cli.client.output import RequestFailed, print_json, print_pairs
from ottla.server.cli.command_line import EXIT_FAILED, EXIT_OK, fail

LAST_WITH_CONNECTOR = {"3": "3.5.7", "4": "4.2.0"}
"""Latest Spark of each major version whose connector was in Maven Central when this was written; a later pyspark may come without one."""

NEWEST = LAST_WITH_CONNECTOR["4"]

FIRST_OF_JAVA_17 = (4, 0)
JAVA_TIMEOUT_S = 30

DESCRIPTION = f"""\
Shows the Spark that `ottla spark-submit` runs: that of $SPARK_HOME, or pyspark of this Python, or the spark-submit on $PATH. Names its
connector for Kafka, for a program of your own. A connector of another version, or of another version of Scala, is the commonest
failure. Ends with 1 if there is no Spark, no Java, or no connector; the latest ones known to have one are
{" and ".join(LAST_WITH_CONNECTOR.values())}.
"""

EXAMPLES = """\
examples:
  ottla spark
  spark-submit --packages "$(ottla spark --packages)" job.py
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla spark`: the output formats."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--packages", action="store_true", help="print only the connector, as --packages takes it")
    form.add_argument("--json", action="store_true", help="print JSON, for programs")


class Spark(NamedTuple):
    """Spark installation."""

    home: Path
    version: str
    scala: str
    python: str
    """Interpreter for its workers: the one that has its pyspark."""

    @property
    def connector(self) -> str:
        """Maven coordinates of the Kafka connector for this Spark."""
        return f"org.apache.spark:spark-sql-kafka-0-10_{self.scala}:{self.version}"

    @property
    def problem(self) -> str:
        """Reason why this Spark has no Kafka connector; empty if it should have one."""
        last = LAST_WITH_CONNECTOR.get(self.version.partition(".")[0], NEWEST)
        if _numbers(self.version) <= _numbers(last):
            return ""
        return (
            f"Maven Central had no connector for Spark {self.version} when this Ottla was made; "
            f"`pip install pyspark=={last}` has one"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def find_spark(environment: Mapping[str, str]) -> Spark:
    """Find Spark in $SPARK_HOME, in pyspark of this Python, or by spark-submit on $PATH. Raises RequestFailed."""
    if home := environment.get("SPARK_HOME"):
        return _spark_in(Path(home), environment.get("PYSPARK_PYTHON") or sys.executable)
    if (spec := find_spec("pyspark")) is not None and spec.origin is not None:
        return _spark_in(Path(spec.origin).parent, sys.executable)
    command = shutil.which("spark-submit", path=environment.get("PATH"))
    if command is None:
        raise RequestFailed(f"there is no Spark here: `pip install pyspark=={NEWEST}`, or set SPARK_HOME")
    return _of_command(Path(command))


def _of_command(command: Path) -> Spark:
    """Return the Spark of a spark-submit: in the folder above, or in a virtual environment. Raises RequestFailed."""
    folder = command.resolve().parent.parent
    beside = command.parent / "python"
    python = str(beside) if beside.exists() else "python3"
    for home in (folder, *sorted(command.parent.parent.glob("lib/python3*/site-packages/pyspark"))):
        if (home / "jars").is_dir():
            return _spark_in(home, python)
    raise RequestFailed(f"{command} is of a Spark without jars; set SPARK_HOME")


def _spark_in(home: Path, python: str) -> Spark:
    for path in sorted((home / "jars").glob("spark-core_*.jar")):
        if found := re.fullmatch(r"spark-core_(\d+\.\d+)-(\d+\.\d+\.\d+.*)\.jar", path.name):
            return Spark(home, found[2], found[1], python)
    raise RequestFailed(f"{home} is no Spark: it has no jars/spark-core_*.jar")


def java_of(environment: Mapping[str, str]) -> tuple[str, str]:
    """Find Java; return the command and its version. Raises RequestFailed."""
    if home := environment.get("JAVA_HOME"):
        command = str(Path(home) / "bin" / "java")
    else:
        command = shutil.which("java", path=environment.get("PATH")) or ""
    if not command or not Path(command).exists():
        where = f" in JAVA_HOME={environment['JAVA_HOME']}" if environment.get("JAVA_HOME") else ""
        raise RequestFailed(f"there is no Java{where}: Spark needs one (Debian: apt-get install default-jdk-headless)")
    try:
        done = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequestFailed(f"{command} does not run: {error}") from None
    found = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    if found is None:
        raise RequestFailed(f"{command} -version does not say which Java it is")
    return command, found[1]


def refuse_old_java(spark: Spark, java_version: str) -> None:
    """Raise RequestFailed if this Spark needs a later Java version."""
    # Java 8 calls itself 1.8.
    major = int(re.sub(r"^1\.", "", java_version).partition(".")[0].partition("-")[0])
    if _numbers(spark.version) >= FIRST_OF_JAVA_17 and major < 17:
        raise RequestFailed(f"Spark {spark.version} needs Java 17 or newer, and this is {java_version}")


def run(options: argparse.Namespace) -> int:
    """Print the versions of Spark, Java and the connector; return the exit code."""
    try:
        spark = find_spark(os.environ)
        if spark.problem:
            raise RequestFailed(spark.problem)
        if options.packages:
            print(spark.connector)
            return EXIT_OK
        command, java_version = java_of(os.environ)
        refuse_old_java(spark, java_version)
    except RequestFailed as error:
        return fail(str(error), EXIT_FAILED)
    if options.json:
        found = spark._asdict() | {"home": str(spark.home), "connector": spark.connector}
        print_json(found | {"java": command, "java_version": java_version})
        return EXIT_OK
    print_pairs(
        [
            ("Spark", f"{spark.version} for Scala {spark.scala}, in {spark.home}"),
            ("Java", f"{java_version}, {command}"),
            ("connector", spark.connector),
            ("in Python", f'SparkSession.builder.config("spark.jars.packages", "{spark.connector}")'),
            ("or run", "ottla spark-submit job.py"),
        ]
    )
    return EXIT_OK
