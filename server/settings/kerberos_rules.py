"""What the settings of GSSAPI come to: the keys of a listener. Loaded only where a listener has it.

`kerberos_keys` reads the JAAS line as Java's Krb5LoginModule and Kafka's KerberosLogin do:

    com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true
        keyTab="/etc/security/kafka.keytab" principal="kafka/broker.example@EXAMPLE" serviceName=kafka;

Without keyTab the keys are where Kerberos' own configuration has them. A ticket cache is not looked at: a broker needs keys in any
case, and gets its own tickets by them. What Kerberos itself is told is in krb5.conf (KRB5_CONFIG in the environment).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.server.settings.kerberos_config import SERVICE_NAME
from ottla.wire.settings import InvalidSetting

if TYPE_CHECKING:
    from ottla.server.settings.jaas import JaasEntry


@dataclass(frozen=True, kw_only=True)
class KerberosKeys:
    """The keys of one listener. `keytab` None: where Kerberos' own configuration has them."""

    principal: str
    keytab: Path | None
    service_name: str
    """Of the other brokers, when this one logs in at them."""
    initiates: bool
    """Whether the line lets this broker log in at others, too."""


@dataclass(frozen=True, kw_only=True)
class KerberosOfListener:
    """What a listener takes tickets for, and the rules that name its users."""

    keys: KerberosKeys
    rules: tuple[str, ...]


def kerberos_keys(jaas: JaasEntry, service_name: str | None, line: str) -> KerberosKeys:
    """What the JAAS line of a listener, a setting of the name `line`, says. InvalidSetting."""
    options = jaas.options
    found = options.get("serviceName")
    if found is not None and service_name is not None and found != service_name:
        raise _wrong(
            line,
            "Conflicting serviceName values found in JAAS and Kafka configs"
            f" value in JAAS file {found}, value in Kafka config {service_name}",
        )
    if not (service := found or service_name):
        raise _wrong(line, f"No serviceName defined in either JAAS or Kafka config ({SERVICE_NAME})")
    if not _is_true(options, "useKeyTab"):
        # With a ticket or a password alone, as Java allows, nobody can accept tickets.
        raise _wrong(line, "useKeyTab=true is needed, so that tickets of clients can be accepted")
    if not _is_true(options, "storeKey"):
        raise _wrong(line, "storeKey=true is needed, so that tickets of clients can be accepted")
    if not (principal := options.get("principal", "").strip()) or principal == "*":
        raise _wrong(line, "principal has to be given, such as kafka/broker.example@EXAMPLE")
    return KerberosKeys(
        principal=principal,
        keytab=_path(options.get("keyTab", "").strip()),
        service_name=service,
        initiates=options.get("isInitiator", "true").lower() == "true",
    )


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() == "true"


def _path(text: str) -> Path | None:
    """The file that keyTab names, which may be with FILE: before it, as Java takes it."""
    for prefix in ("FILE:", "file:"):
        text = text.removeprefix(prefix)
    return Path(text) if text else None


def check_package(name: str) -> None:
    """InvalidSetting, of the setting of that name: the package that knows Kerberos is not there."""
    from importlib.util import find_spec

    if find_spec("gssapi") is None:
        raise _wrong(name, "GSSAPI needs the package gssapi: pip install 'ottla[gssapi]', or python3-gssapi of Debian")


def check_keytab(keys: KerberosKeys, line: str) -> None:
    """Refuse a start with a file of keys that cannot be read."""
    if keys.keytab is None:
        return
    try:
        # A pipe would hold whoever opens it.
        if not keys.keytab.is_file():
            raise OSError(None, "it is no file" if keys.keytab.exists() else "there is no such file")
        keys.keytab.open("rb").close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _wrong(line, f"keyTab {keys.keytab} cannot be read: {reason}") from None


def _wrong(name: str, reason: str) -> InvalidSetting:
    return InvalidSetting(name, "[hidden]", reason, message=f"{name}: {reason}")
