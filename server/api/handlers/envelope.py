"""Envelope: another broker hands a client's request on to this one, which is the controller (KIP-590).

Behaviour
* A client without the right to ClusterAction gets CLUSTER_AUTHORIZATION_FAILED.
* At a broker that is not the controller, or ceases to be it meanwhile: NOT_CONTROLLER. The other broker tries again.
* The request is answered as if its client had asked here: rights, quotas and names are those of the client. Its answer is in
  the answer, with the time that the client has to pause.
* A principal that cannot be read is PRINCIPAL_DESERIALIZATION_FAILURE, an address INVALID_REQUEST. So is a request that is
  not the controller's affair, an Envelope among them. One that is not served, or cannot be read, is UNSUPPORTED_VERSION.
* A request that meets a bug is UNKNOWN_SERVER_ERROR, and so is the client's answer then.
* ApiVersions does not advertise this request to clients, and on listeners that are not for brokers it is refused.
"""

from __future__ import annotations

import socket
import struct
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.groupcoord.runtime.answers import finished
from ottla.server.broker import Broker
from ottla.server.cluster.forwarding import carried_out
from ottla.server.dispatch.access import AclOperation, require_on_cluster
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import CloseConnection, all_routes, handles
from ottla.server.network.calls import Call, made_call
from ottla.server.network.large_requests import LARGE_FRAME_BYTES, check_large, encode_large, error_answer, handle_large
from ottla.server.network.sliced_work import QueuedWork, WorkQueue, free_in_slices, is_short
from ottla.server.network.throttling import Throttling, Timed
from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation
from ottla.wire.headers import (
    decode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse, decode_principal

if TYPE_CHECKING:
    from ottla.wire.answers import Answer

_head = struct.Struct(">hh").unpack_from  # api key, api version


@handles(EnvelopeRequest)
async def envelope(request: EnvelopeRequest, context: RequestContext[Broker]) -> EnvelopeResponse:
    require_on_cluster(context, AclOperation.CLUSTER_ACTION)
    if context.broker.member.controller is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    client = _client(request, context)
    data = request.request_data
    call = await _call(data)
    try:
        header, start = decode_request_header(
            data, 0, len(data), request_header_version(call.route.request_class, call.version)
        )
        client.client_id, client.api_version = header.client_id or "", call.version
        response = await _answered(call, data, start, client)
    except ProtocolViolation:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION) from None
    except CloseConnection:  # it is another broker's, whose other clients have done nothing
        raise KafkaError(ErrorCode.INVALID_REQUEST) from None
    except KafkaError:
        raise
    except Exception as error:  # noqa: BLE001 - logged here; without an answer the other broker would try again and again
        await context.report_bug_of(client, error)
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    if response is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    head = encode_response_header(header.correlation_id, response_header_version(call.response_class, call.version))
    return EnvelopeResponse(response_data=b"".join([head, *await _encoded(call, response)]), error_code=ErrorCode.NONE)


def _client(request: EnvelopeRequest, context: RequestContext[Broker]) -> RequestContext[Broker]:
    """Return the context of the client whose request was forwarded, from what the forwarding broker says of it."""
    try:
        principal = decode_principal(request.request_principal or b"")
    except ProtocolViolation:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE) from None
    packed = request.client_host_address
    try:
        host = socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST) from None
    client: RequestContext[Broker] = RequestContext(
        context.broker,
        client_host=f"/{host}",
        principal=f"{principal.type}:{principal.name}",
        listener_name=principal.listener_name or context.listener_name,
        security_protocol=principal.security_protocol or context.security_protocol,
        now_ms=context.broker.now_ms(),
    )
    client.is_forwarded, client.is_token_authenticated = True, principal.token_authenticated
    return client


async def _call(data: bytes) -> Call:
    """Return the call for the forwarded request that begins with these bytes."""
    if len(data) < 4:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    api_key, version = _head(data)
    route = all_routes().get(api_key)
    if route is not None and not route.forwarded:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    # Whether clients may send older versions was decided where this request came in.
    if route is None or version not in route.served(has_older=True):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return await made_call(route, version)


async def _answered(call: Call, data: bytes, start: int, client: RequestContext[Broker]) -> Any:
    """Serve the forwarded request, charge its client's quotas, and return the response.

    None: this broker is no longer the controller. Raises ProtocolViolation if the request cannot be decoded.
    """
    quotas, began = client.broker.quotas, time.monotonic()
    throttling = Throttling(quotas)
    charge = throttling.begin(call, client, len(data)) if quotas.is_on else None
    work = carried_out(partial(_begun, call, data, start, client))
    # What it costs this broker is the client's, too.
    response = await (work if charge is None else QueuedWork(Timed(work, charge), WorkQueue()))
    call.route.note_time(time.monotonic() - began)
    return response if charge is None or response is None else throttling.settle(call, response, charge)


def _begun(call: Call, data: bytes, start: int, client: RequestContext[Broker]) -> Answer[Any]:
    if len(data) - start > LARGE_FRAME_BYTES:
        check_large(call, len(data) - start)
        return handle_large(call, data[start:], client, lambda: False, lambda: None)
    call.route.request_count += 1
    call.route.request_bytes += len(data)
    return _handled(call, call.decode(data, start, len(data)), client)


async def _handled(call: Call, request: Any, client: RequestContext[Broker]) -> Any:
    try:
        return await finished(call.handler(request, client))
    except KafkaError as error:
        return await finished(error_answer(call, error, request))


async def _encoded(call: Call, response: Any) -> list[Any]:
    if is_short(response):
        return call.encoded(response)
    parts = await encode_large(call, response)
    encoded = [response]
    del response  # the list is the last to hold it
    await free_in_slices(encoded)
    return parts
