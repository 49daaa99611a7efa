"""Creates the topics, gives each role its rights, and limits two of them by quotas.

python grant.py FOLDER [--principal User:CN={}] [--replicas 3] [--no-quotas]
"""

import argparse
from pathlib import Path

import roles
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType
from kafka.errors import for_code
from kafka.protocol.admin import AlterClientQuotasRequest

PARTITIONS = {roles.CLICKS: 4, roles.COUNTS: 1, roles.DEAD: 1}


def create_topics(admin: KafkaAdminClient, replicas: int) -> None:
    """The three topics; the data is of January, and must not fall to the default retention."""
    forever = {"retention.ms": "-1"}
    admin.create_topics(
        {
            name: {"num_partitions": count, "replication_factor": replicas, "configs": forever}
            for name, count in PARTITIONS.items()
        }
    )


def rule(principal: str, operation: str, kind: str, name: str) -> ACL:
    """One right of a role from every host. Topics are named; groups are by prefix, as Spark makes their names up."""
    how = ACLResourcePatternType.PREFIXED if kind == "GROUP" else ACLResourcePatternType.LITERAL
    resource = ResourcePattern(ResourceType[kind], name, how)
    return ACL(principal, "*", ACLOperation[operation], ACLPermissionType.ALLOW, resource)


def add_rules(admin: KafkaAdminClient, principal: str) -> int:
    """Allow what `roles.RIGHTS` lists; returns the number of rules."""
    rules = [rule(principal.format(role), *right) for role, rights in roles.RIGHTS.items() for right in rights]
    if failed := admin.create_acls(rules)["failed"]:
        raise RuntimeError(f"rules were refused: {failed}")
    return len(rules)


def set_quotas(admin: KafkaAdminClient, principal: str) -> None:
    """Limit roles by `roles.QUOTAS`. kafka-python has the request, and no method of its own for it."""
    request = AlterClientQuotasRequest(
        entries=[
            # The entity is a user, whose name comes without `User:`.
            ([("user", principal.format(role).removeprefix("User:"))], [(key, rate, False)])
            for role, (key, rate) in roles.QUOTAS.items()
        ],
        validate_only=False,
    )
    for entry in admin._manager.run(admin._manager.send, request).entries:
        if entry.error_code:
            raise for_code(entry.error_code)(entry.error_message)


def main() -> None:
    parser = argparse.ArgumentParser(description="Create topics, rules and quotas.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--principal", default="User:{}", help="how brokers call the user of a role")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--no-quotas", action="store_true", help="limit nobody")
    options = parser.parse_args()
    admin = KafkaAdminClient(**roles.for_kafka_python(options.folder, roles.ADMIN))
    try:
        create_topics(admin, options.replicas)
        count = add_rules(admin, options.principal)
        if not options.no_quotas:
            set_quotas(admin, options.principal)
    finally:
        admin.close()
    quotas = 0 if options.no_quotas else len(roles.QUOTAS)
    print(f"{len(PARTITIONS)} topics, {count} rules, {quotas} quotas")


if __name__ == "__main__":
    main()
