"""Snapshots of a lab's worlds.

snapshots.py         snapshot, restore and fork of a world
files.py             a snapshot and its file
kept_connections.py  connections that outlive a restore
living_producers.py  producers that outlive a restore
"""
