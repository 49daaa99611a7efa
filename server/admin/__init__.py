"""Pages for operators over HTTP, and metrics that clients push.

http/       the endpoint: health, /metrics, and paths of others
console/    the web console
telemetry/  metrics pushed by clients (KIP-714)
"""
