"""PushTelemetry: metrics of a client, which come out where those of the broker do (KIP-714).

`server/admin/telemetry/telemetry.py` says what is refused. A push of nothing is taken, as a sign of life. The last one of a client
(`terminating`) is taken at any time; its connection may end before the answer. Pushes wait for each other, so they must not stand
in the line of requests with long answers (`few_at_once`), or those would wait for them.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from ottla.server.broker import Broker
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


@handles(PushTelemetryRequest)
def push_telemetry(
    request: PushTelemetryRequest, context: RequestContext[Broker]
) -> Coroutine[Any, Any, PushTelemetryResponse]:
    return context.broker.telemetry.push(request, context)
