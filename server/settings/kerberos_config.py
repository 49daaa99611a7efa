"""Settings of GSSAPI (Kerberos). `kerberos_rules.py` has what they come to; each start loads this module, and few load that one."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.wire.settings import setting

GSSAPI = "GSSAPI"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
SERVICE_NAME = "sasl.kerberos.service.name"
RULES_NAME = "sasl.kerberos.principal.to.local.rules"


@dataclass(frozen=True, kw_only=True)
class KerberosConfig:
    """Kafka's settings that have an effect."""

    sasl_kerberos_service_name: str | None = setting(
        None,
        dynamic="per-broker",
        doc="First part of the brokers' Kerberos principal, if the JAAS line has no serviceName.",
        on_change="Nothing: how brokers log in at each other is settled when they start, by server.properties.",
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = setting(
        ("DEFAULT",),
        dynamic="per-broker",
        doc="Rules that make a user's name of a Kerberos principal.",
        on_change="Holds for the next login, also of who is connected and has to log in again.",
    )
