"""Errors of the HTTP API by Confluent's codes; the first three digits of a long one are the status.

Source: Confluent's reference of the API, `Errors.java` of its proxy, and `KafkaExceptionMapper.java` of its rest-utils.
"""

from __future__ import annotations

import json
from enum import IntEnum

from ottla.wire.errors import ErrorCode


class Code(IntEnum):
    """Error codes of the proxy."""

    OK = 200
    BAD_REQUEST = 400
    INVALID_CONSUMER_CONSTRAINT = 40001
    KAFKA_BAD_REQUEST = 40002
    KAFKA_AUTHENTICATION = 40101
    KAFKA_AUTHORIZATION = 40301
    NOT_FOUND = 404
    TOPIC_NOT_FOUND = 40401
    PARTITION_NOT_FOUND = 40402
    CONSUMER_INSTANCE_NOT_FOUND = 40403
    UNKNOWN_TOPIC_OR_PARTITION = 40403  # of the third version; the second one has it for instances
    LEADER_NOT_AVAILABLE = 40404
    CONSUMER_FORMAT_MISMATCH = 40601
    SERIALIZATION = 40801
    CONSUMER_ALREADY_SUBSCRIBED = 40901
    CONSUMER_ALREADY_EXISTS = 40902
    ILLEGAL_STATE = 40903
    UNSUPPORTED_MEDIA_TYPE = 415
    UNPROCESSABLE = 422
    KEY_SCHEMA_MISSING = 42201
    VALUE_SCHEMA_MISSING = 42202
    JSON_CONVERSION = 42203
    INVALID_CONSUMER_CONFIG = 42204
    INVALID_SCHEMA = 42205
    INVALID_PAYLOAD = 42206
    MESSAGE_SERIALIZATION = 42207
    BATCH = 42208
    TOO_MANY_REQUESTS = 429
    INTERNAL = 500
    KAFKA = 50002
    KAFKA_RETRIABLE = 50003
    BROKER_NOT_AVAILABLE = 50302


class RestError(Exception):
    """Refusal of a request by the proxy. `code`: a member of `Code`, or an HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = int(code)

    @property
    def status(self) -> int:
        """HTTP status of the response."""
        return self.code if self.code < 1000 else self.code // 100

    @property
    def body(self) -> bytes:
        # The message may repeat what somebody has sent, such as a lone surrogate.
        return json.dumps({"error_code": self.code, "message": str(self)}).encode()


def topic_not_found() -> RestError:
    return RestError(Code.TOPIC_NOT_FOUND, "Topic not found.")


def partition_not_found() -> RestError:
    return RestError(Code.PARTITION_NOT_FOUND, "Partition not found.")


def instance_not_found() -> RestError:
    return RestError(Code.CONSUMER_INSTANCE_NOT_FOUND, "Consumer instance not found.")


def unprocessable(message: str) -> RestError:
    return RestError(Code.UNPROCESSABLE, message)


def bad_request(message: str) -> RestError:
    return RestError(Code.BAD_REQUEST, message)


def illegal_state(message: str) -> RestError:
    return RestError(Code.ILLEGAL_STATE, f"Illegal state: {message}")


_AUTHENTICATION = (ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
_BAD_REQUESTS = (
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.SECURITY_DISABLED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.INVALID_CONFIG,
    # Java's exception of these is a kind of the ones before.
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)


def code_of(error: ErrorCode) -> int:
    """Convert a Kafka error to an error code of the proxy."""
    if error in _AUTHENTICATION:
        return Code.KAFKA_AUTHENTICATION
    if error.name.endswith("AUTHORIZATION_FAILED"):
        return Code.KAFKA_AUTHORIZATION
    if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    if error == ErrorCode.BROKER_NOT_AVAILABLE:
        return Code.BROKER_NOT_AVAILABLE
    if error in _BAD_REQUESTS:
        return Code.KAFKA_BAD_REQUEST
    return Code.KAFKA_RETRIABLE if error.retriable else Code.KAFKA


class KafkaFailure(RestError):
    """Error that a broker has sent in a response."""

    def __init__(self, number: int, message: str | None = None) -> None:
        self.error = ErrorCode.of(number)
        super().__init__(code_of(self.error), message or self.error.message)


class Unreachable(RestError):
    """Error: a broker was not reached, or did not respond in time. `is_sent`: it may have processed the request."""

    def __init__(self, message: str, *, is_sent: bool = False) -> None:
        self.is_sent = is_sent
        super().__init__(Code.KAFKA_RETRIABLE, message)


def check(number: int, message: str | None = None) -> None:
    """Raise KafkaFailure if `number`, an error code, is not 0."""
    if number:
        raise KafkaFailure(number, message)
