"""Settings of a broker that is a member of a cluster."""

from dataclasses import dataclass

from ottla.wire.settings import LONG, setting


@dataclass(frozen=True, kw_only=True)
class MemberConfig:
    """How a member reaches the others, and how it leaves them."""

    socket_connection_setup_timeout_ms: int = setting(
        10_000, kind=LONG, doc="Longest wait for a connection to another broker; it doubles with each one that fails."
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        30_000, kind=LONG, doc="Longest wait for a connection to another broker, however often it has failed."
    )

    controlled_shutdown_enable: bool = setting(True, doc="Whether a broker hands over what it leads before it stops.")
    controlled_shutdown_max_retries: int = setting(
        3, internal=True, doc="Further attempts to hand over what a stopping broker leads."
    )
    controlled_shutdown_retry_backoff_ms: int = setting(
        5_000, kind=LONG, internal=True, doc="Pause before the next attempt to hand over."
    )
    controlled_shutdown_timeout_ms: int = setting(
        30_000,
        kind=LONG,
        minimum=0,
        internal=True,
        doc="Longest time that handing over may take, all attempts together.",
    )
