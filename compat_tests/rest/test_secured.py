"""A proxy whose brokers encrypt and want a login, and that encrypts itself."""

import base64
import json
import ssl
import urllib.request

import pytest
from compat_tests.commands.test_bench_and_logins import settings_of
from compat_tests.rest.conftest import JSON, Instance
from compat_tests.support.brokers import wait_until
from compat_tests.support.guarded import DESCRIBE, GROUP, READ, TOPIC, WRITE, GuardedOttla, password_of


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
    instance = Instance(proxy, "g", format="json", **{"auto.offset.reset": "earliest"})
    instance.ask("POST", "/assignments", {"partitions": [{"topic": "t", "partition": 0}]})
    assert [each["value"] for each in instance.until(2)] == values


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


def test_rules_of_the_brokers_decide_about_users_whose_logins_are_passed_on(guarded, proxy_of):
    settings = {name: text for name, text in settings_of(guarded).items() if name != "sasl.jaas.config"}
    proxy = proxy_of({**settings, "sasl.mechanism": "PLAIN"}, "--propagate-logins")
    reader, writer = "kcat", "spark"
    guarded.allow(reader, [(READ, TOPIC, "passed"), (DESCRIBE, TOPIC, "passed"), (READ, GROUP, "readers")])
    guarded.allow(writer, [(WRITE, TOPIC, "passed"), (DESCRIBE, TOPIC, "passed")])

    def ask(user, method, path, content=None, kind=JSON, accept=None, password=None):
        encoded = base64.b64encode(f"{user}:{password or password_of(user)}".encode()).decode()
        headers = {"Authorization": f"Basic {encoded}", "Accept": accept or "*/*", "Content-Type": kind}
        connection = proxy.connection()
        connection.request(method, path, None if content is None else json.dumps(content), headers)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, json.loads(body) if body else None

    assert proxy.ask("GET", "/topics").status == 401
    status, told = ask(reader, "GET", "/topics", password="wrong")
    assert (status, told["error_code"]) == (401, 40101)
    _, clusters = ask("admin", "GET", "/v3/clusters")
    topics = f"/v3/clusters/{clusters['data'][0]['cluster_id']}/topics"
    wanted = {"topic_name": "passed", "partitions_count": 1}
    assert ask(writer, "POST", topics, wanted, "application/json")[0] == 403
    assert ask("admin", "POST", topics, wanted, "application/json")[0] == 201
    record = {"records": [{"value": 1}]}
    status, told = ask(writer, "POST", "/topics/passed", record)
    assert (status, told["offsets"][0]["error_code"]) == (200, None)
    status, told = ask(reader, "POST", "/topics/passed", record)
    assert (status, told["offsets"][0]["error_code"]) == (403, 40301)
    # An instance belongs to its user.
    made = {"name": "i", "format": "json", "auto.offset.reset": "earliest"}
    assert ask(reader, "POST", "/consumers/readers", made)[0] == 200
    path = "/consumers/readers/instances/i"
    assert ask(reader, "POST", f"{path}/subscription", {"topics": ["passed"]})[0] == 204
    assert ask(writer, "GET", f"{path}/records", accept=JSON)[0] == 404
    found = []

    def has_read():
        status, told = ask(reader, "GET", f"{path}/records", accept=JSON)
        assert status == 200, told
        found.extend(each["value"] for each in told)
        return found

    wait_until(has_read, "the record is read")
    assert found == [1]
    assert ask(reader, "DELETE", path)[0] == 204
    log = "".join(proxy.log)
    assert password_of(reader) not in log and password_of(writer) not in log
