"""How https is spoken to servers of keys and of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

    from ottla.server.settings.security_config import TlsConfig


def https_context(tls: TlsConfig | None) -> ssl.SSLContext | None:
    """None: it is not spoken. InvalidSetting: certificates cannot be used. It reads files, so it belongs into a start."""
    if tls is None:
        return None
    from ottla.server.auth.tls_contexts import Secrets, client_context

    return client_context(tls, Secrets(tls))
