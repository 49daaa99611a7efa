"""Looks into data directories without a broker, and tells why things happened.

check.py         `ottla check`: examines data directories
examination.py   examines batches, indexes and checkpoints
rehearsal.py     rehearses a start without changing anything
logs.py          `ottla logs`: dumps log files
dump.py          reads log files; rows.py: their rows as text or JSON
why.py           `ottla why`: why members were removed and writes refused; what became of an offset
fate.py          what became of an offset
cluster_view.py  asks a cluster: any Kafka about a partition, and Ottla's brokers over HTTP what they did, and why
past.py          asks the files: about rebalances, aborted transactions and offsets
"""
