"""Kafka's types of resources, the operations on them, and authorization of clients, as handlers ask for it.

Types and operations have the numbers that they have in answers and ACLs (Kafka's ResourceType and AclOperation). Answers that say what
a client may do have bit n for operation n. An unsecured broker answers each question with one look at `authorizer`.

    may                     one resource; a check that a request asks for, so a refusal is logged
    require                 the same, and raises what Kafka answers for a resource of that type
    refusal_on_cluster      the same for the cluster as a value, with the text that Kafka's controller has
    denied_names            of many names those that are refused: `if name in denied`
    allowed_names           of many names those that are allowed, in their order, for lists that leave out the others
    may_on_any              some resource of a type, whichever (Kafka's `authorizeByResourceType`)
    authorized_operations   all that a client may do to a resource, as the bits of an answer

    decided                 go on with those names of a request that are denied: at once, or in slices if they are many
    denied_of               the same, for whoever awaits it
    hidden_topics           the same for topics that a pattern matches
    completed               change an answer, whatever form it has (`ottla.wire.answers`)

Each of them takes the context of the request, whose principal and address are checked. `quietly` is for checks that only
filter an answer; Kafka does not log these refusals either (its `logIfDenied`). Names come from the request, or from its
ids: the caller resolves the ids before the check. The cluster itself is `CLUSTER_NAME`.

A decision that was made before costs a look into a dictionary, a new one some microseconds. So a request about more than some
thousand names yields in between, as other work does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ottla.groupcoord.runtime.answers import then
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.server.dispatch.context import RequestContext
    from ottla.wire.answers import Answer


class ResourceType(IntEnum):
    """Resource types of ACLs. ANY is valid in filters only; UNKNOWN stands for numbers that Kafka does not define."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclOperation(IntEnum):
    """Operations of ACLs. ANY is valid in filters only, ALL in rules; UNKNOWN stands for undefined numbers."""

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
    """Operations that are defined for one type of resource."""

    operations: tuple[AclOperation, ...]
    bits: int

    @classmethod
    def of(cls, *operations: AclOperation) -> Operations:
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

CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of the type CLUSTER."""

REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""Kafka's error for a refusal by type of resource. Kafka has none for users."""


class Authorizer(Protocol):
    """Interface that decides what clients may do. `principal`: like `User:alice`; `host`: a slash and the address."""

    @property
    def version(self) -> int:
        """Version of the rules; each change of the rules changes it and invalidates cached decisions."""

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str, quietly: bool
    ) -> bool: ...

    def allows_on_any(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool: ...

    def operations(
        self, principal: str, host: str, candidates: Sequence[AclOperation], resource_type: ResourceType, name: str
    ) -> int:
        """Return those operations among `candidates` that are allowed, as a bit set; log nothing."""


class Guarded(Protocol):
    """Broker with an authorizer. This protocol is declared here, because `server/ports.py` imports this module."""

    @property
    def authorizer(self) -> Authorizer | None: ...


def may(
    context: RequestContext[Guarded],
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    *,
    quietly: bool = False,
) -> bool:
    """Tell whether the client may do this operation on the named resource. `quietly`: do not log the decision."""
    authorizer = context.broker.authorizer
    if authorizer is None:
        return True
    return authorizer.allows(context.principal, context.client_host, operation, resource_type, name, quietly)


def require(context: RequestContext[Guarded], operation: AclOperation, resource_type: ResourceType, name: str) -> None:
    """Raise the authorization error of this type of resource if the client may not do the operation."""
    if not may(context, operation, resource_type, name):
        raise KafkaError(REFUSALS[resource_type])


def may_on_cluster(context: RequestContext[Guarded], operation: AclOperation, *, quietly: bool = False) -> bool:
    """Tell whether the client may do this operation on the cluster. `quietly`: do not log the decision."""
    if may(context, operation, ResourceType.CLUSTER, CLUSTER_NAME, quietly=quietly):
        return True
    # What brokers ask costs them nothing. Who only says that it is one is no broker, and its quota holds (as in Kafka).
    if operation is AclOperation.CLUSTER_ACTION and context.charge is not None:
        context.charge.count()
    return False


def require_on_cluster(context: RequestContext[Guarded], operation: AclOperation) -> None:
    """Raise CLUSTER_AUTHORIZATION_FAILED if the client may not do this operation on the cluster."""
    if not may_on_cluster(context, operation):
        raise KafkaError(REFUSALS[ResourceType.CLUSTER])


def refusal_on_cluster(context: RequestContext[Guarded], operation: AclOperation, api: str) -> KafkaError | None:
    """Return the error of Kafka's controller if the client may not do this operation on the cluster, else None.

    `api`: Kafka's name of the request, such as `CreateAcls`.
    """
    if may_on_cluster(context, operation):
        return None
    return KafkaError(REFUSALS[ResourceType.CLUSTER], f"Request {api} needs {operation.name} permission.")


def denied_names(
    context: RequestContext[Guarded],
    operation: AclOperation,
    resource_type: ResourceType,
    names: Collection[str],
    *,
    quietly: bool = False,
) -> Collection[str]:
    """Return the set of names on which the client may not do this operation; empty without an authorizer."""
    authorizer = context.broker.authorizer
    if authorizer is None:
        return ()
    principal, host, allows = context.principal, context.client_host, authorizer.allows
    return {name for name in set(names) if not allows(principal, host, operation, resource_type, name, quietly)}


def allowed_names(
    context: RequestContext[Guarded],
    operation: AclOperation,
    resource_type: ResourceType,
    names: Collection[str],
    *,
    quietly: bool = True,
) -> Collection[str]:
    """Return the names on which the client may do this operation, in order; `names` itself without an authorizer."""
    if context.broker.authorizer is None:
        return names
    denied = denied_names(context, operation, resource_type, names, quietly=quietly)
    return [name for name in names if name not in denied]


def may_on_any(context: RequestContext[Guarded], operation: AclOperation, resource_type: ResourceType) -> bool:
    """Tell whether the client may do this operation on at least one resource of this type, existing or not."""
    authorizer = context.broker.authorizer
    if authorizer is None:
        return True
    return authorizer.allows_on_any(context.principal, context.client_host, operation, resource_type)


def authorized_operations(context: RequestContext[Guarded], resource_type: ResourceType, name: str) -> int:
    """Return the operations that the client may do on the resource.

    The result is a bit set: bit n stands for operation n.
    """
    everything = OPERATIONS[resource_type]
    authorizer = context.broker.authorizer
    if authorizer is None:
        return everything.bits
    return authorizer.operations(context.principal, context.client_host, everything.operations, resource_type, name)


# ---------------------------------------------------------------------- answers that rest on decisions about many names

NAMES_AT_ONCE = 200
"""A new decision takes some ten microseconds."""

HiddenTopics = Callable[[Iterable[str]], Awaitable[Collection[str]]]

T = TypeVar("T")
R = TypeVar("R")


def decided(
    context: RequestContext[Guarded],
    operation: AclOperation,
    resource_type: ResourceType,
    names: Iterable[str],
    go_on: Callable[[Collection[str]], Answer[R]],
) -> Answer[R]:
    """Call `go_on` with the names on which the client may not do this operation; return its answer.

    Each name is authorized once; very many names are authorized in time slices.
    """
    if context.broker.authorizer is None:
        return go_on(())
    different = list(dict.fromkeys(names))
    if len(different) <= NAMES_AT_ONCE:
        return go_on(denied_names(context, operation, resource_type, different))
    return _decided_in_slices(context, operation, resource_type, different, go_on)


async def _decided_in_slices(
    context: RequestContext[Guarded],
    operation: AclOperation,
    resource_type: ResourceType,
    names: Sequence[str],
    go_on: Callable[[Collection[str]], Answer[R]],
) -> Any:
    answer = go_on(await denied_of(context, operation, resource_type, names))
    return await answer if isinstance(answer, Coroutine) else answer


async def denied_of(
    context: RequestContext[Guarded],
    operation: AclOperation,
    resource_type: ResourceType,
    names: Iterable[str],
    *,
    quietly: bool = False,
) -> Collection[str]:
    """Return the names on which the client may not do this operation; authorize them in time slices."""
    if context.broker.authorizer is None:
        return ()
    different = list(dict.fromkeys(names))
    denied: set[str] = set()
    time_slice = TimeSlice()
    for start in range(0, len(different), NAMES_AT_ONCE):
        await time_slice.yield_if_over()
        piece = different[start : start + NAMES_AT_ONCE]
        denied.update(denied_names(context, operation, resource_type, piece, quietly=quietly))
    return denied


def hidden_topics(context: RequestContext[Guarded]) -> HiddenTopics | None:
    """Return a function that selects the topics that the client may not describe; None if there is no authorizer."""
    if context.broker.authorizer is None:
        return None
    return partial(denied_of, context, AclOperation.DESCRIBE, ResourceType.TOPIC, quietly=True)


def completed(answer: Answer[T], finish: Callable[[T], R]) -> Answer[R]:
    """Apply `finish` to a response, now or when it is ready. `finish` must return a message."""
    if isinstance(answer, Coroutine):
        return _completed_later(answer, finish)
    given: Any = answer
    return then(given, finish)


async def _completed_later(answer: Coroutine[Any, Any, Any], finish: Callable[[Any], R]) -> Any:
    return then(await answer, finish)
