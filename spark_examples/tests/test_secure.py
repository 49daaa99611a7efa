"""The secured pipeline: equal though quotas hold it back, each refusal as its README says; on a cluster, equal though one of each is killed."""

import os
import stat
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

for package in ("cryptography", "kafka", "pyspark"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install '.[spark,security]')", allow_module_level=True)

from spark_examples.tests.programs import HERE, programs_of

example = programs_of("secure")
check, expected, refused, roles = example.check, example.expected, example.refused, example.roles

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:unclosed:ResourceWarning"),
]


def test_the_example_says_equal(run_example):
    """Each refusal is compared by the run itself: a right too many ends it."""
    told = run_example("secure")
    assert told.splitlines()[-1] == "equal"
    for role in roles.QUOTAS:
        assert f"a quota held {role} back for up to " in told
    for name, error in refused.EXPECTED.items():
        assert f"  {name}: {error}" in told


@pytest.mark.long
def test_a_cluster_with_kills(run_example):
    """The result is equal though a broker, a worker and the driver are killed."""
    told = run_example("secure", "cluster")
    assert told.splitlines()[-1] == "equal"
    for killed in ("which takes the counts, was killed", "a worker was killed", "the driver was killed"):
        assert killed in told


def test_the_readme_has_the_errors():
    readme = (HERE / "secure" / "README.md").read_text()
    assert [error for error in refused.EXPECTED.values() if error not in readme] == []


def test_an_error_is_that_of_the_client_behind_sparks():
    class Error(refused.PySparkException):
        def __init__(self) -> None: ...

        def __str__(self) -> str:
            return "Job aborted\nCaused by: org.apache.kafka.common.errors.TopicAuthorizationException: Not you\n\tat"

    def fail() -> None:
        raise Error

    assert refused.error_of(fail) == "TopicAuthorizationException: Not you"
    assert refused.error_of(lambda: None) == "none"


def test_a_role_is_a_file_of_its_user_alone(tmp_path):
    jaas = 'ScramLoginModule required username="shop" password="a=b";'
    settings = {
        "bootstrap.servers": "one:1,two:2",
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": "/authority.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": jaas,
    }
    roles.write(tmp_path, roles.SHOP, settings)
    assert stat.S_IMODE(os.stat(roles.file_of(tmp_path, roles.SHOP)).st_mode) == 0o600
    assert roles.settings_of(tmp_path, roles.SHOP) == settings
    assert roles.for_spark(tmp_path, roles.SHOP)["kafka.sasl.jaas.config"] == jaas
    assert roles.for_kafka_python(tmp_path, roles.SHOP) == {
        "bootstrap_servers": ["one:1", "two:2"],
        "security_protocol": "SASL_SSL",
        "ssl_cafile": "/authority.pem",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "shop",
        "sasl_plain_password": "a=b",
    }


@pytest.mark.parametrize("earlier", ["data", "brokers"])
def test_a_folder_with_an_earlier_run_is_left_alone(earlier, tmp_path, monkeypatch):
    (tmp_path / earlier).mkdir()
    for program in (example.broker, example.cluster):
        monkeypatch.setattr("sys.argv", ["program", str(tmp_path), "true"])
        with pytest.raises(SystemExit, match="holds an earlier run"):
            program.main()
    assert [path.name for path in tmp_path.iterdir()] == [earlier]


def test_a_difference_is_told(monkeypatch, capsys):
    click = b'{"id": "1", "user": "u", "page": "/", "time": "2026-01-01T00:00:03.5Z"}'
    key = b"/ 2026-01-01T00:00:00Z"
    topics = {
        roles.CLICKS: [record(roles.CLICKS, 0, value=click), record(roles.CLICKS, 1, value=None)],
        roles.COUNTS: [record(roles.COUNTS, 0, key, b'{"clicks": 1}')],
        roles.DEAD: [record(roles.DEAD, 0, b"clicks-0-1", None)],
    }
    monkeypatch.setattr(expected, "records", lambda folder, topic: topics[topic])
    assert check.problems(Path()) == []
    topics[roles.COUNTS].append(record(roles.COUNTS, 1, key, b'{"clicks": 2}'))
    topics[roles.DEAD].clear()
    assert check.problems(Path()) == ["counts", "records that were written again", "dead letters"]


def record(topic: str, offset: int, key: bytes | None = None, value: bytes | None = None) -> SimpleNamespace:
    return SimpleNamespace(topic=topic, partition=0, offset=offset, key=key, value=value)
