"""The JVMs of the tests map their classes, which `make setup` has recorded, and never those of other jars."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from compat_tests.apache import class_sharing, recording
from compat_tests.apache.brokers import FAST_START, jars
from compat_tests.apache.class_sharing import archive_of, shared, spark_jars


@pytest.mark.parametrize("release", ["kafka_4", "kafka_3"])
def test_a_broker_maps_the_classes_that_were_recorded(release: str) -> None:
    folder = jars(release)
    options = shared("broker", folder)
    if not archive_of("broker", folder).exists():  # `make setup` records it if it can; without it JVMs start later
        assert options == []
        return
    command = ["java", *FAST_START, *options, "-Xlog:class+load", "-cp", f"{folder}/*", "kafka.Kafka"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    loaded = [line for line in done.stdout.splitlines() if " kafka.Kafka$ source: " in line]
    assert loaded and all("shared objects file (top)" in line for line in loaded), done.stdout[-2000:]


def test_spark_maps_the_classes_that_were_recorded() -> None:
    folder = spark_jars()
    if folder is None or not archive_of("spark", folder).exists():
        assert folder is None or shared("spark", folder) == []
        return
    options = shlex.join([*shared("spark", folder), "-Xlog:class+load"])
    command = [str(folder.parent / "bin" / "spark-submit"), "--version"]
    environment = os.environ | {"SPARK_SUBMIT_OPTS": options, "SPARK_HOME": str(folder.parent)}
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=120)
    loaded = [line for line in done.stdout.splitlines() if " org.apache.spark.deploy.SparkSubmit source: " in line]
    assert loaded and all("shared objects file (top)" in line for line in loaded), done.stdout[-2000:]


def test_other_jars_have_other_files(tmp_path: Path) -> None:
    jar = tmp_path / "one.jar"
    jar.write_bytes(b"1")
    first = archive_of("broker", tmp_path)
    assert archive_of("broker", tmp_path) == first != archive_of("tools", tmp_path)
    os.utime(jar, (1, 1))
    assert archive_of("broker", tmp_path) != first
    assert shared("broker", tmp_path) == []


def test_existing_archives_are_not_recorded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def archive(program: str, folder: Path) -> Path:
        asked.append(program)
        (path := tmp_path / program).touch()
        return path

    monkeypatch.setattr(class_sharing, "archive_of", archive)
    recording.record_all()
    assert "spark" in asked or spark_jars() is None or not any((recording.SPARK_JARS / "flights").glob("*.jar"))
    assert not list(tmp_path.glob("*.unfinished"))
