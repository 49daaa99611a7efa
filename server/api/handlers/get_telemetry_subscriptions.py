"""GetTelemetrySubscriptions: which metrics a client is to push, how often, and under which id (KIP-714).

Behaviour
* Whoever asks is answered, also without any rights, as in Kafka. The id of zeros asks for a new one.
* A client that no subscription matches is asked for nothing, and told to look again in five minutes.
* Asked again within the interval: THROTTLING_QUOTA_EXCEEDED, unless the subscriptions have changed, or the last push was refused
  for its subscription or its codec.

Clients that take long to match wait for each other, and not in the line of requests with long answers (`few_at_once`).
"""

from __future__ import annotations

from ottla.server.broker import Broker
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Worked
from ottla.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


@handles(GetTelemetrySubscriptionsRequest)
def get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, context: RequestContext[Broker]
) -> Worked[GetTelemetrySubscriptionsResponse]:
    return context.broker.telemetry.get(request, context)
