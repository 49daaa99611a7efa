"""Brokers with everything that security needs: TLS with two kinds of keys, users of SCRAM, and rules with an authorizer.

The plaintext listener stays beside them for what is not measured, and for comparison. All listeners are on loopback.
"""

import hashlib
import subprocess
from pathlib import Path

from benchmarks.brokers import MAIN, SETTINGS, Before, Broker, Kafka, Ottla
from benchmarks.wire_client import Client
from compat_tests.support.brokers import free_port

from ottla.server.launch.certificates_command import make_certificates
from ottla.wire.messages.acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion

# Listeners by name, and what each speaks.
PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "ECDSA": "SSL", "RSA": "SSL", "SCRAM": "SASL_PLAINTEXT"}
USER, PASSWORD, SALT, ITERATIONS = "bench", "word-of-the-bench", b"salt-of-the-bench", 4096
SALTED_PASSWORD = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), SALT, ITERATIONS)
SCRAM_SHA_256 = 1
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Who administers and, in Apache Kafka, the controller; the user of SCRAM is none.
    "super.users": "User:ANONYMOUS",
}
RULES, QUOTAS, AT_ONCE = 10_000, 1_000, 500
TOPIC, LITERAL, READ, WRITE, DESCRIBE, ALLOW = 2, 3, 3, 4, 8, 3


class Secured(Broker):
    """What is the same for each make. `authorizer` stands in the subclasses that have rules."""

    authorizer = False

    def __init__(self, directory: Path) -> None:
        # Before the rest: Apache Kafka asks for the settings when it is made.
        self._ports = {name: free_port() for name in PROTOCOLS if name != "PLAINTEXT"}
        self.controller_port = free_port()
        self._stores = {"ecdsa": directory / "ecdsa" / "localhost.pem", "rsa": directory / "rsa.pem"}
        super().__init__(directory)
        make_certificates(directory / "ecdsa", ["localhost"], days=2)
        make_rsa_key(directory / "rsa.pem")

    @property
    def ports(self) -> dict[str, int]:
        """By listener."""
        return {"PLAINTEXT": self.port} | self._ports

    def bootstrap_of(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def settings(self) -> dict[str, str]:
        settings = SETTINGS | {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{spoken}" for name, spoken in PROTOCOLS.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.scram.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        }
        for name, store in self._stores.items():
            settings[f"listener.name.{name}.ssl.keystore.type"] = "PEM"
            settings[f"listener.name.{name}.ssl.keystore.location"] = str(store)
        return settings | AUTHORIZER if self.authorizer else settings


class SecuredOttla(Secured, Ottla):
    pass


class SecuredBefore(Secured, Before):
    pass


class SecuredKafka(Secured, Kafka):
    def settings(self) -> dict[str, str]:
        settings = super().settings()
        advertised = settings["listeners"]
        controller = f"127.0.0.1:{self.controller_port}"
        return settings | {
            "node.id": "0",
            "controller.quorum.voters": f"0@{controller}",
            "advertised.listeners": advertised,
            "listeners": f"{advertised},CONTROLLER://{controller}",
            "listener.security.protocol.map": f"{settings['listener.security.protocol.map']},CONTROLLER:PLAINTEXT",
        }


class RuledOttla(SecuredOttla):
    authorizer = True


class RuledBefore(SecuredBefore):
    authorizer = True


class RuledKafka(SecuredKafka):
    authorizer = True


SECURED = {Ottla: SecuredOttla, Before: SecuredBefore, Kafka: SecuredKafka}
RULED = {Ottla: RuledOttla, Before: RuledBefore, Kafka: RuledKafka}


def kinds(of: dict[type[Broker], type[Secured]]) -> list[type[Secured]]:
    return [of[kind] for kind in MAIN if not kind.missing()]


def make_rsa_key(path: Path) -> None:
    """Make a certificate for an RSA 2048 key, signed by itself. The clients of the benchmarks do not verify it."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    key, certificate = path.with_suffix(".key"), path.with_suffix(".certificate")
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    path.write_bytes(key.read_bytes() + certificate.read_bytes())


# --- what is kept ------------------------------------------------------------------------------------------------------


def add_user(broker: Broker) -> None:
    user = ScramCredentialUpsertion(
        name=USER, mechanism=SCRAM_SHA_256, iterations=ITERATIONS, salt=SALT, salted_password=SALTED_PASSWORD
    )
    with Client(broker.port) as client:
        answer = client.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[user]), 0)
    assert not answer.results[0].error_code, answer


def add_rules(broker: Broker, count: int = RULES) -> None:
    """Add `count` rules: nearly all give strangers topics of their own, three give the user of SCRAM all topics."""
    rules = [_rule(TOPIC, f"topic-{number}", f"User:stranger-{number % 100}", READ) for number in range(count - 3)]
    rules += [_rule(TOPIC, "*", f"User:{USER}", operation) for operation in (READ, WRITE, DESCRIBE)]
    with Client(broker.port) as client:
        for begin in range(0, len(rules), AT_ONCE):
            answer = client.ask(CreateAclsRequest(creations=rules[begin : begin + AT_ONCE]), 3)
            assert not any(each.error_code for each in answer.results), answer


def _rule(kind: int, name: str, principal: str, operation: int) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=LITERAL,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=ALLOW,
    )


def add_quotas(broker: Broker, count: int = QUOTAS) -> None:
    entries = [
        EntryData(
            entity=[EntityData(entity_type="user", entity_name=f"stranger-{number}")],
            ops=[OpData(key="producer_byte_rate", value=1e6, remove=False)],
        )
        for number in range(count)
    ]
    with Client(broker.port) as client:
        for begin in range(0, count, AT_ONCE):
            request = AlterClientQuotasRequest(entries=entries[begin : begin + AT_ONCE], validate_only=False)
            answer = client.ask(request, 1)
            assert not any(each.error_code for each in answer.entries), answer


# --- how clients reach it ----------------------------------------------------------------------------------------------


def properties(broker: Secured, listener: str) -> dict[str, object]:
    """librdkafka's, with underscores for dots."""
    found: dict[str, object] = {
        "bootstrap_servers": broker.bootstrap_of(listener),
        "security_protocol": PROTOCOLS[listener].lower(),
    }
    if "SSL" in PROTOCOLS[listener]:
        found["enable_ssl_certificate_verification"] = "false"
    if "SASL" in PROTOCOLS[listener]:
        found |= {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": USER, "sasl_password": PASSWORD}
    return found
