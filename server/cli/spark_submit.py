"""ottla spark-submit: spark-submit with the connector of the installed Spark, the right Python and the loopback address

The connector's jars are kept in a folder of the user's cache, so that later starts need no download. Maven brings them,
where there is a `mvn`; otherwise Spark fetches the connector itself (--packages), at each start.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.server.cli.client.output import RequestFailed, UsageError, say
from ottla.server.cli.command_line import EXIT_FAILED, EXIT_USAGE, fail
from ottla.server.cli.spark import Spark, find_spark, java_of, refuse_old_java

FLAGS = frozenset(("-h", "--help", "-v", "--verbose", "--version", "--usage-error", "--supervise"))
"""Options of spark-submit that take no value."""

CONNECTOR = "spark-sql-kafka-0-10"
WITH = "--with"
DELTA_OF = {"3.5": "3.3.2", "4.0": "4.0.0"}
"""Release of Delta Lake for each release of Spark: it works with one of them only."""

DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
LOOPBACK = "127.0.0.1"
LOG_LEVEL = "spark.log.level"
MAVEN_TIMEOUT_S = 600

# What the connector brings and Spark has already.
EXCLUDED = (
    ("org.apache.spark", "spark-tags_{scala}"),
    *((group, "*") for group in ("org.apache.hadoop", "org.scala-lang", "org.scala-lang.modules", "org.slf4j")),
    *((group, "*") for group in ("org.lz4", "org.xerial.snappy", "com.github.luben", "com.google.code.findbugs")),
    *((group, "*") for group in ("org.antlr", "org.tukaani")),
)

DESCRIPTION = """\
Runs spark-submit with all arguments that follow, and adds what it lacks: the connector for Kafka of the same version of Spark and
Scala (`ottla spark` shows it); PYSPARK_PYTHON, so that workers have the packages of the program; and, if Spark runs on this machine
alone, SPARK_LOCAL_IP=127.0.0.1, so that no name of this machine has to be resolved. Spark logs warnings only (spark.log.level). What
is set already stays as it is.

--with avro and --with delta, or both with a comma, add Spark's reader of Avro, and Delta Lake with the settings that it needs.
"""

EXAMPLES = """\
examples:
  ottla spark-submit job.py --bootstrap localhost:9092
  ottla spark-submit --master 'local[2]' --conf spark.sql.shuffle.partitions=2 job.py
  ottla spark-submit --with avro,delta job.py
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add arguments for the help. Apart from --with, spark-submit itself parses them."""
    parser.add_argument(WITH, dest="libraries", metavar="NAMES", help="libraries to add: avro, delta, or avro,delta")
    parser.add_argument("arguments", nargs="*", metavar="FILE", help="arguments of spark-submit, program and its own")


def run(options: argparse.Namespace) -> int:
    """Run spark-submit with the arguments that argparse has parsed; return the exit code.

    `run_words` takes any arguments.
    """
    return run_words(options.arguments)


def run_words(words: Sequence[str]) -> int:
    """Replace this process by spark-submit. Return only after a failure, with the exit code."""
    try:
        spark = find_spark(os.environ)
        given = read_arguments(words)
        if given.asks_only:
            arguments = list(words)
        else:
            _, java_version = java_of(os.environ)
            refuse_old_java(spark, java_version)
            arguments = [*log_level(given), *library_settings(given), *with_connector(spark, given)]
        environment = dict(os.environ) | added_environment(spark, given, os.environ)
        command = spark.home / "bin" / "spark-submit"
        sys.stdout.flush()
        os.execve(command, [str(command), *arguments], environment)
    except UsageError as error:
        return fail(str(error), EXIT_USAGE)
    except RequestFailed as error:
        return fail(str(error), EXIT_FAILED)
    except OSError as error:
        return fail(f"cannot run spark-submit: {error}", EXIT_FAILED)


class Given(NamedTuple):
    """Arguments of spark-submit: its own options, then the program with its arguments."""

    options: list[tuple[str, str | None]]
    program: list[str]
    """The program and its arguments."""

    def value(self, name: str) -> str | None:
        """Return the last value of the option `name`; None if the option is not given."""
        return next((value for option, value in reversed(self.options) if option == name), None)

    def setting(self, name: str) -> str | None:
        """Return the last value that --conf gives to the setting `name`; None if there is none."""
        found = None
        for option, value in self.options:
            key, _, text = (value or "").partition("=")
            if option in ("--conf", "-c") and key == name:
                found = text
        return found

    @property
    def libraries(self) -> list[str]:
        """Names that `--with` lists."""
        return [each for option, value in self.options if option == WITH for each in (value or "").split(",")]

    @property
    def asks_only(self) -> bool:
        """True if no program will run: help or version is requested, or no program is named."""
        return not self.program or any(name in ("-h", "--help", "--version") for name, _ in self.options)

    @property
    def is_local(self) -> bool:
        """True if driver and executors run on this machine."""
        master = self.value("--master") or self.setting("spark.master")
        return (master is None or master.startswith("local")) and self.value("--remote") is None


def read_arguments(words: Sequence[str]) -> Given:
    """Split arguments as spark-submit does: options end at the first word that is not an option."""
    options: list[tuple[str, str | None]] = []
    left = list(words)
    while left and left[0].startswith("-"):
        word = left.pop(0)
        name, has_value, value = word.partition("=")
        if word.startswith("--") and has_value:
            options.append((name, value))
        elif word in FLAGS or not left:
            options.append((word, None))
        else:
            options.append((word, left.pop(0)))
    return Given(options, left)


def added_environment(spark: Spark, given: Given, environment: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables that spark-submit needs and that are not set."""
    wanted = {"SPARK_HOME": str(spark.home)}
    # A program may be one of Java; then nobody asks for Python.
    if given.setting("spark.pyspark.python") is None:
        wanted["PYSPARK_PYTHON"] = spark.python
        if given.setting("spark.pyspark.driver.python") is None:
            wanted["PYSPARK_DRIVER_PYTHON"] = environment.get("PYSPARK_PYTHON", spark.python)
    if given.is_local:
        wanted["SPARK_LOCAL_IP"] = LOOPBACK
    return {name: value for name, value in wanted.items() if not environment.get(name)}


class Library(NamedTuple):
    """Library with its Maven coordinates. `name` is without the Scala version."""

    group: str
    name: str
    scala: str
    version: str

    @property
    def artifact(self) -> str:
        return f"{self.name}_{self.scala}"

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def connector_of(spark: Spark) -> Library:
    """Return the Kafka connector for this Spark."""
    return Library("org.apache.spark", CONNECTOR, spark.scala, spark.version)


def libraries(spark: Spark, given: Given) -> list[Library]:
    """Return the libraries of `--with`. Raises UsageError for an unknown name, RequestFailed for an unknown Spark."""
    found = []
    for name in given.libraries:
        if name == "avro":
            found.append(Library("org.apache.spark", "spark-avro", spark.scala, spark.version))
        elif name != "delta":
            raise UsageError(f"{WITH} {name}: avro and delta can be had, or avro,delta")
        elif (release := DELTA_OF.get(".".join(spark.version.split(".")[:2]))) is None:
            known = " and ".join(DELTA_OF)
            raise RequestFailed(f"Delta Lake for Spark {spark.version} is not known here; that for {known} is")
        else:
            found.append(Library("io.delta", "delta-spark", spark.scala, release))
    return found


def library_settings(given: Given) -> list[str]:
    """Return --conf arguments for those settings of Delta Lake that the user has not given."""
    if "delta" not in given.libraries:
        return []
    missing = [f"{name}={value}" for name, value in DELTA_SETTINGS.items() if given.setting(name) is None]
    return [word for each in missing for word in ("--conf", each)]


def log_level(given: Given) -> list[str]:
    """Return arguments that keep Spark's log lines out of the program's output; none if the user gives a log level."""
    return [] if given.setting(LOG_LEVEL) else ["--conf", f"{LOG_LEVEL}=WARN"]


def with_connector(spark: Spark, given: Given) -> list[str]:
    """Return the arguments with the connector and libraries added.

    Raises UsageError if another version of the connector is given, RequestFailed if there is none.
    """
    packages, jars = (_listed(given, name) for name in ("packages", "jars"))
    wanted = libraries(spark, given)
    present = [each for each in (*packages, *(Path(jar).name for jar in jars)) if CONNECTOR in each]
    for each in present:
        _refuse_other(spark, each)
    if not present:
        if spark.problem:
            raise RequestFailed(spark.problem)
        wanted = [connector_of(spark), *wanted]
    if not wanted:
        return _arguments(given)
    if not packages and (found := library_jars(wanted)):
        return ["--jars", ",".join([*jars, *map(str, found)]), *_arguments(given, "jars")]
    return ["--packages", ",".join([*packages, *(each.coordinates for each in wanted)]), *_arguments(given, "packages")]


def _listed(given: Given, name: str) -> list[str]:
    """Return the packages or jars that the user has given. The option --`name` overrides the setting."""
    setting = "spark.jars.packages" if name == "packages" else "spark.jars"
    text = given.value(f"--{name}") or given.setting(setting) or ""
    return [each for each in text.split(",") if each]


def _arguments(given: Given, without: str = "") -> list[str]:
    setting = "spark.jars.packages=" if without == "packages" else "spark.jars="
    words: list[str] = []
    for name, value in given.options:
        if name == WITH:
            continue
        if without and (name == f"--{without}" or (name in ("--conf", "-c") and (value or "").startswith(setting))):
            continue
        words += [name] if value is None else [name, value]
    return [*words, *given.program]


def _refuse_other(spark: Spark, connector: str) -> None:
    found = re.search(rf"{CONNECTOR}_(\d+\.\d+)[:-](\d[^:]*?)(\.jar)?$", connector)
    if found and (found[1], found[2]) != (spark.scala, spark.version):
        raise UsageError(
            f"{connector} is for Spark {found[2]} and Scala {found[1]}, and this is Spark {spark.version} for Scala "
            f"{spark.scala}: leave it out, and the right one is taken"
        )


# --- the jars

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId><artifactId>connector</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
    <exclusions>
{exclusions}
    </exclusions>
  </dependency></dependencies>
</project>
"""


def library_jars(wanted: Sequence[Library]) -> list[Path]:
    """Return the libraries' jars from the user's cache. Maven first downloads missing ones; return [] without Maven."""
    found: dict[str, Path] = {}
    for each in wanted:
        folder = cache_folder(os.environ) / f"{each.artifact}-{each.version}"
        if not folder.is_dir():
            maven = shutil.which("mvn")
            if maven is None:
                return []
            say(f"Maven brings {each.coordinates}, once")
            _fetch(maven, each, folder)
        found |= {jar.name: jar for jar in folder.glob("*.jar")}
    return [found[name] for name in sorted(found)]


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the user's cache folder for jars."""
    cache = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "ottla" / "spark"


def _fetch(maven: str, library: Library, folder: Path) -> None:
    """Download a library's jars to `folder`. The folder appears only when the download is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetched-") as name:
        pom, jars = Path(name) / "pom.xml", Path(name) / "jars"
        pom.write_text(pom_of(library))
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        try:
            done = subprocess.run(
                [*command, f"-DoutputDirectory={jars}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=MAVEN_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RequestFailed(f"Maven has not brought {library.coordinates} after {MAVEN_TIMEOUT_S} s") from None
        if done.returncode != 0 or not any(jars.glob(f"{library.name}*.jar")):
            told = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
            reason = next((line for line in told.splitlines() if "ERROR" in line), "it says nothing")
            raise RequestFailed(f"Maven does not bring {library.coordinates}: {reason}")
        if not folder.is_dir():  # another one may have brought it meanwhile
            jars.rename(folder)


def pom_of(library: Library) -> str:
    """Make a pom.xml that depends on a library."""
    exclusions = "\n".join(
        f"      <exclusion><groupId>{group}</groupId><artifactId>{artifact.format(scala=library.scala)}</artifactId></exclusion>"
        for group, artifact in EXCLUDED
    )
    return POM.format(group=library.group, artifact=library.artifact, version=library.version, exclusions=exclusions)
