"""A proxy whose brokers encrypt and want a login, and that encrypts itself."""

import base64
import json
import ssl
import urllib.request

import pytest
from compat_tests.commands.test_bench_and_logins import settings_of
from compat_tests.rest.conftest import JSON
from compat_tests.support.guarded import GuardedOttla


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    broker = GuardedOttla(tmp_path_factory.mktemp("guarded"), {})
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def proxy_of(guarded, start_proxy, tmp_path):
    """Starts a proxy with these client settings."""

    def start(settings, *arguments):
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return start_proxy(f"localhost:{guarded.port}", "--command-config", str(file), *arguments)

    return start


def test_records_go_over_tls_and_a_login(guarded, proxy_of):
    proxy = proxy_of(settings_of(guarded))
    made = proxy.ask("POST", f"{proxy.cluster_path()}/topics", {"topic_name": "t"}, "application/json")
    assert made.status == 201, made
    # Larger than a record of TLS, so that one part is decrypted after the other.
    values = ["x" * 100_000, "y"]
    answer = proxy.ask("POST", "/topics/t", {"records": [{"value": each, "partition": 0} for each in values]}, JSON)
    assert answer.status == 200, answer
    assert [each["offset"] for each in answer.json["offsets"]] == [0, 1]
    made = proxy.ask("POST", "/consumers/g", {"format": "json", "auto.offset.reset": "earliest"}).json
    path = f"/consumers/g/instances/{made['instance_id']}"
    proxy.ask("POST", f"{path}/assignments", {"partitions": [{"topic": "t", "partition": 0}]})
    found = proxy.ask("GET", f"{path}/records", accept=JSON).json
    assert [each["value"] for each in found] == values


def test_a_wrong_password_is_said(guarded, proxy_of):
    proxy = proxy_of(settings_of(guarded, password="wrong"))
    answer = proxy.ask("GET", "/topics")
    assert (answer.status, answer.code) == (401, 40101)
    assert "wrong" not in "".join(proxy.log)


def test_a_proxy_serves_https(guarded, proxy_of):
    proxy = proxy_of(settings_of(guarded), "--certificate", str(guarded.certificates / "localhost.pem"))
    assert proxy.url.startswith("https://")
    context = ssl.create_default_context(cafile=guarded.certificates / "authority.pem")
    url = proxy.url.replace("127.0.0.1", "localhost")
    with urllib.request.urlopen(f"{url}/v3/clusters", context=context, timeout=60) as answer:
        [cluster] = json.loads(answer.read())["data"]
    assert cluster["metadata"]["self"].startswith("https://localhost:")


def test_users_of_the_proxy_log_in(bootstrap, start_proxy, tmp_path):
    users = tmp_path / "users.properties"
    users.write_text("user.alice=a password\n")
    users.chmod(0o600)
    proxy = start_proxy(bootstrap, "--users", str(users))
    assert (proxy.ask("GET", "/topics").status, proxy.ask("GET", "/topics").code) == (401, 401)
    login = base64.b64encode(b"alice:a password").decode()
    request = urllib.request.Request(f"{proxy.url}/topics", headers={"Authorization": f"Basic {login}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200
