"""Metrics pushed by clients (KIP-714): which clients are asked for which metrics, and what they push.

    subscriptions.py  matches clients with CLIENT_METRICS resources; keeps their instances, bounded, and forgets them in time;
                      the port to the receiver of pushes, which is the HTTP endpoint (`server/admin/http/clients/`)
    telemetry.py      the two requests, as Kafka's ClientMetricsManager answers them

Without a receiver the two requests are neither served nor advertised, as in Kafka without a plug-in.
"""
