"""DescribeDelegationToken (key 41): which tokens there are, with what logs in by them (KIP-48).

v2 flexible   v3 who asked for a token (KIP-373)
"""

from ottla.wire.schema import Array, Bytes, Int16, Int32, Int64, Message, String, Struct, field


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = field(String)
    principal_name: str = field(String)


class DescribeDelegationTokenRequest(Message, key=41, versions="1-3", flexible="2+"):
    owners: list[DescribeDelegationTokenOwner] | None = field(Array(DescribeDelegationTokenOwner), nullable="0+")


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = field(String)
    principal_name: str = field(String)


class DescribedDelegationToken(Struct):
    principal_type: str = field(String)
    principal_name: str = field(String)
    token_requester_principal_type: str = field(String, versions="3+", default="")
    token_requester_principal_name: str = field(String, versions="3+", default="")
    issue_timestamp: int = field(Int64)
    expiry_timestamp: int = field(Int64)
    max_timestamp: int = field(Int64)
    token_id: str = field(String)
    hmac: bytes = field(Bytes)
    renewers: list[DescribedDelegationTokenRenewer] = field(Array(DescribedDelegationTokenRenewer))


class DescribeDelegationTokenResponse(Message, key=41, versions="1-3", flexible="2+"):
    error_code: int = field(Int16)
    tokens: list[DescribedDelegationToken] = field(Array(DescribedDelegationToken))
    throttle_time_ms: int = field(Int32, default=0)
