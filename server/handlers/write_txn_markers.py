"""WriteTxnMarkers: a transaction coordinator, or an administrator, ends transactions in the partitions of this broker."""

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.produce.markers import Port, write_markers
from ottla.wire.answers import Answer
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse


@handles(WriteTxnMarkersRequest, unmetered=True)
def write_txn_markers(
    request: WriteTxnMarkersRequest, context: RequestContext[Port]
) -> Answer[WriteTxnMarkersResponse]:
    return write_markers(context.broker, request)
