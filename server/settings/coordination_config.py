"""The settings of a broker whose coordination tree another process of this machine serves. Apache Kafka has nothing of the kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.server.settings.zookeeper_config import CONNECT, check_has_id
from ottla.wire.settings import InvalidSetting, setting

SOCKET = "coordination.socket"


def _path_problem(text: str) -> str | None:
    if not text or text.startswith("/"):
        return None
    return "must be the absolute path of a Unix socket; brokers of several machines share a tree by zookeeper.connect"


@dataclass(frozen=True, kw_only=True)
class CoordinationConfig:
    """How to reach the process that serves the tree, and how long it waits for this broker."""

    coordination_socket: str = setting(
        "",
        check=_path_problem,
        internal=True,
        doc="Unix socket of the process that serves the cluster's coordination tree to brokers of this machine; empty: none.",
    )
    coordination_session_timeout_ms: int = setting(
        6_000,
        minimum=1_000,
        maximum=600_000,
        internal=True,
        doc="Time without contact over coordination.socket after which this broker counts as hanging, and gone.",
    )

    def check_together(self, texts: Mapping[str, str]) -> None:
        """Raise InvalidSetting if this cannot be with the other settings."""
        if not self.coordination_socket:
            return
        check_has_id(texts, SOCKET)
        if texts.get(CONNECT):
            reason = f"a cluster has one coordination tree, so {CONNECT} cannot be given, too"
            raise InvalidSetting(SOCKET, self.coordination_socket, reason)

    @property
    def session_timeout_s(self) -> float:
        return self.coordination_session_timeout_ms / 1000
