"""Options of `ottla rest` that cannot be used are told in one line."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.server.cli.client.output import UsageError
from ottla.server.rest.command import _config, add_arguments


def config_of(*arguments: str) -> object:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return _config(parser.parse_args(arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--propagate-logins"], "needs security.protocol=SASL_SSL or SASL_PLAINTEXT"),
        (["--propagate-logins", "-X", "security.protocol=SASL_SSL"], "and sasl.mechanism=PLAIN or SCRAM"),
        (
            ["--propagate-logins", "-X", "security.protocol=SASL_SSL", "-X", "sasl.mechanism=OAUTHBEARER"],
            "and sasl.mechanism=PLAIN or SCRAM",
        ),
        (["--registry", "localhost:8081"], "must be http://HOST:PORT or https://HOST:PORT"),
        (["--registry", "http://me:secret@localhost"], "without a login in it"),
        (["--registry", "http://a,ftp://b"], "--registry ftp://b"),
        (["--registry", "http://a:port"], "--registry http://a:port"),
    ],
)
def test_what_cannot_be_used_is_told(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config_of(*arguments)


def test_a_registry_is_named_by_confluents_settings(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "schema.registry.url=http://a:1, http://b:2/below\nschema.registry.basic.auth.user.info=me:secret\n"
    )
    config = config_of("--command-config", str(file))
    assert list(config.registry.urls) == ["http://a:1", "http://b:2/below"]  # type: ignore[attr-defined]
    assert config.registry.user_info == "me:secret"  # type: ignore[attr-defined]
    assert "secret" not in repr(config)
    config = config_of("--command-config", str(file), "--registry", "https://c")
    assert list(config.registry.urls) == ["https://c"]  # type: ignore[attr-defined]


def test_logins_are_passed_on_without_one_of_the_proxy() -> None:
    login = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=SCRAM-SHA-512"]
    config = config_of("--propagate-logins", *login)
    assert config.propagates and config.security.login.mechanism == "SCRAM-SHA-512"  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="needs a user"):
        config_of(*login)


def test_a_start_imports_neither_settings_of_brokers_nor_libraries_of_schemas() -> None:
    modules = "ottla.server.rest.command, ottla.server.config.loggers, ottla.server.rest.serving"
    unwanted = (
        "avro", "google.protobuf", "jsonschema", "ottla.groupcoord.config", "ottla.server.config.repository",
        "ottla.server.rest.propagation", "ottla.server.rest.schemas", "proto_schema_parser",
    )  # fmt: skip
    script = f"import sys, {modules}; print(*(each for each in {unwanted!r} if each in sys.modules))"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.split() == []
