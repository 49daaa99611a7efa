"""DescribeUserScramCredentials (key 50): which SCRAM credentials users have (KIP-554). No credential is told."""

from ottla.wire.schema import Array, Int8, Int16, Int32, Message, String, Struct, Text, field


class UserName(Struct):
    name: str = field(String)


class DescribeUserScramCredentialsRequest(Message, key=50, versions="0", flexible="0+"):
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
