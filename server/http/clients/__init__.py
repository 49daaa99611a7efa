"""What clients push (KIP-714), as it comes out on /metrics.

names.py     names of families and labels that Prometheus takes
wire.py      the outer layers of MetricsData, cut without making objects of them
points.py    metrics of OpenTelemetry to numbers with labels, by the published package; in a thread
store.py     the numbers of all instances, bounded, and forgotten in time
shares.py    who has how much of that, and who makes room for whom
receiver.py  takes a push: decompress, decode, keep
telling.py   the families of a scrape
"""
