"""Processes: a broker, several workers, a cluster on this machine.

running.py               a process that is a broker
signals.py               signals that stop it
workers_command.py       `ottla start` with num.workers
fleet.py                 decides which worker processes run; supervisor.py: runs them
registry_child.py        `ottla start --registry`: a schema registry beside a broker
cluster_command.py       `ottla cluster`
cluster_children.py      its processes and their files
cluster_control.py       its control by another command
banner.py                what they print when they serve
certificates_command.py  `ottla certificates`
"""
