"""Delegation tokens (KIP-48): CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken."""

from ottla.wire.schema import Array, Bytes, Int16, Int32, Int64, Message, String, Struct, field


class CreatableRenewers(Struct):
    principal_type: str = field(String)
    principal_name: str = field(String)


class CreateDelegationTokenRequest(Message, key=38, versions="0-3", flexible="2+"):
    """CreateDelegationToken (key 38): create an owner's token (KIP-48). v2 flexible; v3 for another owner (KIP-373)."""

    owner_principal_type: str | None = field(String, versions="3+", nullable="3+", default="")
    owner_principal_name: str | None = field(String, versions="3+", nullable="3+", default="")
    renewers: list[CreatableRenewers] = field(Array(CreatableRenewers))
    max_lifetime_ms: int = field(Int64)


class CreateDelegationTokenResponse(Message, key=38, versions="0-3", flexible="2+"):
    error_code: int = field(Int16)
    principal_type: str = field(String)
    principal_name: str = field(String)
    token_requester_principal_type: str = field(String, versions="3+", default="")
    token_requester_principal_name: str = field(String, versions="3+", default="")
    issue_timestamp_ms: int = field(Int64)
    expiry_timestamp_ms: int = field(Int64)
    max_timestamp_ms: int = field(Int64)
    token_id: str = field(String)
    hmac: bytes = field(Bytes)
    throttle_time_ms: int = field(Int32, default=0)


class RenewDelegationTokenRequest(Message, key=39, versions="0-2", flexible="2+"):
    """RenewDelegationToken (key 39): extend the lifetime of a token (KIP-48). v2 flexible."""

    hmac: bytes = field(Bytes)
    renew_period_ms: int = field(Int64)


class RenewDelegationTokenResponse(Message, key=39, versions="0-2", flexible="2+"):
    error_code: int = field(Int16)
    expiry_timestamp_ms: int = field(Int64)
    throttle_time_ms: int = field(Int32, default=0)


class ExpireDelegationTokenRequest(Message, key=40, versions="0-2", flexible="2+"):
    """ExpireDelegationToken (key 40): change a token's expiry, or delete it immediately (KIP-48). v2 flexible."""

    hmac: bytes = field(Bytes)
    expiry_time_period_ms: int = field(Int64)


class ExpireDelegationTokenResponse(Message, key=40, versions="0-2", flexible="2+"):
    error_code: int = field(Int16)
    expiry_timestamp_ms: int = field(Int64)
    throttle_time_ms: int = field(Int32, default=0)


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = field(String)
    principal_name: str = field(String)


class DescribeDelegationTokenRequest(Message, key=41, versions="0-3", flexible="2+"):
    """DescribeDelegationToken (key 41): describe tokens (KIP-48). v2 flexible; v3 the token's requester (KIP-373)."""

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


class DescribeDelegationTokenResponse(Message, key=41, versions="0-3", flexible="2+"):
    error_code: int = field(Int16)
    tokens: list[DescribedDelegationToken] = field(Array(DescribedDelegationToken))
    throttle_time_ms: int = field(Int32, default=0)
