"""`ottla bench`, and commands at a broker where one has to encrypt and log in."""

import pytest
from compat_tests.support.guarded import ADMIN, MODULES, GuardedOttla, password_of
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from ottla.server.cli.cli import main


def test_a_load_is_written_and_read_and_leaves_nothing(ottla):
    load = ("--records", "2501", "--size", "1000", "--partitions", "2", "--round-trips", "5", "-z", "lz4")
    found = ottla("bench", *load, "--json").json
    assert (found["version"], found["records"], found["size"], found["partitions"]) == ("4.4", 2501, 1000, 2)
    assert found["write"]["records"] == found["read"]["records"] == 2501
    assert min(found["write"]["records_per_s"], found["read"]["records_per_s"], found["round_trip_ms"]["50"]) > 0
    assert found["write"]["request_ms"]["50"] <= found["write"]["request_ms"]["99"]
    told = ottla("bench", *load, "--acks", "0").out
    assert "2,501 records of 1,000 bytes, 2 partitions, 1 replicas, acks=0, compression lz4" in told
    assert "ottla-bench" not in ottla("topics").out
    assert "INVALID_REPLICATION_FACTOR" in ottla("bench", "--replicas", "9", status=1).err


# --- TLS and logins


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    broker = GuardedOttla(tmp_path_factory.mktemp("guarded"), {})
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def tell(guarded, tmp_path, capsys):
    """Runs a command with these client settings."""
    names = iter(range(100))

    def run(*arguments: str, settings: dict[str, str], status: int = 0) -> str:
        path = tmp_path / f"client-{next(names)}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        where = ("-b", f"localhost:{guarded.port}", "--command-config", str(path), "--timeout", "60")
        code = main([arguments[0], *where, *arguments[1:]])
        out, err = capsys.readouterr()
        assert code == status, out + err
        return out + err

    return run


def settings_of(guarded, mechanism="PLAIN", user=ADMIN, password=None):
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    password = password or password_of(user)
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(guarded.certificates / "authority.pem"),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{MODULES}.{module} required username="{user}" password="{password}";',
    }


def test_a_client_logs_in_over_tls(guarded, tell, tmp_path):
    settings = settings_of(guarded)
    tell("topics", "create", "mine", settings=settings)
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    tell("produce", "mine", "-l", str(lines), settings=settings)
    assert tell("consume", "mine", "-e", "-q", settings=settings) == "one\ntwo\n"
    assert guarded.bootstrap in tell("status", settings=settings)
    _add_scram_user(guarded)
    scram = settings_of(guarded, "SCRAM-SHA-512", "user", "word")
    assert "TOPIC" in tell("topics", settings=scram)
    assert "TOPIC_AUTHORIZATION_FAILED" in tell("topics", "describe", "mine", settings=scram, status=1)


def _add_scram_user(guarded):
    admin = AdminClient(
        {
            "bootstrap.servers": f"localhost:{guarded.port}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(guarded.certificates / "authority.pem"),
            "sasl.mechanism": "PLAIN",
            "sasl.username": ADMIN,
            "sasl.password": password_of(ADMIN),
        }
    )
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion("user", credential, b"word")
    [answer] = admin.alter_user_scram_credentials([change]).values()
    answer.result(60)


def test_what_is_wrong_with_a_login_is_told(guarded, tell, bootstrap, capsys):
    settings = settings_of(guarded)
    for wrong, words in (
        (settings_of(guarded, password="wrong"), "refuses the login by PLAIN"),
        (settings_of(guarded, "SCRAM-SHA-256", "nobody"), "refuses the login by SCRAM-SHA-256"),
        ({}, "does this listener want TLS or a login"),
        (settings | {"security.protocol": "SASL_PLAINTEXT"}, "TLS"),
        (settings | {"security.protocol": "SSL"}, "want a login"),
        ({key: text for key, text in settings.items() if "truststore" not in key}, "its certificate is refused"),
    ):
        told = tell("status", settings=wrong, status=1)
        assert words in told and told.count("\n") == 1
    assert main(["status", "-b", bootstrap, "--timeout", "60", "-X", "security.protocol=SSL"]) == 1
    assert "no TLS connection" in capsys.readouterr().err
