"""AlterUserScramCredentials (key 51): give SCRAM credentials to users, and take them (KIP-554)."""

from ottla.wire.schema import Array, Bytes, Int8, Int16, Int32, Message, String, Struct, Text, field


class ScramCredentialDeletion(Struct):
    name: str = field(String)
    mechanism: int = field(Int8)


class ScramCredentialUpsertion(Struct):
    name: str = field(String)
    mechanism: int = field(Int8)
    iterations: int = field(Int32)
    salt: bytes = field(Bytes)
    salted_password: bytes = field(Bytes)


class AlterUserScramCredentialsRequest(Message, key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = field(Array(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = field(Array(ScramCredentialUpsertion))


class AlterUserScramCredentialsResult(Struct):
    user: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")


class AlterUserScramCredentialsResponse(Message, key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    results: list[AlterUserScramCredentialsResult] = field(Array(AlterUserScramCredentialsResult))
