"""Keystores and truststores that keytool has made: in Java's own format JKS, and in PKCS12 under either name."""

import shutil
import subprocess
from pathlib import Path

import pytest
from compat_tests.support.brokers import OttlaProcess
from compat_tests.support.java_tools import FAST_START
from confluent_kafka import Producer

from ottla.server.security.tls_listener import TlsListener

STORE, KEY = "password-of-stores", "password-of-keys"
NAMES = ("-dname", "CN=broker,O=Ottla", "-ext", "SAN=dns:localhost,ip:127.0.0.1")


def keytool(*arguments: str) -> str:
    command = shutil.which("keytool")
    if command is None:
        pytest.skip("keytool is not on this machine: it comes with Java, which `make setup` installs")
    options = [f"-J{each}" for each in FAST_START]
    said = subprocess.run([command, *options, *arguments], capture_output=True, text=True, check=False, timeout=240)
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout


class Stores:
    """A keystore of a broker, a truststore that has its certificate, and the certificate as PEM."""

    def __init__(self, folder: Path, written: str, algorithm: str, key_password: str) -> None:
        self.keys, self.trusted, self.certificate = folder / "keys", folder / "trusted", folder / "broker.pem"
        self._key_password = key_password
        opened = ("-storepass", STORE, "-storetype", written)
        key = ("-alias", "broker", "-keyalg", algorithm, "-keypass", key_password)
        keytool("-genkeypair", *key, *NAMES, "-keystore", str(self.keys), *opened)
        exported = ("-exportcert", "-rfc", "-alias", "broker", "-file", str(self.certificate))
        keytool(*exported, "-keystore", str(self.keys), *opened)
        imported = ("-importcert", "-noprompt", "-alias", "broker", "-file", str(self.certificate))
        keytool(*imported, "-keystore", str(self.trusted), *opened)

    def settings(self, kind: str) -> dict[str, str]:
        return {
            "ssl.keystore.type": kind,
            "ssl.keystore.location": str(self.keys),
            "ssl.keystore.password": STORE,
            "ssl.key.password": self._key_password,
            "ssl.truststore.type": kind,
            "ssl.truststore.location": str(self.trusted),
            "ssl.truststore.password": STORE,
        }


@pytest.mark.parametrize(
    ("written", "kind", "key_password", "algorithm"),
    [
        ("JKS", "JKS", STORE, "EC"),
        ("JKS", "JKS", KEY, "RSA"),
        ("PKCS12", "JKS", STORE, "EC"),
        ("PKCS12", "JKS", STORE, "RSA"),
        ("JKS", "PKCS12", STORE, "RSA"),
    ],
)
def test_stores_of_keytool_are_read(tmp_path: Path, written: str, kind: str, key_password: str, algorithm: str) -> None:
    stores = Stores(tmp_path, written, algorithm, key_password)
    is_java_s_own = stores.keys.read_bytes().startswith(b"\xfe\xed\xfe\xed")
    assert is_java_s_own is (written == "JKS")
    # It shakes hands with itself, so both stores are of use.
    made = TlsListener("SSL", "SSL", stores.settings(kind) | {"ssl.client.auth": "required"}, is_between_brokers=True)
    certificate = made.secrets.key_store.chain[0]
    assert made.principal(certificate) == "User:CN=broker,O=Ottla"
    assert made.secrets.authorities == (certificate,)


def test_a_broker_starts_with_the_stores_of_keytool(tmp_path: Path) -> None:
    stores = Stores(tmp_path, "JKS", "RSA", KEY)
    texts = {name: text for name, text in stores.settings("JKS").items() if not name.endswith(".type")}
    settings = {"listeners": "SSL://127.0.0.1:0", "security.inter.broker.protocol": "SSL"}
    broker = OttlaProcess(tmp_path, settings | texts)
    broker.start()
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(stores.certificate),
            "error_cb": failures.append,
        }
    )
    producer.produce("encrypted", b"value")
    assert producer.flush(60) == 0
    assert failures == []
    broker.stop()
    assert STORE not in broker.log and KEY not in broker.log
