"""aiokafka's tests start one container of Kafka and a KDC with the docker package; these fixtures are put in place of theirs."""

import contextlib
import os
import socket
import subprocess
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ottla.testing import Kafka

CERTIFICATES = Path("tests/ssl_cert")


def unused_ports(count: int) -> list[int]:
    """Ports that nobody listens on; their tests ask for that of TLS by number."""
    with contextlib.ExitStack() as taken:
        sockets = [taken.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture(scope="session")
def docker() -> None:
    """Nothing is asked of it."""


@pytest.fixture(scope="session")
def ssl_folder() -> Path:
    """Certificates made by their script, here and not in a container."""
    if not (CERTIFICATES / "client.crt").exists():
        CERTIFICATES.mkdir(exist_ok=True)
        subprocess.run(["bash", Path("gen-ssl-certs.sh").resolve()], cwd=CERTIFICATES, check=True, capture_output=True)
    return CERTIFICATES


@pytest.fixture(scope="session")
def kafka_server(ssl_folder: Path) -> Any:
    port, ssl_port = unused_ports(2)
    settings = {
        "num.partitions": "2",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{ssl_port}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": (ssl_folder / "server.crt").read_text(),
        "ssl.keystore.key": (ssl_folder / "server.key").read_text(),
    }
    with Kafka(settings=settings) as kafka:
        yield SimpleNamespace(
            host="127.0.0.1",
            port=port,
            ssl_port=ssl_port,
            sasl_plain_port=0,
            sasl_ssl_port=0,
            container=None,
            hosts=[kafka.bootstrap],
        )


@pytest.fixture(scope="class")
def acl_manager() -> None:
    """None: tests of access are left out."""


@pytest.fixture(scope="class")
def kafka_config() -> None:
    """None: tests of SCRAM are left out."""


@pytest.fixture(scope="class")
def kerberos_utils() -> None:
    """None: tests of Kerberos are left out."""


OURS = ("docker", "ssl_folder", "kafka_server", "acl_manager", "kafka_config", "kerberos_utils")


@pytest.hookimpl(tryfirst=True)
def pytest_plugin_registered(plugin: object) -> None:
    """Put ours in place of theirs before pytest looks for fixtures in their conftest."""
    if isinstance(plugin, ModuleType) and (plugin.__file__ or "").endswith(os.path.join("tests", "conftest.py")):
        for name in OURS:
            setattr(plugin, name, globals()[name])
