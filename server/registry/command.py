"""ottla registry --listen HOST:PORT [-b BROKERS] [--users FILE] [--certificate FILE]

The line "registry at URL" goes to stdout when the topic has been read; the log goes to stderr.
"""

from __future__ import annotations

import argparse
import gc
import socket
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.server.cli import http_service
from ottla.server.cli.client.cluster import Cluster
from ottla.server.cli.client.output import UsageError, shown_text
from ottla.server.cli.client.security import security_of
from ottla.server.cli.command_line import EXIT_FAILED, EXIT_USAGE, fail
from ottla.server.cli.on_cluster import bootstrap_addresses, client_settings

if TYPE_CHECKING:
    import ssl

    import trio

    from ottla.server.registry.election import Identity
    from ottla.server.registry.serving import RegistryConfig

LISTEN = "127.0.0.1:8081"
REACH_TIMEOUT_S = 5.0
RARELY = 50_000, 20, 50
"""Objects made before garbage is collected: a topic that is read becomes very many, none of which is garbage."""

SWITCH_SECONDS = 0.0005
"""Seconds after which a thread that parses a schema yields to the event loop."""

LIBRARIES = ("avro", "jsonschema", "referencing", "proto_schema_parser")
"""Top-level packages of the extra `registry`."""

DESCRIPTION = """\
Runs a schema registry with the HTTP API of Confluent's, for Avro, JSON Schema and Protobuf.

Schemas are kept in the compacted topic _schemas, in the records that Confluent's and Karapace's registries read.
"""

EXAMPLES = """\
examples:
  ottla registry                                 http://127.0.0.1:8081, schemas at localhost:9092
  ottla registry --listen 0.0.0.0:8081 -b kafka1:9092,kafka2:9092
  ottla registry --command-config client.properties
                                                 TLS and SASL to the brokers, by Kafka's names
  ottla registry --certificate registry.pem --users users.properties
                                                 https, and users with rights
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla registry`."""
    http_service.add_listen(parser, LISTEN)
    for option, default, metavar, what in (
        ("--topic", "_schemas", "NAME", "where schemas are kept"),
        ("--compatibility", "BACKWARD", "LEVEL", "compatibility if none is set"),
        ("--group", "schema-registry", "NAME", "of all instances"),
    ):
        parser.add_argument(option, default=default, metavar=metavar, help=f"{what} (default: {default})")
    reached = "how the other instances reach this one (default: where it listens)"
    parser.add_argument("--advertise", metavar="HOST[:PORT]", help=reached)
    parser.add_argument("--never-primary", action="store_true", help="leave all writes to other instances")
    parser.add_argument("--alone", action="store_true", help="there are no other instances: take part in no election")
    http_service.add_users_and_certificate(parser, "who may do what with which subjects")
    parser.add_argument("--authority", type=Path, metavar="FILE", help="who signs the other instances' certificates")
    http_service.add_log_and_connection(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until a signal arrives; return the exit code."""
    from ottla.server.config.loggers import set_up_log

    set_up_log(options.log_level.upper(), options.log_format)
    if missing := [each for each in LIBRARIES if find_spec(each) is None]:
        return fail(f"the registry needs {', '.join(missing)}: pip install 'ottla[registry]'", EXIT_FAILED)
    try:
        texts = client_settings(options)
        addresses = bootstrap_addresses(options, texts)
        timeout_s = getattr(options, "timeout", REACH_TIMEOUT_S)
        reach = partial(Cluster.reached, addresses, security_of(texts), timeout_s)
        sock = http_service.listening_socket(options.listen)
        try:
            config = _config(options, sock.getsockname()[:2])
        except UsageError:
            sock.close()
            raise
    except UsageError as error:
        return fail(shown_text(str(error)), EXIT_USAGE)
    except OSError as error:
        return fail(f"cannot listen on {options.listen}: {error.strerror or error}", EXIT_FAILED)
    return _serve(config, sock, reach)


def _serve(config: RegistryConfig, sock: socket.socket, reach: partial[Cluster]) -> int:
    from ottla.replication.log.descriptors import Descriptors, raise_limit
    from ottla.server.registry.serving import serve_registry

    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*RARELY)

    async def serve(on_ready: Callable[[], None], stopping: trio.Event) -> None:
        def freeze_and_tell() -> None:
            # What has been read stays, and is not looked at by each collection of garbage.
            gc.freeze()
            on_ready()

        await serve_registry(config, sock, reach, freeze_and_tell, stopping, Descriptors(raise_limit()))

    return http_service.serve_until_signal("registry", config.context, sock, serve)


def _config(options: argparse.Namespace, address: tuple[str, int]) -> RegistryConfig:
    """Make the settings of a registry that listens at `address`, from the options. Raises UsageError."""
    from ottla.server.registry.access import Access, read_access
    from ottla.server.registry.schemas.compatibility import LEVELS
    from ottla.server.registry.serving import RegistryConfig

    level = options.compatibility.upper()
    if level not in LEVELS:
        raise UsageError(f"--compatibility {options.compatibility}: must be one of {', '.join(LEVELS)}")
    return RegistryConfig(
        topic=options.topic,
        group=options.group,
        compatibility=level,
        access=Access() if options.users is None else http_service.users_of(options.users, read_access),
        context=http_service.tls_context(options),
        identity=None if options.alone else _identity(options, address),
        others_context=_others_context(options),
    )


def _identity(options: argparse.Namespace, address: tuple[str, int]) -> Identity:
    from ottla.server.registry.election import Identity

    host, port = address
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    if options.advertise:
        given, separator, given_port = options.advertise.rpartition(":")
        if not separator or given_port.endswith("]"):
            given, given_port = options.advertise, str(port)
        if not given or not given_port.isascii() or not given_port.isdecimal() or not 0 < int(given_port[:6]) < 65536:
            raise UsageError(f"--advertise {options.advertise}: must be HOST or HOST:PORT")
        host, port = given.strip("[]"), int(given_port)
    scheme = "http" if options.certificate is None else "https"
    return Identity(host, port, scheme, is_eligible=not options.never_primary)


def _others_context(options: argparse.Namespace) -> ssl.SSLContext | None:
    if options.authority is None:
        return None
    import ssl

    try:
        return ssl.create_default_context(cafile=options.authority)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--authority {options.authority}: it cannot be used: {error}") from None
