"""DescribeQuorum: who keeps Kafka's metadata. Nobody does here, and a client is told so.

Behaviour
* Only for those who may describe the cluster.
* UNSUPPORTED_VERSION for the whole request, whatever it names: a broker that is alone has its coordination tree in a journal, of
  which nobody votes. It is advertised all the same, as by every broker of Kafka 4, because clients guess a broker's release by
  what it advertises. Java's Admin raises what it raises where the request is not served, UnsupportedVersionException.
"""

from __future__ import annotations

from ottla.server.broker import Broker
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.dispatch.no_quorum import denied_by_broker
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

NO_QUORUM = KafkaError(ErrorCode.UNSUPPORTED_VERSION, "This broker is alone, and has no metadata quorum.")


@handles(DescribeQuorumRequest)
def describe_quorum(request: DescribeQuorumRequest, context: RequestContext[Broker]) -> DescribeQuorumResponse:
    error = denied_by_broker(context, AclOperation.DESCRIBE) or NO_QUORUM
    return DescribeQuorumResponse(error_code=error.code, error_message=error.message, topics=[])
