"""Looks into data directories without a broker.

examination.py  examines batches, indexes and checkpoints
dump.py         dumps log files; rows.py: their rows as text or JSON
rehearsal.py    rehearses a start without changing anything
"""
