"""/healthz and /readyz: one line for each thing that is looked at, 200 if all are well, 503 if one is not.

/healthz    the process answers, and every log directory is online
/readyz     clients are served: listeners accept, this broker is registered and not fenced, a controller is known, it does
            not stop
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from ottla.server.http.messages import Request, Response

if TYPE_CHECKING:
    from ottla.replication.cluster.metadata_cache import MetadataCache
    from ottla.replication.replica_manager.manager import ReplicaManager
    from ottla.server.cluster.member import ClusterMember
    from ottla.server.http.routes import Routes
    from ottla.server.net.listener import Listener
    from ottla.server.serving_state import ServingState, Stop

    class Port(Protocol):
        """What is needed of the broker here."""

        cluster: MetadataCache
        serving_state: ServingState
        listeners: list[Listener]
        member: ClusterMember
        replicas: ReplicaManager

        @property
        def node_id(self) -> int: ...


def add_health(routes: Routes, broker: Port, stop: Stop) -> None:
    """Add both paths."""

    async def healthz(request: Request) -> Response:
        return _told(health_of(broker))

    async def readyz(request: Request) -> Response:
        return _told(readiness_of(broker, stop))

    routes.get("/healthz", healthz)
    routes.get("/readyz", readyz)


def health_of(broker: Port) -> Mapping[str, str]:
    """What was looked at -> "ok", or what is wrong."""
    # Paths are not told: whoever asks for health need not know them.
    offline = sum(not each.is_online for each in broker.replicas.log_directories)
    return {"log directories": f"{offline} offline" if offline else "ok"}


def readiness_of(broker: Port, stop: Stop) -> Mapping[str, str]:
    """The same."""
    member = broker.member
    is_open = (
        broker.serving_state.is_on
        and bool(broker.listeners)
        and all(each.calls.opened.is_set() for each in broker.listeners)
    )
    is_registered = broker.node_id in broker.cluster.brokers and not member.is_fenced
    return {
        "listeners": "ok" if is_open else "not open",
        "registration": "ok" if is_registered else "not registered, or fenced",
        "controller": "ok" if member.controller_id >= 0 else "unknown",
        "stop": "asked for" if stop.asked.is_set() else "ok",
    }


def _told(looked_at: Mapping[str, str]) -> Response:
    is_well = all(each == "ok" for each in looked_at.values())
    text = "".join(f"{name}: {found}\n" for name, found in looked_at.items())
    return Response(text.encode(), status=200 if is_well else 503)
