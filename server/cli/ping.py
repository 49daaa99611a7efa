"""ottla ping [HOST:PORT,... | -b HOST:PORT,... | --settings-from-environment] [--tls] [--wait] [--timeout SECONDS]

A health check: it speaks to one broker without any client library, and without a login.
"""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import struct
import time

from ottla.server.cli.command_line import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    ONE_ADDRESS,
    add_address,
    fail,
    is_number,
    seconds,
)

DEFAULT_ADDRESS = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "OTTLA_BOOTSTRAP_SERVERS"  # as in `on_cluster`, which a health check need not import
TIMEOUT_S = 3.0
AGAIN_S = 0.05
MOMENT_S = 0.001  # 0 would mean not to wait, and to fail in another way
CORRELATION_ID = 0x07714A
_API_VERSIONS, _NO_CLIENT_ID = 18, -1
# Version 0 of ApiVersions: length, api key, version, correlation id, client id; then length, correlation id, error code.
_QUESTION = struct.pack(">ihhih", 10, _API_VERSIONS, 0, CORRELATION_ID, _NO_CLIENT_ID)
_ANSWER = struct.Struct(">iih")
_FRAME_MAX = 1 << 20

DESCRIPTION = """\
Asks a broker for the versions that it speaks. Exit code 0: it answers; 1: it does not, and one line on stderr says why. It is
asked before anybody would have to log in. With --tls the connection is encrypted; the certificate is not looked at. Of several brokers
each is asked in turn until one answers.

With --settings-from-environment, as in containers, it asks the broker that `ottla start --settings-from-environment` runs.
"""
EXAMPLES = f"""\
examples:
  ottla ping                                     the broker at {DEFAULT_ADDRESS}
  ottla ping --wait --timeout 30                 until a broker that has just been started answers
  ottla ping broker1.example:9093 --tls --timeout 10
  ottla ping broker1.example:9092,broker2.example:9092
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla ping`: the broker's address and the options."""
    add_address(parser, f"the broker, or several with commas (default: ${BOOTSTRAP_VARIABLE}, or {DEFAULT_ADDRESS})")
    parser.add_argument("-b", "--bootstrap-server", metavar="HOST:PORT", help="the broker, as other commands name it")
    variables = "ask the listener that variables such as OTTLA_LISTENERS or KAFKA_LISTENERS name, as in a container"
    parser.add_argument("--settings-from-environment", action="store_true", help=variables)
    parser.add_argument("--tls", action="store_true", help="the listener encrypts")
    parser.add_argument("--wait", action="store_true", help="ask again until it answers or the time is up")
    wait = f"wait so long (default: {TIMEOUT_S:g})"
    parser.add_argument("--timeout", type=seconds, default=TIMEOUT_S, metavar="SECONDS", help=wait)


def run(options: argparse.Namespace) -> int:
    """Ping the broker once or, with --wait, until it answers or the timeout ends; return the exit code."""
    if options.address and options.bootstrap_server:
        return fail(ONE_ADDRESS, EXIT_USAGE)
    address, encrypted = options.address or options.bootstrap_server, options.tls
    if options.settings_from_environment:
        from ottla.server.config.broker_config import ConfigError  # a plain ping needs no settings
        from ottla.server.config.environment import address_to_ask

        if address is not None:
            return fail("either HOST:PORT or --settings-from-environment", EXIT_USAGE)
        try:
            address, encrypted = address_to_ask(os.environ)
        except ConfigError as error:
            return fail(str(error), EXIT_USAGE)
    address = address or os.environ.get(BOOTSTRAP_VARIABLE, "").strip() or DEFAULT_ADDRESS
    brokers: dict[str, tuple[str, int]] = {}
    for each in filter(None, (part.strip() for part in address.split(","))):
        host, separator, port = each.rpartition(":")
        if not separator or not is_number(port, 5) or not 0 < int(port) < 65536:
            return fail(f"{each}: must be HOST:PORT", EXIT_USAGE)
        brokers[each] = host.strip("[]") or "127.0.0.1", int(port)
    if not brokers:
        return fail(f"{address}: must be HOST:PORT", EXIT_USAGE)
    end_s = time.monotonic() + options.timeout
    while True:
        reasons = []
        for index, (name, place) in enumerate(brokers.items()):
            # Each of those that are left gets its share of the time, so that one that hangs does not take it all.
            share_s = (end_s - time.monotonic()) / (len(brokers) - index)
            try:
                _ask(*place, max(share_s, MOMENT_S), encrypted=encrypted)
            except (OSError, ValueError) as error:
                reasons.append(f"{name} does not answer: {_reason(error)}")
            else:
                print(f"{name} answers")
                return EXIT_OK
        if not options.wait or time.monotonic() + AGAIN_S >= end_s:
            return fail("; ".join(reasons), EXIT_FAILED)
        time.sleep(AGAIN_S)


def _ask(host: str, port: int, timeout_s: float, *, encrypted: bool) -> None:
    """Send an ApiVersions request and check the response. Raises OSError or ValueError."""
    deadline_s = time.monotonic() + timeout_s
    plain = socket.create_connection((host, port), timeout=timeout_s)
    with plain, _encrypted(plain) if encrypted else plain as sock:
        sock.sendall(_QUESTION)
        answer = b""
        while len(answer) < _ANSWER.size:
            sock.settimeout(max(deadline_s - time.monotonic(), MOMENT_S))
            piece = sock.recv(_ANSWER.size - len(answer))
            if not piece:
                raise ValueError("the connection was closed")
            answer += piece
    length, correlation_id, error_code = _ANSWER.unpack(answer)
    if not _ANSWER.size - 4 <= length <= _FRAME_MAX or correlation_id != CORRELATION_ID:
        raise ValueError("this is no Kafka broker, or its listener encrypts (--tls)")
    if error_code != 0:
        raise ValueError(f"error code {error_code}")


def _encrypted(sock: socket.socket) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(sock)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
