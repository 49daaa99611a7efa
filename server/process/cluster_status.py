"""What `ottla cluster status` shows: the brokers of a running cluster, and who leads each partition and who is in sync.

The command that runs the cluster knows its processes; the rest says one of the brokers, asked as any client asks (Metadata).
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ottla.server.process.cluster_control import STATUS, Asked, Unanswered, ask
from ottla.server.process.log_lines import shown
from ottla.wire.errors import ErrorCode, ProtocolViolation
from ottla.wire.headers import RequestHeader, encode_request_header
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponsePartition

ASKED_S: Final = 3.0
ANSWER_BYTES_MAX: Final = 100 * 1024 * 1024
PARTITIONS_SHOWN_MAX: Final = 1_000
METADATA_VERSION: Final = 12
_CLIENT_ID: Final = "ottla-cluster-status"
_NOBODY: Final = -1


def cluster_status(folder: Path) -> list[str]:
    """Lines for the user. Raises Unanswered if no cluster runs in this folder."""
    told = ask(folder, Asked(STATUS), timeout_s=ASKED_S)
    brokers = told["brokers"]
    metadata, problem = None, "no broker runs"
    for broker in (each for each in brokers if each["serves"]):
        try:
            metadata = ask_metadata(broker["host"], broker["port"], _context(told.get("secure")))
            break
        except (OSError, ProtocolViolation) as error:
            problem = f"broker {broker['number']} does not say: {error}"
    return [*broker_lines(brokers, metadata), "", *topic_lines(metadata, problem)]


def _context(secure: str | None) -> ssl.SSLContext | None:
    if secure is None:
        return None
    from ottla.server.process.secured_cluster import NotSecured, Secured

    try:
        return Secured(Path(secure)).client_context()
    except NotSecured as error:
        raise Unanswered(str(error)) from None


def ask_metadata(host: str, port: int, context: ssl.SSLContext | None) -> MetadataResponse:
    """Everything about all topics. OSError: nobody answers in time. ProtocolViolation: somebody else does."""
    header = encode_request_header(RequestHeader(MetadataRequest.api_key, METADATA_VERSION, 1, _CLIENT_ID), 2)
    request = header + MetadataRequest(topics=None, allow_auto_topic_creation=False).encode(METADATA_VERSION)
    with socket.create_connection((host, port), timeout=ASKED_S) as plain:
        connection = plain if context is None else context.wrap_socket(plain, server_hostname=host)
        with connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _received(connection, 4))
            if not 5 <= size <= ANSWER_BYTES_MAX:
                raise ProtocolViolation(f"an answer of {size} bytes")
            return MetadataResponse.decode(_received(connection, size), METADATA_VERSION, 5, size)


def _received(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(min(size - len(received), 1 << 20))
        if not chunk:
            raise ConnectionResetError("it closes the connection")
        received += chunk
    return bytes(received)


def broker_lines(brokers: Sequence[Mapping[str, Any]], metadata: MetadataResponse | None) -> list[str]:
    """One line a broker: where it is, whether it runs, and how many partitions it leads."""
    leads: dict[int, int] = {}
    for _, partition in _partitions(metadata):
        leads[partition.leader_id] = leads.get(partition.leader_id, 0) + 1
    controller = None if metadata is None else metadata.controller_id
    rows = [("broker", "address", "leads", "state")]
    for broker in brokers:
        number = broker["number"]
        state = broker["state"] + (", is the controller" if number == controller else "")
        count = "?" if metadata is None else str(leads.get(number, 0))
        rows.append((str(number), f"{broker['host']}:{broker['port']}", count, shown(state)))
    return _table(rows)


def topic_lines(metadata: MetadataResponse | None, problem: str) -> list[str]:
    """One line a partition, those that miss replicas marked; or why nothing is known."""
    if metadata is None:
        return [f"leaders are not known: {problem}"]
    if not metadata.topics:
        return ["there are no topics yet"]
    rows = [("topic", "partition", "leader", "replicas", "in sync", "")]
    partitions = sorted(_partitions(metadata), key=lambda each: (each[0], each[1].partition_index))
    for name, partition in partitions[:PARTITIONS_SHOWN_MAX]:
        rows.append((shown(name), *_cells(partition)))
    left = len(partitions) - PARTITIONS_SHOWN_MAX
    return _table(rows) + ([f"and {left} partitions more"] if left > 0 else [])


def _cells(partition: MetadataResponsePartition) -> tuple[str, str, str, str, str]:
    leader = "none" if partition.leader_id == _NOBODY else str(partition.leader_id)
    missing = len(partition.replica_nodes) - len(partition.isr_nodes)
    mark = "offline" if partition.leader_id == _NOBODY else "under-replicated" if missing > 0 else ""
    return str(partition.partition_index), leader, _listed(partition.replica_nodes), _listed(partition.isr_nodes), mark


def _listed(node_ids: Sequence[int]) -> str:
    return ",".join(map(str, node_ids)) or "none"


def _partitions(metadata: MetadataResponse | None) -> Iterator[tuple[str, MetadataResponsePartition]]:
    for topic in [] if metadata is None else metadata.topics:
        if topic.error_code == ErrorCode.NONE:
            for partition in topic.partitions:
                yield topic.name or "", partition


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
