"""The coordinators of this broker, and their ports to partitions and other brokers.

coordinators.py              coordinators by internal topic, and creation of these topics
coordinator_log.py           an internal topic as the log of a coordinator
share_coordinators.py        requests to share coordinators and leaders
transaction_markers.py       sends markers to the leaders of partitions
transaction_verification.py  asks coordinators about partitions of transactions (KIP-890)
transaction_questions.py     that question, and the meaning of its answer
"""
