"""DeleteAcls (key 31): remove the rules of the authorizer that filters find (KIP-140).

v2 flexible   v3 resources of type USER
"""

from ottla.wire.schema import Array, Int8, Int16, Int32, Message, String, Struct, Text, field

LITERAL = 3  # the type of patterns that name one resource


class DeleteAclsFilter(Struct):
    resource_type_filter: int = field(Int8)
    resource_name_filter: str | None = field(String, nullable="0+")
    pattern_type_filter: int = field(Int8, default=LITERAL)
    principal_filter: str | None = field(String, nullable="0+")
    host_filter: str | None = field(String, nullable="0+")
    operation: int = field(Int8)
    permission_type: int = field(Int8)


class DeleteAclsRequest(Message, key=31, versions="1-3", flexible="2+"):
    filters: list[DeleteAclsFilter] = field(Array(DeleteAclsFilter))


class DeleteAclsMatchingAcl(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    pattern_type: int = field(Int8, default=LITERAL)
    principal: str = field(String)
    host: str = field(String)
    operation: int = field(Int8)
    permission_type: int = field(Int8)


class DeleteAclsFilterResult(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = field(Array(DeleteAclsMatchingAcl))


class DeleteAclsResponse(Message, key=31, versions="1-3", flexible="2+"):
    throttle_time_ms: int = field(Int32, default=0)
    filter_results: list[DeleteAclsFilterResult] = field(Array(DeleteAclsFilterResult))
