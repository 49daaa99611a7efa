"""ottla rest --listen HOST:PORT [-b BROKERS]

The line "rest proxy at URL" goes to stdout when requests are taken; the log goes to stderr.
"""

from __future__ import annotations

import argparse
import socket
from functools import partial
from typing import TYPE_CHECKING

from ottla.server.cli import http_service
from ottla.server.cli.client.output import UsageError, shown_text
from ottla.server.cli.client.security import Security, security_of
from ottla.server.cli.command_line import EXIT_FAILED, EXIT_USAGE, count, fail
from ottla.server.cli.on_cluster import bootstrap_addresses, client_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.server.rest.schemas.registry import RegistryConfig
    from ottla.server.rest.serving import RestConfig

LISTEN = "127.0.0.1:8082"
PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

DESCRIPTION = """\
Runs a REST proxy with Confluent's HTTP API, versions 2 and 3: records, consumers and administration over HTTP.

A record is answered with its offset when all in-sync replicas have it.
"""

EXAMPLES = """\
examples:
  ottla rest                                     http://127.0.0.1:8082, for the cluster at localhost:9092
  ottla rest --listen 0.0.0.0:8082 -b kafka1:9092,kafka2:9092
  ottla rest --command-config client.properties  TLS and SASL to the brokers, by Kafka's names
  curl -H 'Content-Type: application/vnd.kafka.json.v2+json' http://localhost:8082/topics/orders \\
       -d '{"records": [{"value": {"item": 1}}]}'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla rest`."""
    http_service.add_listen(parser, LISTEN)
    longest = "longest body of a request (default: 16 MiB)"
    parser.add_argument("--max-request-bytes", type=count, metavar="N", help=longest)
    idle = "after so long a consumer instance that nobody asks is deleted (default: 300000)"
    parser.add_argument("--instance-timeout-ms", type=count, default=300_000, metavar="N", help=idle)
    registry = (
        "schema registry for Avro, JSON Schema and Protobuf; its login and TLS: schema.registry.* of --command-config"
    )
    parser.add_argument("--registry", metavar="URL", help=registry)
    propagate = "log in at the brokers as the user of each request, so that ACLs decide: SASL PLAIN or SCRAM"
    parser.add_argument("--propagate-logins", action="store_true", help=propagate)
    http_service.add_users_and_certificate(parser, "who may log in, by lines user.NAME=PASSWORD")
    http_service.add_log_and_connection(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until a signal arrives; return the exit code."""
    from ottla.replication.log.descriptors import raise_limit
    from ottla.server.config.loggers import set_up_log

    set_up_log(options.log_level.upper(), options.log_format)
    # A proxy has connections of clients and, for each read and join, to a broker.
    raise_limit()
    try:
        config = _config(options)
        sock = http_service.listening_socket(options.listen)
    except UsageError as error:
        return fail(shown_text(str(error)), EXIT_USAGE)
    except OSError as error:
        return fail(f"cannot listen on {options.listen}: {error.strerror or error}", EXIT_FAILED)
    return _serve(config, sock)


def _serve(config: RestConfig, sock: socket.socket) -> int:
    from ottla.server.rest.serving import serve_rest

    return http_service.serve_until_signal("rest proxy", config.context, sock, partial(serve_rest, config, sock))


def _config(options: argparse.Namespace) -> RestConfig:
    from ottla.server.rest.api import BODY_BYTES_MAX
    from ottla.server.rest.logins import read_logins
    from ottla.server.rest.serving import RestConfig

    texts = client_settings(options)
    return RestConfig(
        bootstrap=bootstrap_addresses(options, texts),
        security=_passing_security(texts) if options.propagate_logins else security_of(texts),
        propagates=options.propagate_logins,
        instance_timeout_s=options.instance_timeout_ms / 1000,
        registry=_registry(options.registry, texts),
        logins=None if options.users is None else http_service.users_of(options.users, read_logins),
        context=http_service.tls_context(options),
        body_bytes_max=options.max_request_bytes or BODY_BYTES_MAX,
    )


def _passing_security(texts: Mapping[str, str]) -> Security:
    """Make the security of connections that each use a request's login; it has placeholders as name and password.

    Raises UsageError.
    """
    protocol, mechanism = texts.get("security.protocol", "PLAINTEXT").upper(), texts.get("sasl.mechanism", "")
    if not protocol.startswith("SASL_") or mechanism not in PASSWORD_MECHANISMS:
        raise UsageError(
            "--propagate-logins: needs security.protocol=SASL_SSL or SASL_PLAINTEXT, "
            f"and sasl.mechanism={' or '.join(PASSWORD_MECHANISMS)}"
        )
    own = {name: text for name, text in texts.items() if name != "sasl.jaas.config"}
    return security_of({**own, "sasl.username": "-", "sasl.password": "-"})


def _registry(url: str | None, texts: Mapping[str, str]) -> RegistryConfig | None:
    """Return the registry's settings from `url` (--registry) or `texts`; None if neither has any. Raises UsageError."""
    if not url and not texts.get("schema.registry.url"):
        return None
    from ottla.server.rest.schemas.registry import registry_config

    return registry_config(url, texts, "--registry")
