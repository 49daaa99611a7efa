"""Metrics of clients (KIP-714): GetTelemetrySubscriptions and PushTelemetry."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from ottla.server.broker import Broker
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Worked
from ottla.wire.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)


@handles(GetTelemetrySubscriptionsRequest)
def get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, context: RequestContext[Broker]
) -> Worked[GetTelemetrySubscriptionsResponse]:
    """GetTelemetrySubscriptions: assign a client its metrics, push interval and instance id (KIP-714).

    Behaviour
    * Clients need no rights, as in Kafka. The id of zeros asks for a new one.
    * A client that matches no subscription gets no metrics to push, and a push interval of five minutes.
    * Asked again within the interval: THROTTLING_QUOTA_EXCEEDED, unless the subscriptions have changed, or the last
      push was refused for its subscription or its codec.

    Clients that take long to match wait for each other, and not in the line of requests with long answers
    (`few_at_once`).
    """
    return context.broker.telemetry.get(request, context)


@handles(PushTelemetryRequest)
def push_telemetry(
    request: PushTelemetryRequest, context: RequestContext[Broker]
) -> Coroutine[Any, Any, PushTelemetryResponse]:
    """PushTelemetry: receive a client's metrics, for export with the broker's (KIP-714).

    `server/admin/telemetry/telemetry.py` says what is refused. A push of nothing is taken, as a sign of life. The last
    one of a client (`terminating`) is taken at any time; its connection may end before the answer. Pushes wait for each
    other, so they must not stand in the line of requests with long answers (`few_at_once`), or those would wait for
    them.
    """
    return context.broker.telemetry.push(request, context)
