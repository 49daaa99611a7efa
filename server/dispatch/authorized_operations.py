"""Kafka's types of resources and the operations on them, as answers and ACLs number them (its ResourceType and AclOperation).

Answers that say what a client may do have bit n for operation n.
"""

from enum import IntEnum
from typing import NamedTuple


class ResourceType(IntEnum):
    """Types of resources that operations are done to. ANY stands in filters, UNKNOWN for numbers that say nothing here."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclOperation(IntEnum):
    """Kafka's operations on resources. ANY stands in filters, ALL in rules, UNKNOWN for numbers that say nothing here."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Operations(NamedTuple):
    """All operations that exist for a type of resource."""

    operations: tuple[AclOperation, ...]
    bits: int

    @classmethod
    def of(cls, *operations: AclOperation) -> "Operations":
        return cls(operations, sum(1 << operation for operation in operations))


OPERATIONS = {
    ResourceType.TOPIC: Operations.of(
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: Operations.of(
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: Operations.of(
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: Operations.of(
        AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.TWO_PHASE_COMMIT
    ),
    ResourceType.DELEGATION_TOKEN: Operations.of(AclOperation.DESCRIBE),
    ResourceType.USER: Operations.of(AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}

OPERATIONS_NOT_ASKED = -(1 << 31)
