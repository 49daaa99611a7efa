"""A broker as a member of a cluster, which may be its only member.

member.py                   session, registration, and all that rests on them
session.py                  coordination that outlives sessions with the tree
coordination/               adapters of the coordination tree: embedded, served, ZooKeeper
start/                      the tree that a broker starts with
controller/                 the active controller
controller_channel.py       connection to the active controller
forwarding.py               hands requests on to the controller
controlled_shutdown.py      moves leaders away before a stop
broker_connections.py       connections to other brokers
administration.py           creates, extends and deletes topics
prepared_logs.py            logs of new partitions, made early
settings_administration.py  changes settings in the tree
config_notifications.py     hears of settings that others changed
entity_configs.py           quotas and credentials in the tree
security.py                 ACLs, tokens and secrets that all brokers share
acl_store.py                ACLs in the tree
token_store.py              delegation tokens in the tree
log_dirs.py                 log directories in the tree, failed ones among them
features.py                 features and their levels
first_topics.py             topics that a start creates
streams_topics.py           internal topics of streams applications
ports.py                    ports to a member, for handlers
"""
