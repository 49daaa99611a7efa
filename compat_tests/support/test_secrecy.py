"""Passwords are found in settings, and a broker whose log or answer has one does not pass."""

import sys
from pathlib import Path

import pytest
from compat_tests.support import secrecy
from compat_tests.support.brokers import OttlaProcess
from compat_tests.support.secrecy import secrets_of

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
KEY = "-----BEGIN PRIVATE KEY----- MIIEvQIBADANBgkq -----END PRIVATE KEY-----"


def test_passwords_are_found_in_settings() -> None:
    settings = {
        "listener.name.x.plain.sasl.jaas.config": f"""{MODULE} required username="somebody" password="of somebody"
            user_alice='of "alice" here' user_bob="short";""",
        "listener.name.x.ssl.keystore.password": "of the keystore",
        "ssl.keystore.key": KEY,
        "ssl.keystore.location": "/not/a/password",
        "super.users": "User:somebody",
    }
    assert secrets_of(settings) == {"of somebody", 'of "alice" here', "of the keystore", "MIIEvQIBADANBgkq"}


class Talkative(OttlaProcess):
    """Writes what it should not, and ends as it is told to."""

    def command(self) -> list[str]:
        code = "import signal, sys; signal.signal(15, lambda *_: sys.exit(0)); print(sys.argv[1], flush=True); signal.pause()"
        return [sys.executable, "-c", code, f"listening on 127.0.0.1:1 with {self.settings['ssl.key.password']}"]


def test_a_broker_that_logs_a_password_does_not_pass(tmp_path: Path) -> None:
    broker = Talkative(tmp_path, {"ssl.key.password": "hunter2-hunter2"})
    broker.start()
    with pytest.raises(AssertionError, match="log has the passwords"):
        broker.stop()
    assert secrecy.told(b"...hunter2-hunter2...") == [b"hunter2-hunter2"]
    assert secrecy.told(b"...hunter2...") == []
