"""Spark's JVMs as tests start them: their compiler fits short jobs, and they map classes that `make setup` has recorded."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from compat_tests.apache.class_sharing import shared, spark_jars

ROOT = Path(__file__).resolve().parents[2]
CONNECTOR = ROOT / ".cache" / "jars" / "spark_examples" / "flights"
SHORT_JOBS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a JVM that ends before its second compiler pays off: a Spark job of some seconds takes half the processor time."""


def jvm_options() -> dict[str, str]:
    """Variables for whoever starts a Spark."""
    jars = spark_jars()
    return {"SPARK_SUBMIT_OPTS": shlex.join([*SHORT_JOBS, *(shared("spark", jars) if jars else ())])}


def run_example(name: str, bootstrap: str, folder: Path, *more: str) -> str:
    """Run all of an example as its README says, from a folder of its own below `folder`. Returns what it prints."""
    ottla = [sys.executable, "-m", "ottla"]
    subprocess.run([*ottla, "example", name, "--output", folder / name], check=True, stdout=subprocess.DEVNULL)
    environment = dict(os.environ) | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment |= _with_jars(folder / "cache") | jvm_options()
    command = ["sh", str(folder / name / "run.sh"), bootstrap, str(folder / "output"), *more]
    done = subprocess.run(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def _with_jars(cache: Path) -> dict[str, str]:
    """A cache for `ottla spark-submit` that has the connector already, if `make setup` has brought it."""
    for connector in CONNECTOR.glob("spark-sql-kafka-*.jar"):
        (cache / "ottla" / "spark").mkdir(parents=True)
        (cache / "ottla" / "spark" / connector.stem).symlink_to(CONNECTOR)
    return {"XDG_CACHE_HOME": str(cache)} if cache.exists() else {}
