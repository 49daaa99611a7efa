"""testcontainers' modules start the image: with the modules' own code and scripts, and the log lines that they wait for."""

import base64
import datetime
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compat_tests.containers import modules
from compat_tests.containers.image import (
    ROOT,
    Container,
    Containerfile,
    Image,
    can_run,
    debian,
    with_ways_out,
)
from compat_tests.containers.modules import Start
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

pytestmark = [
    pytest.mark.skipif(not can_run(), reason="this process may not mount file systems or create namespaces"),
]
NAMES_OF_JAVA = ["apache", "confluent", "older, KRaft", "older, KRaft before 7.4", "older, ZooKeeper"]
ROUND_TRIP = """
import json, sys
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
client = {"bootstrap.servers": sys.argv[1], **json.loads(sys.argv[2])}
producer = Producer(client)
producer.produce("records", b"one", partition=0)
assert producer.flush(60) == 0
consumer = Consumer(client | {"group.id": "readers", "auto.offset.reset": "earliest"})
consumer.subscribe(["records"])
message = consumer.poll(60)
assert message is not None and message.error() is None and message.value() == b"one"
consumer.close()
print(producer.list_topics(timeout=60).cluster_id)
"""


@pytest.fixture(scope="module")
def starts_of_java() -> list[Start]:
    return or_skip(modules.java)


def or_skip(read: Callable[[], Any]) -> Any:
    """Return the result of `read`, or skip the test if a program is missing."""
    try:
        return read()
    except modules.Missing as reason:
        pytest.skip(str(reason))


def started(image: Image, folder: Path, start: Start) -> Container:
    """Start a container as the module does, and wait until the module would take it as started."""
    given = {path: base64.b64decode(content) for path, content in start.given.items()}
    container = image.run(folder, start.variables, entrypoint=start.entrypoint, command=start.command, files=given)
    try:
        for path, (text, mode) in start.files.items():
            container.copy(path, text.encode(), mode)
        container.wait_for_line("listening on " if start.pattern is None else start.pattern)
        if start.pattern is None:  # the module looks for an open port with this command, too
            container.execute(["/bin/bash", "-c", f"</dev/tcp/localhost/{start.port}"])
    except BaseException:
        container.stop()
        raise
    return container


def serves(
    image: Image, folder: Path, start: Start, login: dict[str, str] | None = None, port: int | None = None
) -> str:
    """Start a container, produce and consume at the address that the module gives to its users, and return the log."""
    container = started(image, folder, start)
    try:
        done = container.client(ROUND_TRIP, f"localhost:{port or start.port}", json.dumps(login or {}))
        assert done.returncode == 0, f"{done.stderr}{container.log}"
        if "CLUSTER_ID" in start.variables:
            assert done.stdout.strip() == start.variables["CLUSTER_ID"]
        # The image's health check finds the listeners that the module has chosen.
        assert b" answers" in container.execute(image.containerfile.health_check).stdout
    finally:
        container.stop()
    assert "Traceback" not in container.log
    return container.log


@pytest.mark.parametrize("kind", ["kraft", "zookeeper"])
def test_pythons_module(image: Image, tmp_path: Path, kind: str) -> None:
    serves(image, tmp_path / "container", or_skip(lambda: modules.python(kind)))


@pytest.mark.parametrize("kind", ["kraft", "zookeeper"])
def test_nodes_module(image: Image, tmp_path: Path, kind: str) -> None:
    serves(image, tmp_path / "container", or_skip(lambda: modules.node(kind)))


@pytest.mark.parametrize("name", NAMES_OF_JAVA)
def test_javas_modules(image: Image, tmp_path: Path, starts_of_java: list[Start], name: str) -> None:
    [start] = [each for each in starts_of_java if each.name == name]
    serves(image, tmp_path / "container", start)


def test_gos_module(image: Image, tmp_path: Path) -> None:
    serves(image, tmp_path / "container", or_skip(modules.go))


def test_nodes_module_with_a_login(image: Image, tmp_path: Path) -> None:
    """The module's SASL_SSL listener has a keystore in PKCS12, and `kafka-storage format --add-scram` adds the user."""
    start = or_skip(lambda: modules.node("scram", str(keystore(tmp_path / "keystore.pfx"))))
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "enable.ssl.certificate.verification": "false",
    }
    login |= {"sasl.username": "app-user", "sasl.password": "userPassword"}
    log = serves(image, tmp_path / "container", start, login, port=9096)
    assert "userPassword" not in log and "serverKeystorePassword" not in log


def keystore(path: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now, now + datetime.timedelta(1)
    )
    certificate = builder.sign(key, hashes.SHA256())
    sealed = serialization.BestAvailableEncryption(b"serverKeystorePassword")
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"localhost", key, certificate, None, sealed))
    return path


def test_javas_driver_reports_all_starts_of_the_list(starts_of_java: list[Start]) -> None:
    assert [each.name for each in starts_of_java] == NAMES_OF_JAVA


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_all_steps_of_the_containerfile_make_an_image_that_every_module_starts(tmp_path: Path) -> None:
    """Build on a fresh Debian 13, so that nothing of this machine is in the image. The tests above are its short twins."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is not on this machine")
    base = debian(modules.FETCHED / "debian-13")
    image = Image.built(Containerfile(ROOT / "Containerfile"), tmp_path / "image", base, prepare=with_ways_out)
    starts = [modules.python("kraft"), modules.python("zookeeper"), modules.node("kraft"), modules.node("zookeeper")]
    for number, start in enumerate([*starts, modules.go(), *modules.java()]):
        serves(image, tmp_path / str(number), start)
    container = image.run(tmp_path / "plain", {})
    try:
        container.wait_for_line("listening on ")
        version = container.execute(["ottla", "version"]).stdout.decode()
        assert image.containerfile.labels["org.opencontainers.image.version"] in version
        assert container.client(ROUND_TRIP, "localhost:9092", "{}").returncode == 0
    finally:
        container.stop()
