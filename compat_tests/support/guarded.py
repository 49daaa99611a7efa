"""A broker on which one has to log in over TLS and may do what rules allow, and how each client is told to log in there."""

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from compat_tests.support.brokers import OttlaProcess
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ottla.server.launch.certificates_command import make_certificates

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC
MODULES = "org.apache.kafka.common.security"
ADMIN, WITH_PLAIN = "admin", ("kcat", "spark")

Right = tuple[AclOperation, ResourceType, str]


def password_of(user: str) -> str:
    return f"word-of-{user}"


class GuardedOttla(OttlaProcess):
    """SASL_SSL, Kafka's StandardAuthorizer, and a user `admin` who may do everything. Passwords are never in its log."""

    protocol = "SASL_SSL"

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self.certificates = directory / "certificates"
        make_certificates(self.certificates, ["localhost"], days=2)
        users = " ".join(f'user_{user}="{password_of(user)}"' for user in (ADMIN, *WITH_PLAIN))
        guard = {
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {users};",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates / "localhost.pem"),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN}",
            "auto.create.topics.enable": "false",
        }
        super().__init__(directory, guard | settings)

    def terminate(self) -> None:
        self.__dict__.pop("admin", None)  # which would go on looking for it
        super().terminate()

    @property
    def authority(self) -> str:
        """The path of the certificate that clients trust."""
        return str(self.certificates / "authority.pem")

    # --- how to log in

    def librdkafka(self, user: str, mechanism: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.authority,
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password_of(user),
        }

    def kafka_python(self, user: str, mechanism: str) -> dict[str, Any]:
        """For aiokafka as well, which wants an `ssl_context` in place of the file."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": self.authority,
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": password_of(user),
        }

    def java(self, user: str, mechanism: str) -> dict[str, str]:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{MODULES}.{module} required username="{user}" password="{password_of(user)}";',
        }

    # --- users and rules

    @functools.cached_property
    def admin(self) -> AdminClient:
        return AdminClient(self.librdkafka(ADMIN, "PLAIN"))

    def add_user(self, user: str) -> None:
        """With credentials for both kinds of SCRAM."""
        self.secrets.add(password_of(user))
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            wanted = UserScramCredentialUpsertion(user, ScramCredentialInfo(kind, 4096), password_of(user).encode())
            self.admin.alter_user_scram_credentials([wanted])[user].result(60)

    def allow(self, user: str, rights: Iterable[Right]) -> None:
        """In force when this returns, because there is one broker."""
        rules = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
            for operation, kind, name in rights
        ]
        for made in self.admin.create_acls(rules).values():
            made.result(60)

    def refused(self, user: str) -> list[str]:
        """The lines of the log about what the user was refused."""
        return [line for line in self.log.splitlines() if "is Denied" in line and f"User:{user}" in line]
