"""Spark's JVMs as tests start them: their compiler fits short jobs, and they map classes that `make setup` has recorded."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from compat_tests.apache.class_sharing import shared, spark_jars

from ottla.server.cli.spark_submit import DELTA_SETTINGS

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".cache" / "jars" / "spark_examples"
LIBRARIES = {"flights": ["spark-sql-kafka-0-10"], "clickstream": ["spark-avro", "delta-spark"]}
SHORT_JOBS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a JVM that ends before its second compiler pays off: a Spark job of some seconds takes half the processor time."""


def jvm_options() -> dict[str, str]:
    """Variables for whoever starts a Spark."""
    jars = spark_jars()
    return {"SPARK_SUBMIT_OPTS": shlex.join([*SHORT_JOBS, *(shared("spark", jars) if jars else ())])}


def run_example(name: str, bootstrap: str, folder: Path, *more: str, **variables: str) -> str:
    """Run all of an example as its README says, from a folder of its own below `folder`. Returns what it prints."""
    ottla = [sys.executable, "-m", "ottla"]
    subprocess.run([*ottla, "example", name, "--output", folder / name], check=True, stdout=subprocess.DEVNULL)
    environment = dict(os.environ) | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment |= _with_jars(folder / "cache") | jvm_options() | variables
    command = ["sh", str(folder / name / "run.sh"), bootstrap, str(folder / "output"), *more]
    done = subprocess.run(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def _with_jars(cache: Path) -> dict[str, str]:
    """A cache for `ottla spark-submit` that has the jars already that `make setup` has brought."""
    for name, libraries in LIBRARIES.items():
        for library in libraries:
            for jar in (JARS / name).glob(f"{library}_*.jar"):
                (cache / "ottla" / "spark").mkdir(parents=True, exist_ok=True)
                (cache / "ottla" / "spark" / jar.stem).symlink_to(JARS / name)
    return {"XDG_CACHE_HOME": str(cache)} if cache.exists() else {}


def jars_of_session(session: ModuleType) -> str:
    """The connector, Avro and Delta for the session of the example flights, as `spark.jars` takes them."""
    return ",".join([session.connector_jars(), *map(str, sorted((JARS / "clickstream").glob("*.jar")))])


def delta_settings(folder: Path) -> dict[str, str]:
    """Variables for a session that has Delta's jars, which reads its settings from a file in `folder`; none without the jars."""
    if not any((JARS / "clickstream").glob("delta-spark_*.jar")):
        return {}
    settings = "".join(f"{name} {value}\n" for name, value in DELTA_SETTINGS.items())
    (folder / "spark-defaults.conf").write_text(settings)
    # Without the last one workers are of any python3 on $PATH, which may lack what state in Python needs.
    return {"SPARK_CONF_DIR": str(folder), "PYSPARK_PYTHON": sys.executable}
