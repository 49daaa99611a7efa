"""Happenings that Ottla's brokers tell over HTTP (`server/admin/console/why_view.py`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.wire.happenings import Happening, from_json

USUAL_PORT = 9644
TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 16 << 20


class Told(NamedTuple):
    """Answers of one or more brokers.

    `is_whole` false: they left out connections, because no token was given. `log_end_offset`: of the partition that was
    asked for; None if none of them leads it.
    """

    happenings: Sequence[Happening] = ()
    is_whole: bool = True
    left_out: int = 0
    log_end_offset: int | None = None
    cluster_id: str = ""


def usual_url(host: str) -> str:
    """Return the address at which `ottla start --http :9644` serves HTTP on a host."""
    return f"http://[{host}]:{USUAL_PORT}" if ":" in host else f"http://{host}:{USUAL_PORT}"


def checked_url(text: str) -> str:
    """Return an address of HTTP without its path; `text` may lack the scheme. Raises UsageError."""
    whole = text if "//" in text else f"http://{'localhost' if text.startswith(':') else ''}{text}"
    try:
        parts = urlsplit(whole)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good:
        raise UsageError(f"--http {text}: must be HOST:PORT or a URL, such as http://localhost:{USUAL_PORT}")
    return f"{parts.scheme}://{parts.netloc}"


def ask_broker(url: str, query: Mapping[str, str | int], token: str | None = None) -> Told:
    """Ask one broker. `query`: facts that all happenings have to have. Raises RequestFailed."""
    import http.client  # here, as a cluster of another make has no HTTP
    import urllib.error
    import urllib.request

    request = urllib.request.Request(f"{url}/api/why?{urlencode(query)}")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            body = answer.read(ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as error:
        with error:
            words = error.read(2000).decode("utf-8", "replace").strip()
        hint = "; --token gives the console's token" if error.code == 401 else ""
        raise RequestFailed(f"{url} answers {error.code}: {words or error.reason}{hint}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise RequestFailed(f"{url} does not answer: {getattr(reason, 'strerror', None) or reason}") from None
    return _told(url, body)


def _told(url: str, body: bytes) -> Told:
    try:
        value: Any = json.loads(body)
        end = value["logEndOffset"]
        return Told(
            [from_json(each) for each in value["happenings"]],
            bool(value["isWhole"]),
            int(value["leftOut"]),
            None if end is None else int(end),
            str(value["clusterId"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RequestFailed(f"{url} answers something else; is it the HTTP endpoint of a broker?") from None


def together(answers: Sequence[Told]) -> Told:
    """Return the answers of several brokers as one, in the order of time."""
    happenings = sorted((each for told in answers for each in told.happenings), key=lambda each: each.first_ms)
    ends = [told.log_end_offset for told in answers if told.log_end_offset is not None]
    return Told(
        happenings,
        all(told.is_whole for told in answers),
        sum(told.left_out for told in answers),
        ends[0] if ends else None,
        answers[0].cluster_id if answers else "",
    )
