"""CreateDelegationToken (key 38): make a token that logs in for its owner (KIP-48).

v2 flexible   v3 an owner other than who asks (KIP-373)
"""

from ottla.wire.schema import Array, Bytes, Int16, Int32, Int64, Message, String, Struct, field


class CreatableRenewers(Struct):
    principal_type: str = field(String)
    principal_name: str = field(String)


class CreateDelegationTokenRequest(Message, key=38, versions="1-3", flexible="2+"):
    owner_principal_type: str | None = field(String, versions="3+", nullable="3+", default="")
    owner_principal_name: str | None = field(String, versions="3+", nullable="3+", default="")
    renewers: list[CreatableRenewers] = field(Array(CreatableRenewers))
    max_lifetime_ms: int = field(Int64)


class CreateDelegationTokenResponse(Message, key=38, versions="1-3", flexible="2+"):
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
