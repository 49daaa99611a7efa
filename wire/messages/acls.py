"""Rules of the authorizer: CreateAcls, DescribeAcls and DeleteAcls."""

from ottla.wire.schema import Array, Int8, Int16, Int32, Message, String, Struct, Text, field

LITERAL = 3  # the type of patterns that name one resource


class AclCreation(Struct):
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    resource_pattern_type: int = field(Int8, versions="1+", default=LITERAL)
    principal: str = field(String)
    host: str = field(String)
    operation: int = field(Int8)
    permission_type: int = field(Int8)


class CreateAclsRequest(Message, key=30, versions="0-3", flexible="2+"):
    """CreateAcls (key 30): add rules to the authorizer (KIP-140). v1 types of patterns; v2 flexible; v3 type USER."""

    creations: list[AclCreation] = field(Array(AclCreation))


class AclCreationResult(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")


class CreateAclsResponse(Message, key=30, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(Int32, default=0)
    results: list[AclCreationResult] = field(Array(AclCreationResult))


class DescribeAclsRequest(Message, key=29, versions="0-3", flexible="2+"):
    """DescribeAcls (key 29): return matching rules (KIP-140). v1 types of patterns; v2 flexible; v3 type USER."""

    resource_type_filter: int = field(Int8)
    resource_name_filter: str | None = field(String, nullable="0+")
    pattern_type_filter: int = field(Int8, versions="1+", default=LITERAL)
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
    pattern_type: int = field(Int8, versions="1+", default=LITERAL)
    acls: list[AclDescription] = field(Array(AclDescription))


class DescribeAclsResponse(Message, key=29, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    resources: list[DescribeAclsResource] = field(Array(DescribeAclsResource))


class DeleteAclsFilter(Struct):
    resource_type_filter: int = field(Int8)
    resource_name_filter: str | None = field(String, nullable="0+")
    pattern_type_filter: int = field(Int8, versions="1+", default=LITERAL)
    principal_filter: str | None = field(String, nullable="0+")
    host_filter: str | None = field(String, nullable="0+")
    operation: int = field(Int8)
    permission_type: int = field(Int8)


class DeleteAclsRequest(Message, key=31, versions="0-3", flexible="2+"):
    """DeleteAcls (key 31): delete matching rules (KIP-140). v1 types of patterns; v2 flexible; v3 type USER."""

    filters: list[DeleteAclsFilter] = field(Array(DeleteAclsFilter))


class DeleteAclsMatchingAcl(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    pattern_type: int = field(Int8, versions="1+", default=LITERAL)
    principal: str = field(String)
    host: str = field(String)
    operation: int = field(Int8)
    permission_type: int = field(Int8)


class DeleteAclsFilterResult(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = field(Array(DeleteAclsMatchingAcl))


class DeleteAclsResponse(Message, key=31, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(Int32, default=0)
    filter_results: list[DeleteAclsFilterResult] = field(Array(DeleteAclsFilterResult))
