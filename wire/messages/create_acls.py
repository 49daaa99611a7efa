"""CreateAcls (key 30): add rules to the authorizer (KIP-140).

v2 flexible   v3 resources of type USER
"""

from ottla.wire.schema import Array, Int8, Int16, Int32, Message, String, Struct, Text, field

LITERAL = 3  # the type of patterns that name one resource


class AclCreation(Struct):
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    resource_pattern_type: int = field(Int8, default=LITERAL)
    principal: str = field(String)
    host: str = field(String)
    operation: int = field(Int8)
    permission_type: int = field(Int8)


class CreateAclsRequest(Message, key=30, versions="1-3", flexible="2+"):
    creations: list[AclCreation] = field(Array(AclCreation))


class AclCreationResult(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")


class CreateAclsResponse(Message, key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: int = field(Int32, default=0)
    results: list[AclCreationResult] = field(Array(AclCreationResult))
