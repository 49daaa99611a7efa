"""The image under `docker run` and in compose files: its entry point, health checks, volumes and secrets."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_tests.containers.image import Container, Image, can_run
from compat_tests.containers.test_testcontainers import ROUND_TRIP, keystore
from compat_tests.support.brokers import wait_until

pytestmark = pytest.mark.skipif(not can_run(), reason="this process may not mount file systems or create namespaces")


@pytest.fixture
def container(image: Image, tmp_path: Path) -> Iterator[Container]:
    container = image.run(tmp_path / "container", {"KAFKA_CREATE_TOPICS": "orders:2:1"})
    try:
        container.wait_for_line("listening on ")
        yield container
    finally:
        container.stop()


def status(container: Container, *words: str) -> int:
    try:
        return container.execute(words).returncode
    except subprocess.CalledProcessError as error:
        return error.returncode


def test_a_stopped_container_leaves_no_process(image: Image, tmp_path: Path) -> None:
    container = image.run(tmp_path / "container", {"MARK": str(tmp_path)})
    try:
        container.wait_for_line("listening on ")
        assert processes_with(f"MARK={tmp_path}")
    finally:
        container.stop()
    wait_until(lambda: not processes_with(f"MARK={tmp_path}"), "all processes of the container have ended", 30)


def processes_with(variable: str) -> list[str]:
    """Return the ids of this machine's processes that have `variable`, NAME=TEXT, in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(process.name)
    return found


def test_commands_of_compose_files_health_checks_work(container: Container) -> None:
    assert container.client(ROUND_TRIP, "localhost:9092", "{}").returncode == 0
    listed = ("--bootstrap-server", "localhost:9092", "--list")
    for command in (
        "kafka-topics.sh",
        "/opt/kafka/bin/kafka-topics.sh",
        "/opt/bitnami/kafka/bin/kafka-topics.sh",
    ):
        assert b"orders" in container.execute([command, *listed]).stdout
    create = ("kafka-topics", "--bootstrap-server=broker:19092", "--create", "--if-not-exists", "--topic", "users")
    for _ in range(2):
        container.execute([*create, "--partitions", "3", "--replication-factor", "1", "--config", "retention.ms=1000"])
    told = json.loads(container.execute(["ottla", "topics", "describe", "users", "--json"]).stdout)
    assert "retention.ms" in json.dumps(told) and len(told[0]["partitions"]) == 3
    assert status(container, "kafka-topics", "--topic", "users", "--delete") == 0
    for good in (
        ("kafka-broker-api-versions", "--bootstrap-server", "localhost:9092"),
        ("cub", "kafka-ready", "-b", "broker:19092", "1", "30"),
        ("nc", "-z", "localhost", "9092"),
        ("nc", "-vz", "-w", "2", "broker", "19092"),
    ):
        assert status(container, *good) == 0, good
    for bad in (
        ("kafka-broker-api-versions", "--bootstrap-server", "localhost:1"),
        ("cub", "kafka-ready", "-b", "localhost:1", "1", "1"),
        ("cub", "zk-ready", "zookeeper:2181", "1"),
        ("nc", "-z", "localhost", "1"),
        ("nc", "localhost", "9092"),
        ("kafka-topics", "--alter"),
        ("kafka-topics", "--create"),
        ("kafka-topics", "--topic"),
        ("kafka-storage", "info"),
        ("kafka-storage", "format", "-t"),
    ):
        assert status(container, *bad) not in (0, 126, 127), bad


def test_a_command_of_ottla_or_a_program_may_be_given(image: Image, tmp_path: Path) -> None:
    for number, (command, line) in enumerate(
        ((["version"], "ottla "), (["ottla", "version"], "ottla "), (["sh", "-c", "echo it is sh"], "it is sh"))
    ):
        container = image.run(tmp_path / str(number), {}, command=command)
        container.wait_for_line(line)
        assert container.process.wait(60) == 0


def test_sigterm_ends_the_container_cleanly(container: Container) -> None:
    container.execute(["sh", "-c", "kill -TERM 1"])
    assert container.process.wait(60) == 0
    assert "Traceback" not in container.log


@pytest.mark.parametrize("place", ["/var/lib/kafka/data", "/bitnami/kafka"])
def test_a_volume_of_another_image_holds_the_data(image: Image, tmp_path: Path, place: str) -> None:
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o777)
    volume.chmod(0o777)
    container = image.run(tmp_path / "container", {}, volumes={place: volume})
    try:
        container.wait_for_line("listening on ")
        assert (volume / "ottla" / "meta.properties").exists()
    finally:
        container.stop()


def test_keys_and_passwords_of_compose_files_with_tls(image: Image, tmp_path: Path) -> None:
    secrets = {
        "/etc/kafka/secrets/broker.keystore.jks": keystore(tmp_path / "keystore").read_bytes(),
        "/etc/kafka/secrets/creds": b"serverKeystorePassword\n",
    }
    variables = {
        "KAFKA_LISTENERS": "SSL://:9093",
        "KAFKA_ADVERTISED_LISTENERS": "SSL://localhost:9093",
        "KAFKA_SECURITY_INTER_BROKER_PROTOCOL": "SSL",
        "KAFKA_SSL_KEYSTORE_FILENAME": "broker.keystore.jks",
        "KAFKA_SSL_KEYSTORE_CREDENTIALS": "creds",
        "KAFKA_SSL_KEY_CREDENTIALS": "creds",
    }
    container = image.run(tmp_path / "container", variables, files=secrets)
    try:
        container.wait_for_line("listening on ")
        login = {"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}
        done = container.client(ROUND_TRIP, "localhost:9093", json.dumps(login))
        assert done.returncode == 0, f"{done.stderr}{container.log}"
        assert b"127.0.0.1:9093 answers" in container.execute(image.containerfile.health_check).stdout
    finally:
        container.stop()
    assert "serverKeystorePassword" not in container.log
