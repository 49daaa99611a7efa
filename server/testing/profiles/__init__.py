"""Releases of Kafka and hosted services that a lab's brokers can behave as.

profiles.py  the profiles: settings, restrictions, differences from Kafka 4.4
versions.py  their versions of APIs
"""
