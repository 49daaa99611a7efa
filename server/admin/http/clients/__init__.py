"""Metrics pushed by clients (KIP-714), as /metrics lists them.

points.py    decodes metrics of OpenTelemetry to numbers with labels, by the published package; in a thread
store.py     keeps the numbers of all instances, bounded and shared fairly, and forgets them in time
receiver.py  takes a push: decompress, decode, keep; and makes the families of a scrape
"""
