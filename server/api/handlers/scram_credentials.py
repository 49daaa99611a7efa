"""SCRAM credentials of users (KIP-554): AlterUserScramCredentials and DescribeUserScramCredentials."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from ottla.server.broker import Broker
from ottla.server.dispatch.access import AclOperation, may_on_cluster, refusal_on_cluster
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import each_in_slices
from ottla.server.security.scram_credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    TYPES,
    credential_of,
    encode_credential,
)
from ottla.server.security.scram_users import user_entity
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.server.cluster.entity_configs import EntityConfigs
    from ottla.server.config.repository import Texts
    from ottla.server.security.scram_users import ScramUsers

USERS_MAX = 1_000
Alteration = ScramCredentialDeletion | ScramCredentialUpsertion


@handles(AlterUserScramCredentialsRequest)
async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext[Broker]
) -> AlterUserScramCredentialsResponse:
    """AlterUserScramCredentials: set and delete users' SCRAM credentials (KIP-554).

    Behaviour
    * The client needs the right to alter the cluster.
    * Each user has one result. A user that comes twice is not changed at all: it gets DUPLICATE_RESOURCE, or the error
      of its first change.
    * Deleting a missing credential gets RESOURCE_NOT_FOUND. An empty name, and too few or too many iterations, get
      UNACCEPTABLE_CREDENTIAL.
    * When the response is sent, the credential is stored and valid at this broker; the other brokers follow within a
      moment. Connections that are logged in stay logged in.
    * The broker never sees a password: clients send it salted and hashed. A request may name 1,000 users, because each
      is written separately.
    """
    alterations: list[Alteration] = [*request.deletions, *request.upsertions]
    named = Counter(each.name for each in alterations)
    denied = refusal_on_cluster(context, AclOperation.ALTER, "AlterUserScramCredentials")
    if denied is not None:
        refused = [
            AlterUserScramCredentialsResult(user=name, error_code=denied.code, error_message=denied.message)
            for name in sorted(named)
        ]
        return AlterUserScramCredentialsResponse(results=refused)
    entities = context.broker.administration.settings.entities
    by_name = {each.name: each for each in reversed(alterations)}  # the first one of each name
    results = []
    time_slice = TimeSlice()
    for name, alteration in reversed(by_name.items()):
        await time_slice.yield_if_over()
        error = None
        try:
            if len(named) > USERS_MAX:
                raise KafkaError(ErrorCode.POLICY_VIOLATION, f"A request may name {USERS_MAX} users.")
            await _alter(entities, alteration, is_twice=named[name] > 1)
        except KafkaError as raised:
            error = raised.code, raised.message
        code, message = error or (ErrorCode.NONE, None)
        results.append(AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message))
    return AlterUserScramCredentialsResponse(results=results)


async def _alter(entities: EntityConfigs, alteration: Alteration, *, is_twice: bool) -> None:
    if not alteration.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = TYPES.get(alteration.mechanism)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(alteration, ScramCredentialDeletion):
        change = partial(_without, mechanism)
    else:
        change = partial(_with, mechanism, _credential(mechanism, alteration))

    def checked(texts: Texts) -> Texts:
        changed = change(texts)
        # Kafka looks first whether the change that comes first is right.
        if is_twice:
            message = "A user credential cannot be altered twice in the same request"
            raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
        return changed

    await entities.alter(user_entity(alteration.name), checked)


def _credential(mechanism: str, wanted: ScramCredentialUpsertion) -> str:
    if wanted.iterations < ITERATIONS_MIN:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if wanted.iterations > ITERATIONS_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    salted, salt = bytes(wanted.salted_password), bytes(wanted.salt)
    if not salted:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, None)  # as Kafka, whose library takes no empty key
    return encode_credential(credential_of(mechanism, salted, salt, wanted.iterations))


def _with(mechanism: str, credential: str, texts: Texts) -> Texts:
    return {**texts, mechanism: credential}


def _without(mechanism: str, texts: Texts) -> Texts:
    if mechanism not in texts:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return {name: text for name, text in texts.items() if name != mechanism}


TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "
UNKNOWN = "Attempt to describe a user credential that does not exist: "


@handles(DescribeUserScramCredentialsRequest)
async def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext[Broker]
) -> DescribeUserScramCredentialsResponse:
    """DescribeUserScramCredentials: list users' SCRAM mechanisms and iterations (KIP-554).

    Behaviour
    * The client needs the right to describe the cluster.
    * Null and an empty list mean all users with credentials.
    * A user that is named twice gets DUPLICATE_RESOURCE, a user without credentials RESOURCE_NOT_FOUND; the response
      has each user once.
    * Any broker answers from its own copy of the stored values, which may lag behind by a moment.
    """
    if not may_on_cluster(context, AclOperation.DESCRIBE):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        # Kafka answers once for each user that is asked for, without the name.
        nameless = DescribeUserScramCredentialsResult(user="", error_code=code, error_message=None, credential_infos=[])
        return DescribeUserScramCredentialsResponse(
            error_code=code, error_message=None, results=[nameless] * len(request.users or ())
        )
    users = context.broker.scram_users
    named = Counter(each.name for each in request.users or ()) or Counter(list(users))
    results = await each_in_slices(list(named), lambda name: _result(users, name, is_twice=named[name] > 1))
    return DescribeUserScramCredentialsResponse(error_code=ErrorCode.NONE, error_message="", results=results)


def _result(users: ScramUsers, name: str, *, is_twice: bool) -> DescribeUserScramCredentialsResult:
    known = users.of(name)
    if is_twice:
        return _refused(name, ErrorCode.DUPLICATE_RESOURCE, TWICE)
    if not known:
        return _refused(name, ErrorCode.RESOURCE_NOT_FOUND, UNKNOWN)
    infos = [
        CredentialInfo(mechanism=number, iterations=known[mechanism].iterations)
        for number, mechanism in TYPES.items()
        if mechanism in known
    ]
    return DescribeUserScramCredentialsResult(
        user=name, error_code=ErrorCode.NONE, error_message="", credential_infos=infos
    )


def _refused(name: str, error: ErrorCode, message: str) -> DescribeUserScramCredentialsResult:
    told = KafkaError(error, message + name).message  # which cuts a long name
    return DescribeUserScramCredentialsResult(user=name, error_code=error, error_message=told, credential_infos=[])
