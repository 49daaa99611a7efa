"""aiokafka's tests start one container of Kafka and a KDC with the docker package; these fixtures are put in place of theirs."""

import os
import subprocess
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ottla.testing import Kafka

CERTIFICATES = Path("tests/ssl_cert")


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
    with Kafka(settings={"num.partitions": "2"}) as kafka:
        host, _, port = kafka.bootstrap.rpartition(":")
        yield SimpleNamespace(
            host=host,
            port=int(port),
            ssl_port=0,
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
