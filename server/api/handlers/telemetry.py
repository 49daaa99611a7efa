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
    * Clients need no rights, as in Kafka. A client with an id of zeros gets a new id.
    * A client that matches no subscription gets no metrics to push, and a push interval of five minutes.
    * A client that repeats the request within the interval gets THROTTLING_QUOTA_EXCEEDED, unless the subscriptions
      have changed, or its last push was refused because of its subscription or codec.

    Clients that take long to match wait for each other, in a queue of their own: this API is not `few_at_once`.
    """
    return context.broker.telemetry.get(request, context)


@handles(PushTelemetryRequest)
def push_telemetry(
    request: PushTelemetryRequest, context: RequestContext[Broker]
) -> Coroutine[Any, Any, PushTelemetryResponse]:
    """PushTelemetry: receive a client's metrics, to be exported with the broker's own (KIP-714).

    `server/admin/telemetry/telemetry.py` describes which pushes are refused. An empty push is accepted as a sign of
    life. A client's last push (`terminating`) is accepted at any time; its connection may end before the response.

    Pushes wait for each other in a queue of their own. In the queue for long answers (`few_at_once`) they would delay
    other requests.
    """
    return context.broker.telemetry.push(request, context)
