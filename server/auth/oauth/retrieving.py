"""Gets a token: from a server for a secret (RFC 6749, section 4.4), from a file, or made here and signed by nobody.

As Kafka's HttpJwtRetriever: a server that cannot be reached, or says that it is its own fault, is asked again for
sasl.login.retry.backoff.max.ms, with pauses that double.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ottla.server.auth.oauth.token_files import read_token_file
from ottla.server.auth.oauth.token_requests import (
    FailedRetrieval,
    body_of,
    headers_of,
    plain_token,
    token_of_answer,
    unsecured_token,
)
from ottla.server.settings.login_rules import ClientCredentials, TokenFile

if TYPE_CHECKING:
    import ssl

    from ottla.server.settings.login_rules import UnsecuredLogin

    Source = ClientCredentials | TokenFile | UnsecuredLogin

FOREVER_MS_MAX = 300_000
_PAUSE_S_MIN = 0.01
_reads = trio.CapacityLimiter(1)  # of its own: a disk that hangs holds nobody else


async def retrieve(source: Source, context: ssl.SSLContext | None, now_ms: int) -> str:
    """A token, of which no more is known than that its characters are those of tokens. FailedRetrieval."""
    if isinstance(source, ClientCredentials):
        text = await _of_server(source, context)
    elif isinstance(source, TokenFile):
        text = await trio.to_thread.run_sync(_of_file, source.path, limiter=_reads, abandon_on_cancel=True)
    else:
        text = unsecured_token(source, now_ms)
    return plain_token(text)


def _of_file(address: str) -> str:
    try:
        return read_token_file(Path(address))
    except (OSError, ValueError) as error:
        raise FailedRetrieval(f"{address} cannot be read: {getattr(error, 'strerror', None) or error}") from None


# ---------------------------------------------------------------------- of a server


async def _of_server(source: ClientCredentials, context: ssl.SSLContext | None) -> str:
    deadline = trio.current_time() + min(source.retry_backoff_max_ms, FOREVER_MS_MAX) / 1000
    attempts = 0
    while True:
        try:
            return await _asked(source, context)
        except FailedRetrieval as failure:
            attempts += 1
            doubled_ms = max(source.retry_backoff_ms, 0) << min(attempts - 1, 30)
            pause_s = max(_PAUSE_S_MIN, min(doubled_ms, FOREVER_MS_MAX) / 1000)
            if failure.is_lasting or trio.current_time() + pause_s > deadline:
                raise
        await trio.sleep(pause_s)


async def _asked(source: ClientCredentials, context: ssl.SSLContext | None) -> str:
    from ottla.server.auth.oauth.fetching import TIME_S, FailedRead, Limits, post  # here, as files need no HTTP

    limits = Limits(
        connect_s=TIME_S if source.connect_timeout_ms is None else max(source.connect_timeout_ms, 1) / 1000,
        read_s=TIME_S if source.read_timeout_ms is None else max(source.read_timeout_ms, 1) / 1000,
    )
    try:
        answer = await post(source.url, context, headers_of(source), body_of(source), limits)
    except FailedRead as failure:
        raise FailedRetrieval(str(failure), is_lasting=False) from None
    except ImportError as error:  # as long as too many files are open
        raise FailedRetrieval(str(error), is_lasting=False) from None
    return token_of_answer(answer.status, answer.body)
