"""`ottla spark` and `ottla spark-submit` with stand-ins for Spark, Java and Maven, which tell how they were called."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.cli.cli import main
from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.server.cli.spark import NEWEST, Spark, find_spark, java_of, refuse_old_java
from ottla.server.cli.spark_submit import (
    CONNECTOR,
    added_environment,
    cache_folder,
    connector_of,
    libraries,
    library_settings,
    pom_of,
    read_arguments,
    with_connector,
)

TOLD = ("SPARK_HOME", "SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
SUBMIT = "#!/bin/sh\n" + "".join(f'echo "{name}=${name}"\n' for name in TOLD) + 'printf "<%s>" "$@"\nexit 7\n'
JAVA = "#!/bin/sh\necho 'openjdk version \"{}\" 2025-04-15' >&2\n"
MAVEN = """#!/bin/sh
for each in "$@"; do case $each in -DoutputDirectory=*) folder=${each#*=};; esac; done
echo "$@" >>"$MAVEN_LOG"
[ -n "$MAVEN_FAILS" ] && { printf '\\033[31m[ERROR] it cannot be found\\033[0m'; exit 1; }
mkdir -p "$folder" && touch "$folder/kafka-clients.jar" "$folder/spark-sql-kafka-0-10.jar"
"""


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def spark_home(home: Path, version: str = "4.0.0", scala: str = "2.13") -> Path:
    program(home / "bin" / "spark-submit", SUBMIT)
    (home / "jars").mkdir()
    (home / "jars" / f"spark-core_{scala}-{version}.jar").touch()
    return home


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command in a process of its own, with a Spark 4.0.0 and a Java 17 unless the test brings others."""
    spark_home(tmp_path / "spark")
    program(tmp_path / "java" / "bin" / "java", JAVA.format("17.0.15"))

    def command(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {each: value for each, value in os.environ.items() if each not in TOLD}
        environment |= {"SPARK_HOME": str(tmp_path / "spark"), "JAVA_HOME": str(tmp_path / "java")}
        environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": str(tmp_path / "empty"), **variables}
        return subprocess.run(
            [sys.executable, "-m", "ottla", *words],
            env=environment,
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
        )

    return command


def spark(version: str = "4.0.0", scala: str = "2.13") -> Spark:
    return Spark(Path("/spark"), version, scala, "/venv/bin/python")


# --- which Spark


def test_the_connector_is_that_of_spark_and_scala(tmp_path: Path):
    for version, scala in (("3.5.5", "2.12"), ("3.5.5", "2.13"), ("4.0.0", "2.13"), ("4.2.0", "2.13")):
        home = spark_home(tmp_path / f"{version}-{scala}", version, scala)
        found = find_spark({"SPARK_HOME": str(home)})
        assert found.connector == f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{version}"
        assert (found.home, found.problem) == (home, "")


@pytest.mark.parametrize(
    ("version", "instead"),
    [
        ("4.3.0", "4.2.0"),
        ("3.5.9", "3.5.7"),
        ("5.0.0", "4.2.0"),
        ("4.2.0", ""),
        ("4.0.2", ""),
        ("3.5.7", ""),
        ("3.4.1", ""),
    ],
)
def test_a_spark_that_has_no_connector_names_one_that_has(version: str, instead: str):
    problem = spark(version).problem
    assert f"`pip install pyspark=={instead}` has one" in problem if instead else problem == ""


def test_a_folder_that_is_no_spark(tmp_path: Path):
    with pytest.raises(RequestFailed, match="is no Spark"):
        find_spark({"SPARK_HOME": str(tmp_path)})


def test_spark_is_that_of_a_command_if_this_python_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ottla.server.cli.spark.find_spec", lambda name: None)
    with pytest.raises(RequestFailed, match=f"no Spark here: `pip install pyspark=={NEWEST}`"):
        find_spark({"PATH": str(tmp_path)})
    # A virtual environment: the command is in bin/, pyspark is with the packages.
    venv = tmp_path / "venv"
    home = spark_home(venv / "lib" / "python3.12" / "site-packages" / "pyspark")
    program(venv / "bin" / "spark-submit", SUBMIT)
    (venv / "bin" / "python").touch()
    assert find_spark({"PATH": str(venv / "bin")}) == Spark(home, "4.0.0", "2.13", str(venv / "bin" / "python"))
    # An unpacked Spark.
    other = spark_home(tmp_path / "unpacked")
    assert find_spark({"PATH": str(other / "bin")}) == Spark(other, "4.0.0", "2.13", "python3")
    program(tmp_path / "lone" / "bin" / "spark-submit", SUBMIT)
    with pytest.raises(RequestFailed, match="set SPARK_HOME"):
        find_spark({"PATH": str(tmp_path / "lone" / "bin")})


def test_spark_is_that_of_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    home = spark_home(tmp_path / "pyspark")
    spec = SimpleNamespace(origin=str(home / "__init__.py"))
    monkeypatch.setattr("ottla.server.cli.spark.find_spec", lambda name: spec)
    assert find_spark({"PATH": ""}) == Spark(home, "4.0.0", "2.13", sys.executable)


@pytest.mark.parametrize(
    ("version", "java", "is_refused"),
    [("4.0.0", "17.0.15", False), ("4.2.0", "21", False), ("4.0.0", "11.0.2", True), ("4.0.0", "1.8.0_402", True)]
    + [("3.5.1", "1.8.0_402", False), ("3.5.1", "11.0.2", False), ("4.1.0", "25-ea", False)],
)
def test_an_old_java_is_told_before_spark_fails(version: str, java: str, is_refused: bool, tmp_path: Path):
    program(tmp_path / "bin" / "java", JAVA.format(java))
    for environment in ({"JAVA_HOME": str(tmp_path)}, {"PATH": str(tmp_path / "bin")}):
        assert java_of(environment) == (str(tmp_path / "bin" / "java"), java)
    if is_refused:
        with pytest.raises(RequestFailed, match=f"needs Java 17 or newer, and this is {java}"):
            refuse_old_java(spark(version), java)
    else:
        refuse_old_java(spark(version), java)


def test_a_java_that_is_none(tmp_path: Path):
    with pytest.raises(RequestFailed, match="there is no Java: .*default-jdk-headless"):
        java_of({"PATH": str(tmp_path)})
    with pytest.raises(RequestFailed, match="no Java in JAVA_HOME=/nowhere"):
        java_of({"JAVA_HOME": "/nowhere"})
    program(tmp_path / "bin" / "java", "#!/bin/sh\necho hello\n")
    with pytest.raises(RequestFailed, match="does not say which Java"):
        java_of({"PATH": str(tmp_path / "bin")})
    (tmp_path / "bin" / "java").write_text("no program\n")
    (tmp_path / "bin" / "java").chmod(0o644)
    with pytest.raises(RequestFailed, match="does not run"):
        java_of({"JAVA_HOME": str(tmp_path)})


# --- the arguments of spark-submit


def test_options_end_where_the_program_begins():
    given = read_arguments(["--master", "local[2]", "--conf=a=b", "-v", "-c", "x=y=z", "job.py", "--master", "its own"])
    assert given.program == ["job.py", "--master", "its own"]
    assert (given.value("--master"), given.setting("a"), given.setting("x")) == ("local[2]", "b", "y=z")
    assert given.is_local and not given.asks_only
    assert read_arguments(["--version"]).asks_only and read_arguments(["--master"]).asks_only


@given(st.lists(st.sampled_from(["--jars", "--conf", "a=b", "-v", "--jars=x", "job.py", "--help", ""]), max_size=8))
def test_any_arguments_stay_what_they_are(words: list[str]):
    given = read_arguments(words)
    again = [each for name, value in given.options for each in ((name,) if value is None else (name, value))]
    assert read_arguments([*again, *given.program]) == given
    assert given.program == words[len(words) - len(given.program) :]


@pytest.mark.parametrize(
    ("words", "is_local"),
    [
        ("job.py", True),
        ("--master local[*] job.py", True),
        ("--conf spark.master=local[2] job.py", True),
        ("--master spark://host:7077 job.py", False),
        ("--conf spark.master=yarn job.py", False),
        ("--remote sc://host job.py", False),
    ],
)
def test_only_a_local_spark_gets_the_loopback_address(words: str, is_local: bool):
    given = read_arguments(words.split())
    found = added_environment(spark(), given, {})
    python = {"PYSPARK_PYTHON": "/venv/bin/python", "PYSPARK_DRIVER_PYTHON": "/venv/bin/python"}
    assert found == {"SPARK_HOME": "/spark", **python} | ({"SPARK_LOCAL_IP": "127.0.0.1"} if is_local else {})


def test_what_is_set_stays():
    given = read_arguments(["job.py"])
    theirs = {"PYSPARK_PYTHON": "theirs", "SPARK_LOCAL_IP": "10.0.0.1", "SPARK_HOME": "/other"}
    assert added_environment(spark(), given, theirs) == {"PYSPARK_DRIVER_PYTHON": "theirs"}
    by_setting = read_arguments(["--conf", "spark.pyspark.python=theirs", "job.py"])
    assert "PYSPARK_PYTHON" not in added_environment(spark(), by_setting, {})


def test_the_connector_is_added_to_what_is_given(monkeypatch: pytest.MonkeyPatch):
    def added(words: str, jars: list[str]) -> str:
        monkeypatch.setattr("ottla.server.cli.spark_submit.library_jars", lambda wanted: list(map(Path, jars)))
        return " ".join(with_connector(spark(), read_arguments(words.split())))

    coordinate = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
    ours = ["/c/a.jar", "/c/b.jar"]
    assert added("job.py x", ours) == "--jars /c/a.jar,/c/b.jar job.py x"
    assert added("--jars=/my.jar -v job.py", ours) == "--jars /my.jar,/c/a.jar,/c/b.jar -v job.py"
    assert added("--conf spark.jars=/my.jar job.py", ours) == "--jars /my.jar,/c/a.jar,/c/b.jar job.py"
    assert added("job.py", []) == f"--packages {coordinate} job.py"
    assert added("--packages g:a:1 --jars j job.py", ours) == f"--packages g:a:1,{coordinate} --jars j job.py"
    assert added("-c spark.jars.packages=g:a:1 job.py", ours) == f"--packages g:a:1,{coordinate} job.py"
    assert added(f"--packages {coordinate} job.py", ours) == f"--packages {coordinate} job.py"
    mine = f"--jars /x/{CONNECTOR}_2.13-4.0.0.jar job.py"
    assert added(mine, ours) == mine
    more = "org.apache.spark:spark-avro_2.13:4.0.0,io.delta:delta-spark_2.13:4.0.0"
    assert added("--with avro,delta -v job.py", []) == f"--packages {coordinate},{more} -v job.py"
    assert added("--with=avro --with delta job.py", ours) == "--jars /c/a.jar,/c/b.jar job.py"
    assert added(f"--with avro,delta {mine}", []) == f"--packages {more} {mine}"


def test_delta_is_of_the_release_that_fits_and_has_its_settings():
    given = read_arguments(["--with", "delta", "--conf", "spark.sql.extensions=mine", "job.py"])
    found = libraries(spark("3.5.4", "2.12"), given)
    assert [each.coordinates for each in found] == ["io.delta:delta-spark_2.12:3.3.2"]
    catalog = "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
    assert library_settings(given) == ["--conf", catalog]
    assert library_settings(read_arguments(["--with", "avro", "job.py"])) == []
    with pytest.raises(RequestFailed, match="Delta Lake for Spark 4.2.0 is not known here; that for 3.5 and 4.0 is"):
        libraries(spark("4.2.0"), given)
    for words in (["--with", "iceberg"], ["--with"]):
        with pytest.raises(UsageError, match="avro and delta can be had"):
            libraries(spark(), read_arguments([*words, *(["job.py"] if len(words) > 1 else [])]))


@pytest.mark.parametrize(
    "words",
    [
        "--packages org.apache.spark:spark-sql-kafka-0-10_2.12:4.0.0 job.py",
        "--packages g:a:1,org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.0 job.py",
        "--jars /x/spark-sql-kafka-0-10_2.13-3.5.1.jar job.py",
        "--conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.1 job.py",
    ],
)
def test_a_connector_of_another_version_is_refused(words: str):
    with pytest.raises(UsageError, match="this is Spark 4.0.0 for Scala 2.13: leave it out"):
        with_connector(spark(), read_arguments(words.split()))


def test_a_spark_without_a_connector_is_told():
    with pytest.raises(RequestFailed, match="had no connector for Spark 4.3.0"):
        with_connector(spark("4.3.0"), read_arguments(["job.py"]))
    assert with_connector(spark("4.3.0"), read_arguments([f"--jars={CONNECTOR}_2.13-4.3.0.jar", "job.py"]))


def test_the_pom_names_the_connector_and_leaves_out_what_spark_has():
    text = pom_of(connector_of(spark("3.5.1", "2.12")))
    assert "<artifactId>spark-sql-kafka-0-10_2.12</artifactId><version>3.5.1</version>" in text
    assert "spark-tags_2.12" in text and "{" not in text


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch):
    assert cache_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/ottla/spark")
    monkeypatch.setenv("HOME", "/h")
    assert cache_folder({}) == Path("/h/.cache/ottla/spark")


# --- the commands


def test_spark_is_shown(run, tmp_path: Path):
    told = run("spark")
    assert (told.returncode, told.stderr) == (0, "")
    assert "4.0.0 for Scala 2.13" in told.stdout and "17.0.15" in told.stdout
    assert '.config("spark.jars.packages", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0")' in told.stdout
    assert run("spark", "--packages").stdout == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0\n"
    assert json.loads(run("spark", "--json").stdout)["home"] == str(tmp_path / "spark")
    failed = run("spark", SPARK_HOME=str(spark_home(tmp_path / "late", "4.3.0")))
    assert failed.returncode == 1 and failed.stdout == "" and failed.stderr.count("\n") == 1


def test_spark_submit_is_run(run, tmp_path: Path):
    told = run("spark-submit", "--master", "local[2]", "job.py", "--help", "two words")
    assert told.returncode == 7
    *variables, arguments = told.stdout.splitlines()
    assert variables == [
        f"SPARK_HOME={tmp_path}/spark",
        "SPARK_LOCAL_IP=127.0.0.1",
        f"PYSPARK_PYTHON={sys.executable}",
        f"PYSPARK_DRIVER_PYTHON={sys.executable}",
    ]
    packages = "<--conf><spark.log.level=WARN><--packages><org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0>"
    assert arguments == packages + "<--master><local[2]><job.py><--help><two words>"
    assert run("spark-submit", "--version", JAVA_HOME="/nowhere").stdout.endswith("<--version>")
    refused = run("spark-submit", "job.py", JAVA_HOME="/nowhere")
    assert (refused.returncode, refused.stdout) == (1, "") and "there is no Java" in refused.stderr


def test_maven_brings_the_jars_once(run, tmp_path: Path):
    program(tmp_path / "maven" / "mvn", MAVEN)
    variables = {"PATH": f"{tmp_path}/maven:/usr/bin:/bin", "MAVEN_LOG": str(tmp_path / "log")}
    failed = run("spark-submit", "job.py", MAVEN_FAILS="1", **variables)
    assert failed.returncode == 1 and ":4.0.0: [ERROR] it cannot be found\n" in failed.stderr
    folder = tmp_path / "cache" / "ottla" / "spark" / "spark-sql-kafka-0-10_2.13-4.0.0"
    jars = f"<--jars><{folder}/kafka-clients.jar,{folder}/spark-sql-kafka-0-10.jar>"
    words = ("spark-submit", "--conf", "spark.log.level=INFO", "job.py")
    for _ in range(2):
        told = run(*words, **variables).stdout.splitlines()
        assert told[-1] == jars + "<--conf><spark.log.level=INFO><job.py>"
    assert len((tmp_path / "log").read_text().splitlines()) == 2
    assert [each.name for each in folder.parent.iterdir()] == [folder.name]


def test_libraries_are_added(run, tmp_path: Path):
    folder = tmp_path / "cache" / "ottla" / "spark"
    for name in ("spark-sql-kafka-0-10", "spark-avro", "delta-spark"):
        (folder / f"{name}_2.13-4.0.0").mkdir(parents=True)
        (folder / f"{name}_2.13-4.0.0" / f"{name}.jar").touch()
        (folder / f"{name}_2.13-4.0.0" / "common.jar").touch()
    told = run("spark-submit", "--with", "avro,delta", "job.py").stdout.splitlines()[-1]
    jars = [Path(each).name for each in told.partition("<--jars><")[2].partition(">")[0].split(",")]
    assert jars == ["common.jar", "delta-spark.jar", "spark-avro.jar", "spark-sql-kafka-0-10.jar"]
    assert "<spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension>" in told and "--with" not in told
    refused = run("spark-submit", "--with", "iceberg", "job.py")
    assert (refused.returncode, refused.stderr) == (
        2,
        "ottla: --with iceberg: avro and delta can be had, or avro,delta\n",
    )


def test_the_help_is_ottlas(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        main(["spark-submit", "--help"])
    assert "PYSPARK_PYTHON" in capsys.readouterr().out
