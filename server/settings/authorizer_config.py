"""Who decides what clients may do, and the settings of Kafka's authorizers, which no list of the broker's settings has."""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.wire.settings import BOOLEAN, STRING, Setting

CLASS_NAME = "authorizer.class.name"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"

KNOWN_CLASSES = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
"""Kafka's own authorizers, of Kafka 3.9 with ZooKeeper and of KRaft. Their rules are the same."""


def authorizer_settings() -> Mapping[str, Setting]:
    """What can be said of them to people; clients are not told of them, as Kafka does not describe them."""
    users = "Principals that may do everything, such as User:admin, separated by semicolons."
    everyone = "Whether everybody may use what no rule is about. Without an authorizer nobody is asked."
    return {
        SUPER_USERS: Setting(name=SUPER_USERS, kind=STRING, default="", doc=users),
        ALLOW_EVERYONE: Setting(name=ALLOW_EVERYONE, kind=BOOLEAN, default=False, doc=everyone),
    }


class UnknownAuthorizer(ValueError):
    """A class that is not one of Kafka's own, or principals that are none; says what to do about it."""


@dataclass(frozen=True, kw_only=True)
class AuthorizerConfig:
    """`super_users`: principals such as `User:admin`. `allow_everyone`: to resources that no rule concerns."""

    super_users: frozenset[str] = frozenset()
    allow_everyone: bool = False

    @classmethod
    def of(cls, class_name: str, texts: Mapping[str, str]) -> "AuthorizerConfig | None":
        """From the setting, and all texts that a broker is started with; None without an authorizer. Raises UnknownAuthorizer."""
        class_name = class_name.strip()
        if not class_name:
            return None
        if class_name not in KNOWN_CLASSES:
            raise UnknownAuthorizer(
                f"{CLASS_NAME}={class_name}: there is no such authorizer; allowed: {', '.join(KNOWN_CLASSES)}"
            )
        return cls(
            super_users=frozenset(_principals(texts.get(SUPER_USERS, ""))),
            # As Java reads it: anything else is false.
            allow_everyone=texts.get(ALLOW_EVERYONE, "").strip().lower() == "true",
        )


def _principals(text: str) -> list[str]:
    """Kafka's StandardAuthorizer splits at semicolons, because names of TLS clients have commas."""
    principals = [each.strip() for each in text.split(";") if each.strip()]
    for each in principals:
        if ":" not in each:
            raise UnknownAuthorizer(
                f"{SUPER_USERS}={text}: expected a string in format principalType:principalName but got {each}"
            )
    return principals
