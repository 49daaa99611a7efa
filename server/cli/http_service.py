"""Commands that serve HTTP by themselves: common options of `ottla registry` and `ottla rest`, and their process."""

from __future__ import annotations

import argparse
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ottla.server.cli.client.output import UsageError
from ottla.server.cli.command_line import EXIT_OK, LOG_LEVELS
from ottla.server.cli.on_cluster import add_connection
from ottla.server.standard_streams import announce

if TYPE_CHECKING:
    import ssl

    import trio

T = TypeVar("T")

Serve = Callable[[Callable[[], None], "trio.Event"], Awaitable[None]]
"""Serve until the event, and answer what is in flight; the function it gets is called when requests are accepted."""


def add_listen(parser: argparse.ArgumentParser, default: str) -> None:
    """Add --listen with the default address `default`."""
    where = f"where it is served (default: {default}; port 0: any)"
    parser.add_argument("--listen", default=default, metavar="HOST:PORT", help=where)


def add_users_and_certificate(parser: argparse.ArgumentParser, users: str) -> None:
    """Add options for the listener's users and TLS certificate. `users`: help text of --users."""
    parser.add_argument("--users", type=Path, metavar="FILE", help=users)
    parser.add_argument("--certificate", type=Path, metavar="FILE", help="serve https: certificate and key, as PEM")
    parser.add_argument("--key", type=Path, metavar="FILE", help="the key, if it is in a file of its own")


def add_log_and_connection(parser: argparse.ArgumentParser) -> None:
    """Add the options for logging and for the connection to the cluster."""
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info", help="from what level on lines are logged")
    form = "lines for people, or a JSON object a line"
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help=form)
    add_connection(parser)


def listening_socket(text: str) -> socket.socket:
    """Bind to the address of --listen and listen. Raises UsageError, OSError."""
    from ottla.server.config.server_config import parse_http_listener

    is_port = text.isascii() and text.isdecimal()
    address = parse_http_listener(f":{text}" if is_port else text)
    if address is None:
        raise UsageError(f"--listen {text}: must be HOST:PORT, or a PORT on loopback")
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    return socket.create_server(address, family=family, backlog=1024)


def tls_context(options: argparse.Namespace) -> ssl.SSLContext | None:
    """Make the TLS context from --certificate; None if the option is not given. Raises UsageError."""
    if options.certificate is None:
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(options.certificate, options.key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--certificate {options.certificate}: it cannot be used: {error}") from None
    return context


def users_of(file: Path, read: Callable[[Path], T]) -> T:
    """Return the users in the file of --users, read by `read`. Raises UsageError."""
    from ottla.server.admin.http.basic_authentication import InvalidUsers

    try:
        return read(file)
    except InvalidUsers as error:
        raise UsageError(f"--users: {error}") from None


def serve_until_signal(what: str, context: ssl.SSLContext | None, sock: socket.socket, serve: Serve) -> int:
    """Serve until a signal arrives; return the exit code. First print "WHAT at URL", when requests are accepted."""
    import trio

    from ottla.server.launch.signals import STOPPING

    host, port = sock.getsockname()[:2]
    scheme = "http" if context is None else "https"
    line = f"{what} at {scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    async def run() -> None:
        stopping = trio.Event()

        async def heed() -> None:
            async for number in signals:
                # A second signal does not wait for answers. Shell and kernel may each send SIGHUP for a closed terminal.
                if stopping.is_set() and number != signal.SIGHUP:
                    nursery.cancel_scope.cancel()
                stopping.set()

        with trio.open_signal_receiver(*STOPPING) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(heed)
                await serve(lambda: announce([line]), stopping)
                nursery.cancel_scope.cancel()

    with suppress(KeyboardInterrupt):
        trio.run(run)
    return EXIT_OK
