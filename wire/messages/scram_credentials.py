"""SCRAM credentials of users (KIP-554): AlterUserScramCredentials and DescribeUserScramCredentials."""

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
    """AlterUserScramCredentials (key 51): set and delete users' SCRAM credentials (KIP-554)."""

    deletions: list[ScramCredentialDeletion] = field(Array(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = field(Array(ScramCredentialUpsertion))


class AlterUserScramCredentialsResult(Struct):
    user: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")


class AlterUserScramCredentialsResponse(Message, key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    results: list[AlterUserScramCredentialsResult] = field(Array(AlterUserScramCredentialsResult))


class UserName(Struct):
    name: str = field(String)


class DescribeUserScramCredentialsRequest(Message, key=50, versions="0", flexible="0+"):
    """DescribeUserScramCredentials (key 50): return users' SCRAM mechanisms and iterations, no secrets (KIP-554)."""

    users: list[UserName] | None = field(Array(UserName), nullable="0+")


class CredentialInfo(Struct):
    mechanism: int = field(Int8)
    iterations: int = field(Int32)


class DescribeUserScramCredentialsResult(Struct):
    user: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    credential_infos: list[CredentialInfo] = field(Array(CredentialInfo))


class DescribeUserScramCredentialsResponse(Message, key=50, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = field(Array(DescribeUserScramCredentialsResult))
