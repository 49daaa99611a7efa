"""Looks into data directories without a broker.

examination.py  examines batches, indexes and checkpoints
dump.py         dumps log files; rows.py: their rows as text or JSON
past.py         tells from files of rebalances, aborted transactions and offsets
rehearsal.py    rehearses a start without changing anything
"""
