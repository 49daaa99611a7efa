"""Faults of a lab's brokers by a seed.

chaos.py        schedules of faults, and those of brokers
wire_faults.py  faults on the wire towards clients
shrinking.py    the fewest faults that make a test fail
"""
