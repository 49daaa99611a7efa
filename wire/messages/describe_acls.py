"""DescribeAcls (key 29): the rules of the authorizer that a filter finds (KIP-140).

v2 flexible   v3 resources of type USER
"""

from ottla.wire.schema import Array, Int8, Int16, Int32, Message, String, Struct, Text, field

LITERAL = 3  # the type of patterns that name one resource


class DescribeAclsRequest(Message, key=29, versions="1-3", flexible="2+"):
    resource_type_filter: int = field(Int8)
    resource_name_filter: str | None = field(String, nullable="0+")
    pattern_type_filter: int = field(Int8, default=LITERAL)
    principal_filter: str | None = field(String, nullable="0+")
    host_filter: str | None = field(String, nullable="0+")
    operation: int = field(Int8)
    permission_type: int = field(Int8)


class AclDescription(Struct):
    principal: str = field(String)
    host: str = field(String)
    operation: int = field(Int8)
    permission_type: int = field(Int8)


class DescribeAclsResource(Struct):
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    pattern_type: int = field(Int8, default=LITERAL)
    acls: list[AclDescription] = field(Array(AclDescription))


class DescribeAclsResponse(Message, key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    resources: list[DescribeAclsResource] = field(Array(DescribeAclsResource))
