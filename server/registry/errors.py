"""Errors of the API by Confluent's codes; the first three digits are the status.

Source: Confluent's reference of the API, and `Errors.java` of its registry.
"""

from __future__ import annotations

import json
from enum import IntEnum


class Code(IntEnum):
    """Error codes of the registry."""

    UNAUTHORIZED = 40101
    FORBIDDEN = 40301
    SUBJECT_NOT_FOUND = 40401
    VERSION_NOT_FOUND = 40402
    SCHEMA_NOT_FOUND = 40403
    SUBJECT_SOFT_DELETED = 40404
    SUBJECT_NOT_SOFT_DELETED = 40405
    VERSION_SOFT_DELETED = 40406
    VERSION_NOT_SOFT_DELETED = 40407
    COMPATIBILITY_NOT_CONFIGURED = 40408
    MODE_NOT_CONFIGURED = 40409
    ASSOCIATION_NOT_FOUND = 40410
    INCOMPATIBLE_SCHEMA = 40901
    INVALID_SCHEMA = 42201
    INVALID_VERSION = 42202
    INVALID_COMPATIBILITY = 42203
    INVALID_MODE = 42204
    OPERATION_NOT_PERMITTED = 42205
    REFERENCE_EXISTS = 42206
    INVALID_SUBJECT = 42208
    SCHEMA_TOO_LARGE = 42209
    INVALID_RULE_SET = 42210
    CONTEXT_NOT_EMPTY = 42211
    STORE = 50001
    TIMEOUT = 50002
    FORWARDING = 50003
    UNKNOWN_LEADER = 50004


class ApiError(Exception):
    """Refusal of an API request. `code` is a member of `Code`, or an HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = int(code)

    @property
    def status(self) -> int:
        """HTTP status of the response; 500 for codes of failures in the server, such as failed forwarding."""
        status = self.code if self.code < 1000 else self.code // 100
        return 500 if status > 500 and self.code > 1000 else status

    @property
    def body(self) -> bytes:
        # The message may repeat what somebody has sent, such as a lone surrogate.
        return json.dumps({"error_code": self.code, "message": str(self)}).encode()


def subject_not_found(subject: str) -> ApiError:
    return ApiError(Code.SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> ApiError:
    return ApiError(Code.VERSION_NOT_FOUND, f"Version {version} not found.")


def schema_not_found(which: int | str | None = None) -> ApiError:
    return ApiError(Code.SCHEMA_NOT_FOUND, "Schema not found" if which is None else f"Schema {which} not found")


def invalid_version(text: str) -> ApiError:
    return ApiError(
        Code.INVALID_VERSION,
        f"The specified version '{text}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def invalid_subject(subject: str) -> ApiError:
    return ApiError(Code.INVALID_SUBJECT, f"The specified subject '{subject}' is not a valid.")


def invalid_schema(text: str) -> ApiError:
    return ApiError(Code.INVALID_SCHEMA, text)


def not_permitted(text: str) -> ApiError:
    return ApiError(Code.OPERATION_NOT_PERMITTED, text)


def reference_exists(subject: str, version: int) -> ApiError:
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return ApiError(Code.REFERENCE_EXISTS, f"One or more references exist to the schema {key}.")
