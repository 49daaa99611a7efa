"""How this broker speaks to other ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.server.auth.tls_listener import TlsListener
    from ottla.server.settings.sasl_rules import PeerLoginConfig


@dataclass(frozen=True, kw_only=True)
class Speech:
    """How this broker speaks to one listener of the others, by its settings for a listener of that name."""

    receive_buffer_bytes: int
    connect_timeout_s: float
    connect_timeout_max_s: float
    encryption: TlsListener | None = None
    """This broker's own listener of that name; None: it speaks plaintext."""
    login: PeerLoginConfig | None = None
