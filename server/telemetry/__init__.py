"""Metrics that clients push (KIP-714): which clients are asked for which metrics, and who pushes what.

    subscriptions.py  what the CLIENT_METRICS resources ask of which clients
    instances.py      the clients that asked or pushed, and what each may do when; bounded, and forgotten in time
    turns.py          of each owner one piece of work stands in line
    telemetry.py      the two requests, as Kafka's ClientMetricsManager answers them
    receiver.py       the port for whoever takes what is pushed, which is the HTTP endpoint (`server/http/clients/`)

Without a receiver the two requests are neither served nor advertised, as in Kafka without a plug-in.
"""
