"""Commands about what a cluster holds: topics, groups, transactions, settings.

topics.py        `ottla topics`: lists, creates, deletes, describes; topic_changes.py: alters and trims
groups.py        `ottla groups`: groups, their offsets and members; group_changes.py: reset, delete
transactions.py  `ottla transactions`: lists and describes them, finds those that hang, aborts some
configs.py       `ottla configs`: settings in force
features.py      `ottla features`: levels of features
status.py        `ottla status`: tells whether the cluster is well
"""
