"""A broker with rules at which an administrator and some users log in by SASL/PLAIN, and how they do it."""

from compat_tests.support.wire_client import WireClient

ADMIN = "admin"
USERS = tuple(f"user-{number}" for number in range(12))
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def password_of(user: str) -> str:
    return f"word-of-{user}"


_LOGINS = " ".join(f'user_{user}="{password_of(user)}"' for user in (ADMIN, *USERS))
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Apache Kafka's controller is spoken to on a listener of its own, on which nobody logs in.
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{MODULE} required username="{ADMIN}" password="{password_of(ADMIN)}" {_LOGINS};'
    ),
}
"""The settings of such a broker. Whatever its release, it obeys its rules as Kafka's StandardAuthorizer does."""


def log_in(client: WireClient, user: str) -> None:
    client.log_in(user, password_of(user))
