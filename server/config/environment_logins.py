"""Logins and keys that images of Kafka take from the environment, as settings of the broker.

* KAFKA_OPTS may name a JAAS file (`-Djava.security.auth.login.config=FILE`). Its section `<listener>.KafkaServer`, in lower
  case, or else `KafkaServer`, holds a login module for each mechanism of a listener. Each becomes the setting
  `listener.name.<listener>.<mechanism>.sasl.jaas.config`, unless that is given (Kafka's JaasContext.loadServerContext).
* KAFKA_CLIENT_USERS and KAFKA_CLIENT_PASSWORDS of Bitnami's image are users of PLAIN, and SCRAM users to begin with;
  KAFKA_INTER_BROKER_USER is the user as which brokers log in at each other.
* KAFKA_SSL_KEYSTORE_FILENAME and its like name files below /etc/kafka/secrets; those of KAFKA_SSL_KEYSTORE_CREDENTIALS and its like
  have a password in them.

No message holds a password.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ottla.server.config.broker_config import ConfigError, texts_of_listener
from ottla.server.config.environment import OPTIONS, PASSWORDS, PEER_PASSWORD, PEER_USER, STORES, USERS
from ottla.server.config.jaas import JaasEntry, MalformedJaas, format_jaas, parse_jaas_file
from ottla.server.config.sasl_config import JAAS_NAME, PLAIN, SCRAM_256, SCRAM_512
from ottla.server.config.sasl_rules import LOGIN_MODULES

_JAAS_FILE = "-Djava.security.auth.login.config="
_SECTION = "KafkaServer"
FILE_BYTES_MAX = 1 << 20
SECRETS = Path("/etc/kafka/secrets")


class ScramUser(NamedTuple):
    """A user of SCRAM that a broker begins with."""

    mechanism: str
    name: str
    password: str

    def __repr__(self) -> str:
        return f"ScramUser({self.mechanism}, {self.name!r})"


def add_logins(texts: dict[str, str], variables: Mapping[str, str]) -> tuple[ScramUser, ...]:
    """Add the settings that the variables mean to `texts`, where they are not given; return SCRAM users to begin with.

    `texts` must have the listeners. `variables`: those of `FromEnvironment`. Raises ConfigError.
    """
    _add_stores(texts, variables)
    users = _users(variables)
    if users:
        _add_users(texts, users, variables.get(PEER_USER, ""))
    if (path := _jaas_file(variables.get(OPTIONS, ""))) is not None:
        _add_sections(texts, path)
    enabled = {each for listener in _listeners(texts) for each in _mechanisms(texts, listener)}
    return tuple(
        ScramUser(mechanism, name, password)
        for mechanism in (SCRAM_256, SCRAM_512)
        if mechanism in enabled
        for name, password in users.items()
    )


def _add_stores(texts: dict[str, str], variables: Mapping[str, str]) -> None:
    for variable, setting in STORES.items():
        if (name := variables.get(variable)) and setting not in texts:
            path = SECRETS / name
            texts[setting] = str(path) if setting.endswith(".location") else _text_of(path, variable).strip()


def _text_of(path: Path, variable: str) -> str:
    """Return the text of a file that `variable` names. Raises ConfigError."""
    try:
        # A device or a pipe could give bytes without an end.
        if path.exists() and not path.is_file():
            raise ConfigError(f"{variable}: {path} is not a file")
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX).decode(errors="replace")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{variable}: cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def _listeners(texts: Mapping[str, str]) -> list[str]:
    return [each.strip().partition("://")[0].lower() for each in texts.get("listeners", "").split(",")]


def _mechanisms(texts: Mapping[str, str], listener: str) -> list[str]:
    enabled = texts_of_listener(texts, listener).get("sasl.enabled.mechanisms", "")
    return [each.strip() for each in enabled.split(",")]


def _add(texts: dict[str, str], listener: str, mechanism: str, entry: JaasEntry) -> None:
    texts.setdefault(f"listener.name.{listener}.{mechanism.lower()}.{JAAS_NAME}", format_jaas(entry))


def _jaas_file(options: str) -> Path | None:
    """Return the JAAS file that options of a Java virtual machine name; None if they name none."""
    try:
        words = shlex.split(options)
    except ValueError:  # a quote without an end
        words = options.split()
    # Java takes the last one.
    paths = [each.removeprefix(_JAAS_FILE) for each in words if each.startswith(_JAAS_FILE)]
    return Path(paths[-1].removeprefix("=").removeprefix("file:")) if paths and paths[-1] else None


def _add_sections(texts: dict[str, str], path: Path) -> None:
    text = _text_of(path, OPTIONS)
    try:
        sections = parse_jaas_file(text)
    except MalformedJaas as error:
        raise ConfigError(f"{OPTIONS}: cannot read {path}: {error}") from None
    for listener in _listeners(texts):
        for entry in sections.get(f"{listener}.{_SECTION}") or sections.get(_SECTION, []):
            for mechanism in _served_by(entry):
                _add(texts, listener, mechanism, entry)


def _served_by(entry: JaasEntry) -> Iterable[str]:
    return (mechanism for mechanism, module in LOGIN_MODULES.items() if module == entry.module)


def _users(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the passwords of Bitnami's variables, by user. Raises ConfigError."""
    names, passwords = (
        [each.strip() for each in variables.get(name, "").replace(";", ",").split(",") if each.strip()]
        for name in (USERS, PASSWORDS)
    )
    if len(names) != len(passwords):
        raise ConfigError(f"{USERS} has {len(names)} users, but {PASSWORDS} has {len(passwords)} passwords")
    users = dict(zip(names, passwords, strict=True))
    if peer := variables.get(PEER_USER, ""):
        if not (password := variables.get(PEER_PASSWORD, "")):
            raise ConfigError(f"{PEER_USER} needs {PEER_PASSWORD}")
        users[peer] = password
    return users


def _add_users(texts: dict[str, str], users: Mapping[str, str], peer: str) -> None:
    own = {"username": peer, "password": users[peer]} if peer else {}
    for listener in _listeners(texts):
        for mechanism in _mechanisms(texts, listener):
            if mechanism == PLAIN:
                known = {f"user_{name}": password for name, password in users.items()}
                _add(texts, listener, mechanism, JaasEntry(LOGIN_MODULES[PLAIN], "required", own | known))
            elif mechanism in (SCRAM_256, SCRAM_512) and own:
                _add(texts, listener, mechanism, JaasEntry(LOGIN_MODULES[mechanism], "required", own))
