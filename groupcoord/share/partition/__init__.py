"""Share partitions at the leaders of partitions: who holds which record, and the sessions of members. Sans-IO.

`share_partition.py` has the theory; records are acquired (`acquiring.py`) and acknowledged (`acknowledging.py`).
"""
