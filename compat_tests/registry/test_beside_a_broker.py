"""`ottla start --registry`; and a registry with https and users."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError

import pytest
from compat_tests.support.brokers import free_port, wait_until
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError

from ottla.server.launch.certificates_command import make_certificates


def answers(url: str) -> bool:
    try:
        return urllib.request.urlopen(f"{url}/subjects", timeout=10).status == 200
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_is_started_again_and_ends_with_the_broker(tmp_path: Path, number: signal.Signals) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    settings = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}"]
    overrides = [part for each in settings for part in ("--override", each)]
    command = [sys.executable, "-m", "ottla", "start", "--registry", str(port), *overrides]
    with open(tmp_path.parent / f"{number.name}.log", "wb") as log:
        broker = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: answers(url), "the registry answers")
        children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children")
        [child] = children.read_text().split()
        os.kill(int(child), signal.SIGKILL)
        wait_until(lambda: child not in children.read_text().split(), "the registry is gone")
        wait_until(lambda: answers(url), "the registry answers again")
        broker.send_signal(number)
        broker.wait(60)
        wait_until(lambda: not answers(url), "the registry has ended")
    finally:
        broker.kill()
        broker.wait()


def test_https_and_users(bootstrap: str, start_registry: Callable[..., object], tmp_path: Path, unique) -> None:
    folder = tmp_path / "tls"
    make_certificates(folder, ["127.0.0.1"], 2)
    users = tmp_path / "users.properties"
    users.write_text("user.maker=secret\nrights.maker=read,write:orders-*\n")
    users.chmod(0o600)
    arguments = ["--certificate", str(folder / "127.0.0.1.pem"), "--users", str(users), "--topic", unique("schemas")]
    url = start_registry(bootstrap, *arguments).url
    assert url.startswith("https://")
    with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(url, timeout=60)
    settings = {"url": url, "ssl.ca.location": str(folder / "authority.pem")}
    with SchemaRegistryClient({**settings, "basic.auth.user.info": "maker:secret"}) as client:
        assert client.register_schema("orders-value", Schema('"int"', "AVRO")) == 1
        assert client.get_subjects() == ["orders-value"]
        with pytest.raises(SchemaRegistryError) as refused:
            client.register_schema("other", Schema('"int"', "AVRO"))
        assert (refused.value.http_status_code, refused.value.error_code) == (403, 40301)
    with (
        SchemaRegistryClient({**settings, "basic.auth.user.info": "maker:wrong"}) as client,
        pytest.raises(SchemaRegistryError) as refused,
    ):
        client.get_subjects()
    assert refused.value.http_status_code == 401


@pytest.mark.parametrize("address", ["x", "0", "127.0.0.1:0", "127.0.0.1", "99999"])
def test_a_wrong_address_is_refused_at_the_start(address: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla", "start", "--registry", address, "--override", f"log.dirs={tmp_path}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2 and f"--registry {address}: must be HOST:PORT" in ended.stderr
